"""Attention over short lists, on GPUs: one Triton kernel forward and one backward.

The lists of a batch lie one after the other, so that a tile of 16 to 64 tokens is several whole lists: their
attention is that of the tile with everything outside the list of a query masked. The tensor cores do the
masked products for nothing, where a kernel for long lists would leave them idle over ten tokens. A tile holds
all keys of its queries, so the backward pass forms the probabilities again and needs no other tile.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor


def attention(qkv: Tensor, present: Tensor | None, causal: bool) -> Tensor:
    """Self-attention of packed ``(rows, tokens, 3, heads, head width)``: ``(rows, tokens, width)``.

    ``present`` is bool ``(rows, tokens)``: the tokens that may be looked at.
    """
    mixed: Tensor = torch.ops.factorank.short_attention(qkv, present, causal)
    return mixed


@triton.jit
def _probabilities(q, k, present, row, token, live, scale, N, CAUSAL, MASKED, PRECISION):  # type: ignore[no-untyped-def]
    scores = tl.dot(q, tl.trans(k), input_precision=PRECISION) * scale
    seen = (row // N)[:, None] == (row // N)[None, :]
    seen &= live[None, :]
    if CAUSAL:
        seen &= row[:, None] >= row[None, :]
    if MASKED:
        seen &= (tl.load(present + token, mask=live, other=0) != 0)[None, :]
    scores = tl.where(seen, scores, float("-inf"))
    highest = tl.max(scores, 1)
    weights = tl.exp(scores - tl.where(highest == float("-inf"), 0.0, highest)[:, None])
    total = tl.sum(weights, 1)
    return weights / tl.where(total == 0.0, 1.0, total)[:, None]


@triton.jit
def _tile(tokens, N, HEAD, BLOCK):  # type: ignore[no-untyped-def]
    """The rows of a tile, their tokens, which of them there are, and where their numbers begin."""
    row = tl.arange(0, BLOCK)
    whole = BLOCK // N * N
    token = tl.program_id(0) * whole + row
    live = (row < whole) & (token < tokens)
    return row, token, live, tl.program_id(1) * HEAD + tl.arange(0, HEAD)[None, :]


@triton.jit
def _forward(  # type: ignore[no-untyped-def]
    qkv, present, out, tokens, scale,
    N: tl.constexpr, WIDTH: tl.constexpr, HEAD: tl.constexpr, BLOCK: tl.constexpr,
    CAUSAL: tl.constexpr, MASKED: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    row, token, live, column = _tile(tokens, N, HEAD, BLOCK)
    place = qkv + token[:, None].to(tl.int64) * (3 * WIDTH) + column
    q = tl.load(place, mask=live[:, None], other=0.0)
    k = tl.load(place + WIDTH, mask=live[:, None], other=0.0)
    v = tl.load(place + 2 * WIDTH, mask=live[:, None], other=0.0)
    p = _probabilities(q, k, present, row, token, live, scale, N, CAUSAL, MASKED, PRECISION)
    mixed = tl.dot(p.to(v.dtype), v, input_precision=PRECISION)
    tl.store(out + token[:, None].to(tl.int64) * WIDTH + column, mixed.to(v.dtype), mask=live[:, None])


@triton.jit
def _backward(  # type: ignore[no-untyped-def]
    gradient, qkv, present, out, tokens, scale,
    N: tl.constexpr, WIDTH: tl.constexpr, HEAD: tl.constexpr, BLOCK: tl.constexpr,
    CAUSAL: tl.constexpr, MASKED: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    row, token, live, column = _tile(tokens, N, HEAD, BLOCK)
    at = token[:, None].to(tl.int64)
    place = qkv + at * (3 * WIDTH) + column
    q = tl.load(place, mask=live[:, None], other=0.0)
    k = tl.load(place + WIDTH, mask=live[:, None], other=0.0)
    v = tl.load(place + 2 * WIDTH, mask=live[:, None], other=0.0)
    g = tl.load(gradient + at * WIDTH + column, mask=live[:, None], other=0.0)
    p = _probabilities(q, k, present, row, token, live, scale, N, CAUSAL, MASKED, PRECISION)
    of_p = tl.dot(g, tl.trans(v), input_precision=PRECISION)
    of_scores = p * (of_p - tl.sum(p * of_p, 1)[:, None]) * scale
    narrow = of_scores.to(q.dtype)
    there = out + at * (3 * WIDTH) + column
    of_q = tl.dot(narrow, k, input_precision=PRECISION)
    of_k = tl.dot(tl.trans(narrow), q, input_precision=PRECISION)
    of_v = tl.dot(tl.trans(p.to(g.dtype)), g, input_precision=PRECISION)
    tl.store(there, of_q.to(q.dtype), mask=live[:, None])
    tl.store(there + WIDTH, of_k.to(q.dtype), mask=live[:, None])
    tl.store(there + 2 * WIDTH, of_v.to(q.dtype), mask=live[:, None])


def _launch(
    kernel: Any, inputs: tuple[Tensor, ...], out: Tensor, qkv: Tensor, present: Tensor | None, causal: bool
) -> None:
    rows, n, _, heads, head = qkv.shape
    block = 16 if n <= 5 else 32 if n <= 8 else 64  # few tokens of a tile are left over
    tiles = triton.cdiv(rows, block // n)
    precision = "tf32" if torch.backends.cuda.matmul.allow_tf32 else "ieee"
    kernel[(tiles, heads)](
        *inputs,
        qkv if present is None else present,
        out,
        rows * n,
        head**-0.5,
        N=n,
        WIDTH=heads * head,
        HEAD=head,
        BLOCK=block,
        CAUSAL=causal,
        MASKED=present is not None,
        PRECISION=precision,
    )


def _run_forward(qkv: Tensor, present: Tensor | None, causal: bool) -> Tensor:
    qkv = qkv.contiguous()
    out = qkv.new_empty(*qkv.shape[:2], qkv.shape[3] * qkv.shape[4])
    if qkv.numel():
        _launch(_forward, (qkv,), out, qkv, present, causal)
    return out


def _run_backward(gradient: Tensor, qkv: Tensor, present: Tensor | None, causal: bool) -> Tensor:
    gradient, qkv = gradient.contiguous(), qkv.contiguous()
    out = torch.empty_like(qkv)
    if qkv.numel():
        _launch(_backward, (gradient, qkv), out, qkv, present, causal)
    return out


_library = torch.library.Library("factorank", "FRAGMENT")
_library.define("short_attention(Tensor qkv, Tensor? present, bool causal) -> Tensor")
_library.define(
    "short_attention_backward(Tensor gradient, Tensor qkv, Tensor? present, bool causal) -> Tensor"
)
_library.impl("short_attention", _run_forward, "CompositeExplicitAutograd")
_library.impl("short_attention_backward", _run_backward, "CompositeExplicitAutograd")
torch.library.register_fake(
    "factorank::short_attention",
    lambda qkv, present, causal: qkv.new_empty(*qkv.shape[:2], qkv.shape[3] * qkv.shape[4]),
    lib=_library,
)
torch.library.register_fake(
    "factorank::short_attention_backward",
    lambda gradient, qkv, present, causal: torch.empty_like(qkv, memory_format=torch.contiguous_format),
    lib=_library,
)


def _remember(ctx: Any, inputs: tuple[Tensor, Tensor | None, bool], output: Tensor) -> None:
    qkv, present, ctx.causal = inputs
    ctx.save_for_backward(qkv, present)


def _gradients(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
    qkv, present = ctx.saved_tensors
    return torch.ops.factorank.short_attention_backward(gradient, qkv, present, ctx.causal), None, None


torch.library.register_autograd(
    "factorank::short_attention", _gradients, setup_context=_remember, lib=_library
)
