"""Launches of the kernels of a transformer block, with the tiles that measured fastest, and its weights."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
import triton
from torch import Tensor

from factorank.kernels.gpu import block_kernels as kernels
from factorank.kernels.gpu.attention import attention_forward

TILE, COLUMNS, CHUNK, WARPS, STAGES = 64, 64, 64, 4, 2
"""Of a tile of a product: tokens, columns, how much of the inner dimension is loaded at once, warps."""
ROW_TILE, ROW_CHUNK, ROW_WARPS, ROW_STAGES = 32, 64, 2, 3
"""The same where a tile is as wide as the stream."""
LISTS = ((5, 16, 4), (10, 32, 1), (64, 64, 4))
"""Of a tile of whole lists: the longest list that it is for, tokens, warps."""
EPS = 1e-5
"""Of the norms, as torch has it."""


class Launches:
    """The kernels for lists of one shape ``(rows, n, width)``, of which there are ``tokens`` in all."""

    def __init__(
        self, x: Tensor, tokens: int, heads: int, causal: bool, keep: float,
        present: Tensor | None, seeds: Tensor | None,
    ) -> None:  # fmt: skip
        rows, n, self.width = x.shape
        head = self.width // heads
        block, self.list_warps = next(tile[1:] for tile in LISTS if n <= tile[0])
        self.heads, self.tokens, self.keep, self.scale = heads, tokens, keep, head**-0.5
        self.unused = x  # stands for pointers that a kernel does not read
        self.present = self.unused if present is None else present
        self.seeds = seeds
        self.tiles, self.row_tiles = triton.cdiv(tokens, TILE), triton.cdiv(tokens, ROW_TILE)
        self.list_tiles = triton.cdiv(rows, block // n)
        self.lists = {"N": n, "WIDTH": self.width, "HEAD": head, "BLOCK": block, "CAUSAL": causal}
        self.lists |= {"MASKED": present is not None}
        self.rows = {"BLOCK": ROW_TILE, "WIDTH": self.width, "num_warps": ROW_WARPS}
        self.rows_of_product = self.rows | {"CHUNK": ROW_CHUNK, "num_stages": ROW_STAGES}
        self.product = {"BLOCK": TILE, "COLUMNS": COLUMNS, "CHUNK": CHUNK, "WIDTH": self.width}
        self.product |= {"num_warps": WARPS, "num_stages": STAGES}

    def norm(self, x: Tensor, normed: Tensor, gain: Tensor, shift: Tensor) -> None:
        kernels.norm[(self.row_tiles,)](x, normed, gain, shift, self.tokens, EPS, **self.rows)

    def attention(self, qkv: Tensor, mixed: Tensor) -> None:
        attention_forward[(self.list_tiles, self.heads)](
            qkv, self.present, mixed, self.tokens, self.scale, **self.lists, PRECISION="ieee",
            num_warps=self.list_warps,
        )  # fmt: skip

    def up_gelu(self, normed: Tensor, active: Tensor, w: Tensor, b: Tensor) -> None:
        """``GELU(normed w + b)`` into ``active``."""
        grid, out = (self.tiles, w.shape[0] // COLUMNS), w.shape[0]
        kernels.up_gelu[grid](normed, active, w, b, self.tokens, OUT=out, **self.product)

    def add_to_stream(
        self, a: Tensor, x: Tensor, y: Tensor, w: Tensor, b: Tensor, half: int,
        following: tuple[Tensor, Tensor, Tensor] | None,
    ) -> None:  # fmt: skip
        """``x + dropout(a w + b)`` into ``y``, and its norm into what follows: normed, gain and shift."""
        normed, gain, shift = following or (y, b, b)
        kernels.add_to_stream[(self.row_tiles,)](
            a, x, y, normed, w, b, gain, shift, self._seed(half), self.tokens, EPS,
            K=w.shape[1], KEEP=self.keep, NORM=following is not None, **self.rows_of_product,
        )  # fmt: skip

    def dropout_backward(self, grad_y: Tensor, grad_change: Tensor, sums: Tensor, half: int) -> None:
        tensors = (grad_y, grad_change, sums, self._seed(half))
        kernels.dropout_backward[(self.row_tiles,)](*tensors, self.tokens, KEEP=self.keep, **self.rows)

    def gelu_backward(self, *tensors: Tensor) -> None:
        """The tensors are those of the kernel, in its order."""
        hidden = 4 * self.width
        grid = (self.tiles, hidden // COLUMNS)
        kernels.gelu_backward[grid](*tensors, self.tokens, HIDDEN=hidden, **self.product)

    def attention_backward(
        self, grad_change: Tensor, qkv: Tensor, grad_qkv: Tensor, sums: Tensor, w_out: Tensor
    ) -> None:
        kernels.block_attention_backward[(self.list_tiles, self.heads)](
            grad_change, qkv, grad_qkv, sums, w_out, self.present, self.tokens, self.scale, **self.lists,
            CHUNK=self.width, num_stages=1, num_warps=self.list_warps,
        )  # fmt: skip

    def norm_backward(
        self, grad_product: Tensor, grad_y: Tensor, grad_x: Tensor, x: Tensor, w: Tensor, gain: Tensor,
        sums: Tensor, below: tuple[Tensor, Tensor, int] | None,
    ) -> None:  # fmt: skip
        """``below``: where the gradient goes after the dropout below, its sums, and its half block."""
        grad_change, sums_below, half = below or (grad_x, sums, 0)
        kernels.norm_backward[(self.row_tiles,)](
            grad_product, grad_y, grad_x, grad_change, x, w, gain, self._seed(half), sums, sums_below,
            self.tokens, EPS, K=w.shape[0], KEEP=self.keep, BELOW=below is not None,
            **self.rows_of_product,
        )  # fmt: skip

    def _seed(self, half: int) -> Tensor:
        """Where a kernel reads the seed of the dropout that a half block ends with."""
        return self.unused if self.seeds is None else self.seeds[half:]


class BlockWeights(NamedTuple):
    """The parameters of one block, in the order of :class:`factorank.models.transformer.Block`."""

    attention_gain: Tensor
    attention_shift: Tensor
    qkv: Tensor
    qkv_bias: Tensor
    out: Tensor
    out_bias: Tensor
    mlp_gain: Tensor
    mlp_shift: Tensor
    up: Tensor
    up_bias: Tensor
    down: Tensor
    down_bias: Tensor


NARROW = ("qkv", "out", "up", "down", "qkv_bias")
"""What the matrix products of a block read in bfloat16."""


def by_block(parameters: Sequence[Tensor]) -> list[BlockWeights]:
    """The parameters of all blocks, which lie one after the other."""
    size = len(BlockWeights._fields)
    return [BlockWeights(*parameters[i : i + size]) for i in range(0, len(parameters), size)]


def narrow_size(blocks: list[BlockWeights]) -> int:
    """The number of elements of :func:`narrowed`."""
    return sum(weight.numel() for weight in _wide(blocks))


def narrowed(blocks: list[BlockWeights]) -> Tensor:
    """What the products of all blocks read, in one bfloat16 tensor."""
    narrow = torch.empty(narrow_size(blocks), dtype=torch.bfloat16, device=blocks[0].qkv.device)
    torch._foreach_copy_(_views(narrow, blocks), _wide(blocks))
    return narrow


def with_narrow(blocks: list[BlockWeights], narrow: Tensor) -> list[BlockWeights]:
    """The blocks with views of :func:`narrowed` for what their products read."""
    views = iter(_views(narrow, blocks))
    return [block._replace(**{name: next(views) for name in NARROW}) for block in blocks]


def _wide(blocks: list[BlockWeights]) -> list[Tensor]:
    return [getattr(block, name) for block in blocks for name in NARROW]


def _views(narrow: Tensor, blocks: list[BlockWeights]) -> list[Tensor]:
    wide = _wide(blocks)
    parts = narrow.split([weight.numel() for weight in wide])
    return [part.view(weight.shape) for part, weight in zip(parts, wide, strict=True)]
