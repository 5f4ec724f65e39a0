"""Whole halves of a transformer block as Triton kernels: attention or MLP, each one launch in each direction.

A tile of 64 tokens is a residual stream's worth of one half: what lies between its norm and the next one
stays in registers, and is stored only where the gradients of the weights read it. A tile's row of sums over
tokens holds the gradients of gain and shift, of the bias that the half below ends with, and of the half's
first bias. Attention needs whole lists
in a tile, so that these kernels are for lengths that fill it well. They round where ``block_kernels`` do.
"""

import triton
import triton.language as tl

from factorank.kernels.gpu.attention import probabilities, tile_of_lists
from factorank.kernels.gpu.block_kernels import gauss, onto_stream, residual_norm_backward, tile


@triton.jit
def mlp(  # type: ignore[no-untyped-def]
    h, x, y, active, normed, w_up, b_up, w_down, b_down, gain, shift, seed, tokens, eps,
    WIDTH: tl.constexpr, HIDDEN: tl.constexpr, BLOCK: tl.constexpr, CHUNK: tl.constexpr, KEEP: tl.constexpr,
    NORM: tl.constexpr,
):  # fmt: skip
    token, live, column, here = tile(tokens, WIDTH, BLOCK)
    left = tl.load(h + here, mask=live[:, None], other=0.0)
    change = tl.zeros((BLOCK, WIDTH), tl.float32)
    for first in range(0, HIDDEN, CHUNK):
        hidden = first + tl.arange(0, CHUNK)
        up = tl.dot(left, tl.load(w_up + hidden[None, :] * WIDTH + column[:, None]))
        up += tl.load(b_up + hidden)[None, :]
        below, _ = gauss(up)
        narrow = (up * below).to(tl.bfloat16)
        target = active + token[:, None].to(tl.int64) * HIDDEN + hidden[None, :]
        tl.store(target, narrow, mask=live[:, None])
        change = tl.dot(narrow, tl.load(w_down + column[None, :] * HIDDEN + hidden[:, None]), change)
    onto_stream(
        change, x, y, normed, b_down, gain, shift, seed, token, live, column, here, eps, WIDTH, KEEP, NORM
    )  # fmt: skip


@triton.jit
def mlp_backward(  # type: ignore[no-untyped-def]
    grad_change, h, grad_up, w_up, b_up, w_down,
    grad_y, grad_x, grad_below, x, gain, seed, sums, tokens, eps,
    WIDTH: tl.constexpr, HIDDEN: tl.constexpr, BLOCK: tl.constexpr, CHUNK: tl.constexpr, KEEP: tl.constexpr,
    BELOW: tl.constexpr,
):  # fmt: skip
    token, live, column, here = tile(tokens, WIDTH, BLOCK)
    grad = tl.load(grad_change + here, mask=live[:, None], other=0.0)
    left = tl.load(h + here, mask=live[:, None], other=0.0)
    grad_h, sums = tl.zeros((BLOCK, WIDTH), tl.float32), sums + tl.program_id(0) * (3 * WIDTH + HIDDEN)
    for first in range(0, HIDDEN, CHUNK):
        hidden = first + tl.arange(0, CHUNK)
        w = tl.load(w_up + hidden[:, None] * WIDTH + column[None, :])
        up = tl.dot(left, tl.trans(w)) + tl.load(b_up + hidden)[None, :]
        below, bell = gauss(up)
        slope = below + up * 0.3989422804014327 * bell
        wide = tl.dot(grad, tl.load(w_down + column[:, None] * HIDDEN + hidden[None, :])) * slope
        narrow = wide.to(tl.bfloat16)
        target = grad_up + token[:, None].to(tl.int64) * HIDDEN + hidden[None, :]
        tl.store(target, narrow, mask=live[:, None])
        tl.store(sums + 3 * WIDTH + hidden, tl.sum(wide, 0))
        grad_h = tl.dot(narrow, w, grad_h)
    residual_norm_backward(
        grad_h, grad_y, grad_x, grad_below, x, gain, seed, sums,
        token, live, column, here, eps, WIDTH, KEEP, BELOW,
    )  # fmt: skip


@triton.jit
def attention_half(  # type: ignore[no-untyped-def]
    h, x, y, qkv, mixed, normed, w_qkv, b_qkv, w_out, b_out, gain, shift, seed, present, tokens, scale, eps,
    N: tl.constexpr, WIDTH: tl.constexpr, HEAD: tl.constexpr, BLOCK: tl.constexpr, KEEP: tl.constexpr,
    CAUSAL: tl.constexpr, MASKED: tl.constexpr, NORM: tl.constexpr,
):  # fmt: skip
    row, token, live, _ = tile_of_lists(tokens, N, HEAD, BLOCK)
    column, long = tl.arange(0, WIDTH), token[:, None].to(tl.int64)
    here = long * WIDTH + column[None, :]
    left = tl.load(h + here, mask=live[:, None], other=0.0)
    change = tl.zeros((BLOCK, WIDTH), tl.float32)
    for first in range(0, WIDTH, HEAD):
        at = first + tl.arange(0, HEAD)
        w = w_qkv + at[None, :] * WIDTH + column[:, None]
        q = tl.dot(left, tl.load(w)) + tl.load(b_qkv + at)[None, :]
        k = tl.dot(left, tl.load(w + WIDTH * WIDTH)) + tl.load(b_qkv + WIDTH + at)[None, :]
        v = tl.dot(left, tl.load(w + 2 * WIDTH * WIDTH)) + tl.load(b_qkv + 2 * WIDTH + at)[None, :]
        q, k, v = q.to(tl.bfloat16), k.to(tl.bfloat16), v.to(tl.bfloat16)
        target = qkv + long * (3 * WIDTH) + at[None, :]
        tl.store(target, q, mask=live[:, None])
        tl.store(target + WIDTH, k, mask=live[:, None])
        tl.store(target + 2 * WIDTH, v, mask=live[:, None])
        p = probabilities(q, k, present, row, token, live, scale, N, CAUSAL, MASKED, "ieee")
        narrow = tl.dot(p.to(tl.bfloat16), v).to(tl.bfloat16)
        tl.store(mixed + long * WIDTH + at[None, :], narrow, mask=live[:, None])
        change = tl.dot(narrow, tl.load(w_out + column[None, :] * WIDTH + at[:, None]), change)
    onto_stream(
        change, x, y, normed, b_out, gain, shift, seed, token, live, column, here, eps, WIDTH, KEEP, NORM
    )  # fmt: skip


@triton.jit
def attention_half_backward(  # type: ignore[no-untyped-def]
    grad_change, qkv, grad_qkv, w_out, w_qkv, present,
    grad_y, grad_x, grad_below, x, gain, seed, sums, tokens, scale, eps,
    N: tl.constexpr, WIDTH: tl.constexpr, HEAD: tl.constexpr, BLOCK: tl.constexpr, KEEP: tl.constexpr,
    CAUSAL: tl.constexpr, MASKED: tl.constexpr, BELOW: tl.constexpr,
):  # fmt: skip
    row, token, live, _ = tile_of_lists(tokens, N, HEAD, BLOCK)
    column, long = tl.arange(0, WIDTH), token[:, None].to(tl.int64)
    here = long * WIDTH + column[None, :]
    grad = tl.load(grad_change + here, mask=live[:, None], other=0.0)
    grad_h, sums = tl.zeros((BLOCK, WIDTH), tl.float32), sums + tl.program_id(0) * (6 * WIDTH)
    for first in range(0, WIDTH, HEAD):
        at = first + tl.arange(0, HEAD)
        source = qkv + long * (3 * WIDTH) + at[None, :]
        q = tl.load(source, mask=live[:, None], other=0.0)
        k = tl.load(source + WIDTH, mask=live[:, None], other=0.0)
        v = tl.load(source + 2 * WIDTH, mask=live[:, None], other=0.0)
        grad_mixed = tl.dot(grad, tl.load(w_out + column[:, None] * WIDTH + at[None, :])).to(tl.bfloat16)
        p = probabilities(q, k, present, row, token, live, scale, N, CAUSAL, MASKED, "ieee")
        grad_p = tl.dot(grad_mixed, tl.trans(v))
        grad_scores = (p * (grad_p - tl.sum(p * grad_p, 1)[:, None]) * scale).to(tl.bfloat16)
        grad_q = tl.dot(grad_scores, k)
        grad_k = tl.dot(tl.trans(grad_scores), q)
        grad_v = tl.dot(tl.trans(p.to(tl.bfloat16)), grad_mixed)
        tl.store(sums + 3 * WIDTH + at, tl.sum(grad_q, 0))
        tl.store(sums + 4 * WIDTH + at, tl.sum(grad_k, 0))
        tl.store(sums + 5 * WIDTH + at, tl.sum(grad_v, 0))
        grad_q, grad_k, grad_v = grad_q.to(tl.bfloat16), grad_k.to(tl.bfloat16), grad_v.to(tl.bfloat16)
        target = grad_qkv + long * (3 * WIDTH) + at[None, :]
        tl.store(target, grad_q, mask=live[:, None])
        tl.store(target + WIDTH, grad_k, mask=live[:, None])
        tl.store(target + 2 * WIDTH, grad_v, mask=live[:, None])
        w = w_qkv + at[:, None] * WIDTH + column[None, :]
        grad_h = tl.dot(grad_q, tl.load(w), grad_h)
        grad_h = tl.dot(grad_k, tl.load(w + WIDTH * WIDTH), grad_h)
        grad_h = tl.dot(grad_v, tl.load(w + 2 * WIDTH * WIDTH), grad_h)
    residual_norm_backward(
        grad_h, grad_y, grad_x, grad_below, x, gain, seed, sums,
        token, live, column, here, eps, WIDTH, KEEP, BELOW,
    )  # fmt: skip
