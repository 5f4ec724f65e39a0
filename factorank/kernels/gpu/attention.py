"""Attention over short lists, on GPUs: one Triton kernel forward and one backward.

The lists of a batch lie one after the other, so that a tile of 16 to 64 tokens is several whole lists. Their
attention is that of the tile with everything outside the list of a query masked. The masked products cost
nothing, since a kernel for long lists would leave the tensor cores idle over ten tokens. A tile holds all
keys of its queries, so the backward pass computes the probabilities again and needs no other tile.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from factorank.kernels.derivatives import first_derivative_only


def attention(qkv: Tensor, present: Tensor | None, causal: bool) -> Tensor:
    """Self-attention of packed ``(rows, tokens, 3, heads, head width)``: ``(rows, tokens, width)``.

    ``present`` is bool ``(rows, tokens)``: the keys that may be attended to.
    """
    mixed: Tensor = torch.ops.factorank.short_attention(qkv, present, causal)
    return mixed


@triton.jit
def probabilities(q, k, present, row, token, live, scale, N, CAUSAL, MASKED, PRECISION):  # type: ignore[no-untyped-def]
    """The attention of a tile: a row without an allowed key is zero."""
    scores = tl.dot(q, tl.trans(k), input_precision=PRECISION) * scale
    allowed = (row // N)[:, None] == (row // N)[None, :]
    allowed &= live[None, :]
    if CAUSAL:
        allowed &= row[:, None] >= row[None, :]
    if MASKED:
        allowed &= (tl.load(present + token, mask=live, other=0) != 0)[None, :]
    scores = tl.where(allowed, scores, float("-inf"))
    highest = tl.max(scores, 1)
    weights = tl.exp(scores - tl.where(highest == float("-inf"), 0.0, highest)[:, None])
    total = tl.sum(weights, 1)
    return weights / tl.where(total == 0.0, 1.0, total)[:, None]


@triton.jit
def tile_of_lists(tokens, N, HEAD, BLOCK):  # type: ignore[no-untyped-def]
    """The rows of a tile, their tokens, which of them exist, and the columns of a head."""
    row = tl.arange(0, BLOCK)
    whole = BLOCK // N * N
    token = tl.program_id(0) * whole + row
    live = (row < whole) & (token < tokens)
    return row, token, live, tl.program_id(1) * HEAD + tl.arange(0, HEAD)[None, :]


@triton.jit
def attention_forward(  # type: ignore[no-untyped-def]
    qkv, present, mixed, tokens, scale,
    N: tl.constexpr, WIDTH: tl.constexpr, HEAD: tl.constexpr, BLOCK: tl.constexpr,
    CAUSAL: tl.constexpr, MASKED: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    row, token, live, column = tile_of_lists(tokens, N, HEAD, BLOCK)
    at_qkv = qkv + token[:, None].to(tl.int64) * (3 * WIDTH) + column
    q = tl.load(at_qkv, mask=live[:, None], other=0.0)
    k = tl.load(at_qkv + WIDTH, mask=live[:, None], other=0.0)
    v = tl.load(at_qkv + 2 * WIDTH, mask=live[:, None], other=0.0)
    p = probabilities(q, k, present, row, token, live, scale, N, CAUSAL, MASKED, PRECISION)
    sums = tl.dot(p.to(v.dtype), v, input_precision=PRECISION)
    tl.store(mixed + token[:, None].to(tl.int64) * WIDTH + column, sums.to(v.dtype), mask=live[:, None])


@triton.jit
def attention_backward(  # type: ignore[no-untyped-def]
    grad_mixed, qkv, present, grad_qkv, tokens, scale,
    N: tl.constexpr, WIDTH: tl.constexpr, HEAD: tl.constexpr, BLOCK: tl.constexpr,
    CAUSAL: tl.constexpr, MASKED: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    row, token, live, column = tile_of_lists(tokens, N, HEAD, BLOCK)
    at = token[:, None].to(tl.int64)
    at_qkv = qkv + at * (3 * WIDTH) + column
    q = tl.load(at_qkv, mask=live[:, None], other=0.0)
    k = tl.load(at_qkv + WIDTH, mask=live[:, None], other=0.0)
    v = tl.load(at_qkv + 2 * WIDTH, mask=live[:, None], other=0.0)
    g = tl.load(grad_mixed + at * WIDTH + column, mask=live[:, None], other=0.0)
    p = probabilities(q, k, present, row, token, live, scale, N, CAUSAL, MASKED, PRECISION)
    grad_p = tl.dot(g, tl.trans(v), input_precision=PRECISION)
    grad_scores = p * (grad_p - tl.sum(p * grad_p, 1)[:, None]) * scale
    narrow = grad_scores.to(q.dtype)
    target = grad_qkv + at * (3 * WIDTH) + column
    grad_q = tl.dot(narrow, k, input_precision=PRECISION)
    grad_k = tl.dot(tl.trans(narrow), q, input_precision=PRECISION)
    grad_v = tl.dot(tl.trans(p.to(g.dtype)), g, input_precision=PRECISION)
    tl.store(target, grad_q.to(q.dtype), mask=live[:, None])
    tl.store(target + WIDTH, grad_k.to(q.dtype), mask=live[:, None])
    tl.store(target + 2 * WIDTH, grad_v.to(q.dtype), mask=live[:, None])


def _launch(
    kernel: Any, inputs: tuple[Tensor, ...], out: Tensor, qkv: Tensor, present: Tensor | None, causal: bool
) -> None:
    rows, n, _, heads, head = qkv.shape
    block = 16 if n <= 5 else 32 if n <= 8 else 64  # few tokens of a tile stay unused
    tiles = triton.cdiv(rows, block // n)
    precision = "tf32" if torch.backends.cuda.matmul.allow_tf32 else "ieee"
    kernel[(tiles, heads)](
        *inputs, qkv if present is None else present, out, rows * n, head**-0.5, N=n, WIDTH=heads * head,
        HEAD=head, BLOCK=block, CAUSAL=causal, MASKED=present is not None, PRECISION=precision,
    )  # fmt: skip


def _forward(qkv: Tensor, present: Tensor | None, causal: bool) -> Tensor:
    qkv = qkv.contiguous()
    mixed = qkv.new_empty(*qkv.shape[:2], qkv.shape[3] * qkv.shape[4])
    if qkv.numel():
        _launch(attention_forward, (qkv,), mixed, qkv, present, causal)
    return mixed


def _backward(grad_mixed: Tensor, qkv: Tensor, present: Tensor | None, causal: bool) -> Tensor:
    grad_mixed, qkv = grad_mixed.contiguous(), qkv.contiguous()
    grad_qkv = torch.empty_like(qkv)
    if qkv.numel():
        _launch(attention_backward, (grad_mixed, qkv), grad_qkv, qkv, present, causal)
    return grad_qkv


_library = torch.library.Library("factorank", "FRAGMENT")
_library.define("short_attention(Tensor qkv, Tensor? present, bool causal) -> Tensor")
_library.define(
    "short_attention_backward(Tensor grad_mixed, Tensor qkv, Tensor? present, bool causal) -> Tensor"
)
_library.impl("short_attention", _forward, "CompositeExplicitAutograd")
_library.impl("short_attention_backward", _backward, "CompositeExplicitAutograd")
torch.library.register_fake(
    "factorank::short_attention",
    lambda qkv, present, causal: qkv.new_empty(*qkv.shape[:2], qkv.shape[3] * qkv.shape[4]),
    lib=_library,
)
torch.library.register_fake(
    "factorank::short_attention_backward",
    lambda grad_mixed, qkv, present, causal: torch.empty_like(qkv, memory_format=torch.contiguous_format),
    lib=_library,
)


def _remember(ctx: Any, inputs: tuple[Tensor, Tensor | None, bool], output: Tensor) -> None:
    qkv, present, ctx.causal = inputs
    ctx.save_for_backward(qkv, present)


@first_derivative_only
def _gradients(ctx: Any, grad_mixed: Tensor) -> tuple[Tensor, None, None]:
    qkv, present = ctx.saved_tensors
    return torch.ops.factorank.short_attention_backward(grad_mixed, qkv, present, ctx.causal), None, None


torch.library.register_autograd(
    "factorank::short_attention", _gradients, setup_context=_remember, lib=_library
)
