"""One more token through a stack of transformer blocks, on GPUs and in bfloat16: sampling left to right.

The kernels of ``block_kernels`` on one token of each row, and one for its attention to the tokens before it.
The queries, keys and values of a token are written where they stay, so that nothing is copied from step to
step.
"""

import functools
from collections.abc import Sequence

import torch
import triton
import triton.language as tl
from torch import Tensor

from factorank.kernels.attention import Cache
from factorank.kernels.gpu.block_launches import Launches, by_block, narrowed, with_narrow

ROWS = 16
"""Rows of a program of the attention."""


class FusedCache(Cache):
    """Queries, keys and values of all blocks: room for ``capacity`` tokens, which come one at a time."""

    def __init__(self, parameters: Sequence[Tensor], heads: int, capacity: int) -> None:
        self.heads, self.capacity = heads, capacity
        blocks = by_block(parameters)
        self._blocks = with_narrow(blocks, narrowed(blocks))
        self._qkv: Tensor | None = None

    def advance(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        assert mask is None
        rows, _, width = x.shape
        position, blocks = self.length, self._blocks
        empty = functools.partial(torch.empty, dtype=torch.bfloat16, device=x.device)
        if self._qkv is None:
            self._qkv = empty((len(blocks), self.capacity, rows, 3 * width))
        self.length += 1
        if rows == 0:
            return x
        stream = x.reshape(rows, width).float().contiguous()
        middle = torch.empty((rows, width), device=x.device)
        normed, mixed = empty((rows, width)), empty((rows, width))
        active = empty((rows, 4 * width))
        launch = Launches(x, rows, self.heads, False, 1.0, None, None)
        launch.norm(stream, normed, blocks[0].attention_gain, blocks[0].attention_shift)
        for i, block in enumerate(blocks):
            qkv = self._qkv[i]
            torch.addmm(block.qkv_bias, normed, block.qkv.T, out=qkv[position])
            _attend_last[(triton.cdiv(rows, ROWS),)](
                qkv, mixed, rows, position, (width // self.heads) ** -0.5, WIDTH=width, HEADS=self.heads,
                BLOCK=ROWS,
            )  # fmt: skip
            launch.add_to_stream(
                mixed, stream, middle, block.out, block.out_bias, 0,
                (normed, block.mlp_gain, block.mlp_shift),
            )  # fmt: skip
            launch.up_gelu(normed, active, block.up, block.up_bias)
            following = None
            if i < len(blocks) - 1:
                following = (normed, blocks[i + 1].attention_gain, blocks[i + 1].attention_shift)
            stream = torch.empty_like(middle)
            launch.add_to_stream(active, middle, stream, block.down, block.down_bias, 0, following)
        return stream.view(rows, 1, width)

    def select(self, rows: Tensor) -> None:
        if self._qkv is not None:
            self._qkv = self._qkv[:, :, rows]


@triton.jit
def _attend_last(  # type: ignore[no-untyped-def]
    qkv, mixed, rows, last, scale, WIDTH: tl.constexpr, HEADS: tl.constexpr, BLOCK: tl.constexpr
):
    """Attention of token ``last`` to the tokens 0..last, which lie as ``(tokens, rows, 3, width)``."""
    row, column = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK), tl.arange(0, WIDTH)
    live = (row < rows)[:, None]
    here = row[:, None].to(tl.int64) * (3 * WIDTH) + column[None, :]
    token = tl.cast(rows, tl.int64) * (3 * WIDTH)
    q = tl.load(qkv + last * token + here, mask=live, other=0.0).to(tl.float32) * scale
    highest = tl.full((BLOCK, HEADS), float("-inf"), tl.float32)
    total = tl.zeros((BLOCK, HEADS), tl.float32)
    sums = tl.zeros((BLOCK, HEADS, WIDTH // HEADS), tl.float32)
    for t in range(last + 1):
        k = tl.load(qkv + t * token + here + WIDTH, mask=live, other=0.0).to(tl.float32)
        v = tl.load(qkv + t * token + here + 2 * WIDTH, mask=live, other=0.0).to(tl.float32)
        score = tl.sum(tl.reshape(q * k, (BLOCK, HEADS, WIDTH // HEADS)), 2)
        higher = tl.maximum(highest, score)
        old, new = tl.exp(highest - higher), tl.exp(score - higher)
        sums = sums * old[:, :, None] + new[:, :, None] * tl.reshape(v, (BLOCK, HEADS, WIDTH // HEADS))
        total, highest = total * old + new, higher
    mean = tl.reshape(sums / total[:, :, None], (BLOCK, WIDTH))
    tl.store(mixed + row[:, None].to(tl.int64) * WIDTH + column[None, :], mean.to(tl.bfloat16), mask=live)
