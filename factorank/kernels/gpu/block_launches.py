"""Launches of the kernels of a transformer block, with the tiles that measured fastest."""

import triton
from torch import Tensor

from factorank.kernels.gpu import block_kernels as kernels
from factorank.kernels.gpu.attention import attention_forward

TILE, COLUMNS, CHUNK, WARPS, STAGES = 64, 64, 64, 4, 3
"""Of a tile of a product: tokens, columns, how much of the inner dimension is loaded at once, warps."""
ROW_TILE, ROW_WARPS = 32, 2
"""The same where a tile is as wide as the stream."""


def list_tile(n: int) -> tuple[int, int]:
    """Tokens of a tile of whole lists of n, and the warps that share it."""
    return (16, 4) if n <= 5 else (32, 2) if n <= 10 else (64, 4)


class Launches:
    """The kernels for lists of one shape ``(rows, n, width)``, of which there are ``tokens`` in all."""

    def __init__(
        self,
        x: Tensor,
        tokens: int,
        heads: int,
        causal: bool,
        keep: float,
        eps: float,
        present: Tensor | None,
    ) -> None:
        rows, n, self.width = x.shape
        head = self.width // heads
        block, self.list_warps = list_tile(n)
        self.heads, self.tokens, self.eps, self.scale = heads, tokens, eps, head**-0.5
        self.keep = keep
        self.unused = x  # stands for pointers that a kernel does not read
        self.present = self.unused if present is None else present
        self.tiles, self.row_tiles = triton.cdiv(tokens, TILE), triton.cdiv(tokens, ROW_TILE)
        self.list_tiles = triton.cdiv(rows, block // n)
        self.lists = {"N": n, "WIDTH": self.width, "HEAD": head, "BLOCK": block, "CAUSAL": causal}
        self.lists |= {"MASKED": present is not None}

    def norm(self, x: Tensor, normed: Tensor, gain: Tensor, shift: Tensor) -> None:
        kernels.norm[(self.row_tiles,)](
            x, normed, gain, shift, self.tokens, self.eps, WIDTH=self.width, BLOCK=ROW_TILE,
            num_warps=ROW_WARPS,
        )  # fmt: skip

    def attention(self, qkv: Tensor, mixed: Tensor) -> None:
        attention_forward[(self.list_tiles, self.heads)](
            qkv, self.present, mixed, self.tokens, self.scale, **self.lists, PRECISION="ieee",
            num_warps=self.list_warps,
        )  # fmt: skip

    def up_gelu(self, normed: Tensor, active: Tensor, w: Tensor, b: Tensor) -> None:
        """``GELU(normed w + b)`` into ``active``."""
        out = w.shape[0]
        kernels.up_gelu[(self.tiles, out // COLUMNS)](
            normed, active, w, b, self.tokens, WIDTH=self.width, OUT=out, BLOCK=TILE, COLUMNS=COLUMNS,
            CHUNK=CHUNK, num_warps=WARPS, num_stages=STAGES,
        )  # fmt: skip

    def add_to_stream(
        self,
        a: Tensor,
        x: Tensor,
        y: Tensor,
        w: Tensor,
        b: Tensor,
        seed: Tensor | None,
        following: tuple[Tensor, Tensor, Tensor] | None,
    ) -> None:
        """``x + dropout(a w + b)`` into ``y``, and its norm into what follows: normed, gain and shift."""
        normed, gain, shift = following or (y, b, b)
        kernels.add_to_stream[(self.row_tiles,)](
            a, x, y, normed, w, b, gain, shift, self.unused if seed is None else seed, self.tokens, self.eps,
            WIDTH=self.width, K=w.shape[1], BLOCK=ROW_TILE, CHUNK=CHUNK, KEEP=self.keep,
            NORM=following is not None, num_warps=ROW_WARPS, num_stages=STAGES,
        )  # fmt: skip

    def dropout_backward(
        self, grad_y: Tensor, grad_change: Tensor, sums: Tensor, seed: Tensor | None
    ) -> None:
        kernels.dropout_backward[(self.row_tiles,)](
            grad_y, grad_change, sums, self.unused if seed is None else seed, self.tokens, WIDTH=self.width,
            BLOCK=ROW_TILE, num_warps=ROW_WARPS, KEEP=self.keep,
        )  # fmt: skip

    def gelu_backward(
        self,
        grad_change: Tensor,
        normed: Tensor,
        grad_up: Tensor,
        sums: Tensor,
        w_up: Tensor,
        b_up: Tensor,
        w_down: Tensor,
    ) -> None:
        hidden = w_up.shape[0]
        kernels.gelu_backward[(self.tiles, hidden // COLUMNS)](
            grad_change, normed, grad_up, sums, w_up, b_up, w_down, self.tokens, WIDTH=self.width,
            HIDDEN=hidden, BLOCK=TILE, COLUMNS=COLUMNS, CHUNK=CHUNK, num_warps=WARPS, num_stages=STAGES,
        )  # fmt: skip

    def attention_backward(
        self, grad_change: Tensor, qkv: Tensor, grad_qkv: Tensor, sums: Tensor, w_out: Tensor
    ) -> None:
        kernels.block_attention_backward[(self.list_tiles, self.heads)](
            grad_change, qkv, grad_qkv, sums, w_out, self.present, self.tokens, self.scale, **self.lists,
            CHUNK=self.width, num_stages=1, num_warps=self.list_warps,
        )  # fmt: skip

    def norm_backward(
        self,
        grad_product: Tensor,
        grad_y: Tensor,
        grad_x: Tensor,
        x: Tensor,
        w: Tensor,
        gain: Tensor,
        sums: Tensor,
        below: tuple[Tensor, Tensor, Tensor | None] | None,
    ) -> None:
        """``below``: where the gradient goes after the dropout below, its sums, and the seed."""
        grad_change, sums_below, seed = below or (grad_x, sums, None)
        kernels.norm_backward[(self.row_tiles,)](
            grad_product, grad_y, grad_x, grad_change, x, w, gain, self.unused if seed is None else seed,
            sums, sums_below, self.tokens, self.eps, WIDTH=self.width, K=w.shape[0], BLOCK=ROW_TILE,
            CHUNK=CHUNK, KEEP=self.keep, BELOW=below is not None, num_warps=ROW_WARPS, num_stages=STAGES,
        )  # fmt: skip
