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

from factorank.kernels.cache import Cache
from factorank.kernels.gpu import blocks as fused

ROWS = 16
"""Rows of a program of the attention."""


class FusedCache(Cache):
    """Queries, keys and values of all blocks: room for ``capacity`` tokens, which come one at a time."""

    def __init__(self, parameters: Sequence[Tensor], heads: int, capacity: int, eps: float = 1e-5) -> None:
        self.parameters, self.heads, self.capacity, self.eps = list(parameters), heads, capacity, eps
        self._narrow = fused.narrowed(self.parameters)[1]
        self._qkv: Tensor | None = None

    def advance(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        assert mask is None
        rows, _, width = x.shape
        depth, position = len(self.parameters) // fused.PER_BLOCK, self.length
        narrow = functools.partial(torch.empty, dtype=torch.bfloat16, device=x.device)
        if self._qkv is None:
            self._qkv = narrow((depth, self.capacity, rows, 3 * width))
        self.length += 1
        if rows == 0:
            return x
        stream, other = (
            x.reshape(rows, width).float().contiguous(),
            torch.empty((rows, width), device=x.device),
        )
        normed, mixed = narrow((rows, width)), narrow((rows, width))
        active = narrow((rows, 4 * width))
        now = fused.Launch(x, rows, self.heads, False, 1.0, self.eps, None)
        now.norm(stream, normed, *self.parameters[:2])
        for block in range(depth):
            _, _, _, _, _, b_out, gain, shift, _, b_up, _, b_down = fused.of_block(self.parameters, block)
            w_in, w_out, w_up, w_down, b_in = self._narrow[fused.NARROW * block : fused.NARROW * (block + 1)]
            seen = self._qkv[block]
            torch.addmm(b_in, normed, w_in.T, out=seen[position])
            _attend_last[(triton.cdiv(rows, ROWS),)](
                seen, mixed, rows, position, (width // self.heads) ** -0.5, WIDTH=width, HEADS=self.heads,
                BLOCK=ROWS,
            )  # fmt: skip
            now.close(mixed, stream, other, w_out, b_out, None, (normed, gain, shift))
            now.into_mlp(normed, active, w_up, b_up)
            following = None
            if block < depth - 1:
                gain, shift = fused.of_block(self.parameters, block + 1)[:2]
                following = (normed, gain, shift)
            stream = torch.empty_like(other)
            now.close(active, other, stream, w_down, b_down, None, following)
        return stream.view(rows, 1, width)

    def select(self, rows: Tensor) -> None:
        if self._qkv is not None:
            self._qkv = self._qkv[:, :, rows]


@triton.jit
def _attend_last(  # type: ignore[no-untyped-def]
    qkv, mixed, rows, last, scale, WIDTH: tl.constexpr, HEADS: tl.constexpr, BLOCK: tl.constexpr
):
    """Attention of token ``last`` to the tokens 0..last, whose values lie ``(tokens, rows, 3, width)``."""
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
    made = tl.reshape(sums / total[:, :, None], (BLOCK, WIDTH))
    tl.store(mixed + row[:, None].to(tl.int64) * WIDTH + column[None, :], made.to(tl.bfloat16), mask=live)
