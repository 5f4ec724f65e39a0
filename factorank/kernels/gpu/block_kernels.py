"""The parts of a transformer block as Triton kernels: matrix products with what comes before and after them.

Forward: the library's product to queries, keys and values, the attention of ``short_attention``, ``into_mlp``
(with its GELU), and ``close`` (the map back, dropout, the residual sum and the norm that comes next).
Backward: ``through_gelu``, ``through_attention``, and ``through_norm`` (the map, the norm, the residual sum,
and the dropout below). A tile holds whole rows of the stream, so that norms need no launch of their own.

Products are in bfloat16 with float32 sums; the stream, norms and softmax are in float32. Sums over tokens,
the gradients of gains and biases, are left as a row for each tile.
"""

import triton
import triton.language as tl

from factorank.kernels.gpu.attention import _probabilities, _tile


@triton.jit
def _normed(x, live, eps, WIDTH):  # type: ignore[no-untyped-def]
    """Rows without mean and with deviation 1, and the inverse of the deviation they had."""
    centred = tl.where(live[:, None], x - tl.sum(x, 1)[:, None] / WIDTH, 0.0)
    inverse = 1.0 / tl.sqrt(tl.sum(centred * centred, 1) / WIDTH + eps)
    return centred * inverse[:, None], inverse


@triton.jit
def _dropped(x, seed, token, column, WIDTH, KEEP):  # type: ignore[no-untyped-def]
    """Dropout by a hash of the seed and the place, so that the backward kernel draws the same."""
    bits = (token[:, None] * WIDTH + column[None, :]).to(tl.uint32) * 0x9E3779B1 + tl.load(seed).to(tl.uint32)
    bits = (bits ^ (bits >> 16)) * 0x85EBCA6B
    bits = (bits ^ (bits >> 13)) * 0xC2B2AE35
    bits = (bits ^ (bits >> 16)) >> 8
    return tl.where(bits < int(KEEP * 16777216), x * (1.0 / KEEP), 0.0)


@triton.jit
def _gauss(x):  # type: ignore[no-untyped-def]
    """The normal distribution function to 1e-7 (Abramowitz and Stegun, 7.1.26) and exp(-x^2 / 2).

    GELU and its slope need both, and erf would be the dearest part of the whole kernel.
    """
    bell = tl.exp(-0.5 * x * x)
    t = 1.0 / (1.0 + 0.23164189 * tl.abs(x))
    tail = t * (0.127414796 + t * (-0.142248368 + t * (0.710706871 + t * (-0.726576013 + t * 0.530702714))))
    tail = tail * bell
    return tl.where(x < 0, tail, 1.0 - tail), bell


@triton.jit
def _product(a, b, token, live, column, K, B_ROW, B_COLUMN, BLOCK, WIDTH, CHUNK):  # type: ignore[no-untyped-def]
    """``(BLOCK, WIDTH)``: rows of a, K wide, times b, whose strides are those of its rows and columns."""
    inner = tl.arange(0, CHUNK)
    total = tl.zeros((BLOCK, WIDTH), tl.float32)
    for first in range(0, K, CHUNK):
        left = tl.load(
            a + token[:, None].to(tl.int64) * K + (first + inner)[None, :], mask=live[:, None], other=0.0
        )
        total += tl.dot(left, tl.load(b + (first + inner)[:, None] * B_ROW + column[None, :] * B_COLUMN))
    return total


@triton.jit
def norm(  # type: ignore[no-untyped-def]
    x, normed, gain, shift, tokens, eps, WIDTH: tl.constexpr, BLOCK: tl.constexpr
):
    token = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    live, column = token < tokens, tl.arange(0, WIDTH)
    here = token[:, None].to(tl.int64) * WIDTH + column[None, :]
    plain, _ = _normed(tl.load(x + here, mask=live[:, None], other=0.0), live, eps, WIDTH)
    h = plain * tl.load(gain + column)[None, :] + tl.load(shift + column)[None, :]
    tl.store(normed + here, h.to(tl.bfloat16), mask=live[:, None])


@triton.jit
def into_mlp(  # type: ignore[no-untyped-def]
    h, y, w, b, tokens,
    WIDTH: tl.constexpr, OUT: tl.constexpr, BLOCK: tl.constexpr, COLUMNS: tl.constexpr, CHUNK: tl.constexpr,
):  # fmt: skip
    token = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    live, column = token < tokens, tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    made = _product(h, w, token, live, column, WIDTH, 1, WIDTH, BLOCK, COLUMNS, CHUNK)
    made += tl.load(b + column)[None, :]
    below, _ = _gauss(made)
    there = y + token[:, None].to(tl.int64) * OUT + column[None, :]
    tl.store(there, (made * below).to(tl.bfloat16), mask=live[:, None])


@triton.jit
def close(  # type: ignore[no-untyped-def]
    a, x, y, normed, w, b, gain, shift, seed, tokens, eps,
    WIDTH: tl.constexpr, K: tl.constexpr, BLOCK: tl.constexpr, CHUNK: tl.constexpr, KEEP: tl.constexpr,
    NORM: tl.constexpr,
):  # fmt: skip
    token = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    live, column = token < tokens, tl.arange(0, WIDTH)
    here = token[:, None].to(tl.int64) * WIDTH + column[None, :]
    change = _product(a, w, token, live, column, K, 1, K, BLOCK, WIDTH, CHUNK)
    change += tl.load(b + column)[None, :]
    if KEEP < 1:
        change = _dropped(change, seed, token, column, WIDTH, KEEP)
    stream = tl.load(x + here, mask=live[:, None], other=0.0) + change
    tl.store(y + here, stream, mask=live[:, None])
    if NORM:
        plain, _ = _normed(stream, live, eps, WIDTH)
        h = plain * tl.load(gain + column)[None, :] + tl.load(shift + column)[None, :]
        tl.store(normed + here, h.to(tl.bfloat16), mask=live[:, None])


@triton.jit
def begin_backward(  # type: ignore[no-untyped-def]
    of_y, of_change, sums, seed, tokens, WIDTH: tl.constexpr, BLOCK: tl.constexpr, KEEP: tl.constexpr
):
    token = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    live, column = token < tokens, tl.arange(0, WIDTH)
    here = token[:, None].to(tl.int64) * WIDTH + column[None, :]
    change = tl.load(of_y + here, mask=live[:, None], other=0.0)
    if KEEP < 1:
        change = _dropped(change, seed, token, column, WIDTH, KEEP)
    tl.store(of_change + here, change.to(tl.bfloat16), mask=live[:, None])
    tl.store(sums + tl.program_id(0) * (3 * WIDTH) + 2 * WIDTH + column, tl.sum(change, 0))


@triton.jit
def through_gelu(  # type: ignore[no-untyped-def]
    of_change, h, of_up, sums, w_up, b_up, w_down, tokens,
    WIDTH: tl.constexpr, HIDDEN: tl.constexpr, BLOCK: tl.constexpr, COLUMNS: tl.constexpr,
    CHUNK: tl.constexpr,
):  # fmt: skip
    token = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    live, column = token < tokens, tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    up = _product(h, w_up, token, live, column, WIDTH, 1, WIDTH, BLOCK, COLUMNS, CHUNK)
    up += tl.load(b_up + column)[None, :]
    below, bell = _gauss(up)
    slope = below + up * 0.3989422804014327 * bell
    back = _product(of_change, w_down, token, live, column, WIDTH, HIDDEN, 1, BLOCK, COLUMNS, CHUNK) * slope
    there = of_up + token[:, None].to(tl.int64) * HIDDEN + column[None, :]
    tl.store(there, back.to(tl.bfloat16), mask=live[:, None])
    tl.store(sums + tl.program_id(0) * HIDDEN + column, tl.sum(back, 0))


@triton.jit
def through_attention(  # type: ignore[no-untyped-def]
    of_change, qkv, of_qkv, sums, w_out, present, tokens, scale,
    N: tl.constexpr, WIDTH: tl.constexpr, HEAD: tl.constexpr, BLOCK: tl.constexpr, CHUNK: tl.constexpr,
    CAUSAL: tl.constexpr, MASKED: tl.constexpr,
):  # fmt: skip
    row, token, live, at = _tile(tokens, N, HEAD, BLOCK)
    column = tl.program_id(1) * HEAD + tl.arange(0, HEAD)
    at = token[:, None].to(tl.int64) * (3 * WIDTH) + at
    q = tl.load(qkv + at, mask=live[:, None], other=0.0)
    k = tl.load(qkv + at + WIDTH, mask=live[:, None], other=0.0)
    v = tl.load(qkv + at + 2 * WIDTH, mask=live[:, None], other=0.0)
    of_o = _product(of_change, w_out, token, live, column, WIDTH, WIDTH, 1, BLOCK, HEAD, CHUNK)
    of_o = of_o.to(tl.bfloat16)
    p = _probabilities(q, k, present, row, token, live, scale, N, CAUSAL, MASKED, "ieee")
    of_p = tl.dot(of_o, tl.trans(v))
    of_scores = (p * (of_p - tl.sum(p * of_p, 1)[:, None]) * scale).to(tl.bfloat16)
    of_q = tl.dot(of_scores, k)
    of_k = tl.dot(tl.trans(of_scores), q)
    of_v = tl.dot(tl.trans(p.to(tl.bfloat16)), of_o)
    tl.store(of_qkv + at, of_q.to(tl.bfloat16), mask=live[:, None])
    tl.store(of_qkv + at + WIDTH, of_k.to(tl.bfloat16), mask=live[:, None])
    tl.store(of_qkv + at + 2 * WIDTH, of_v.to(tl.bfloat16), mask=live[:, None])
    sums += tl.program_id(0) * (3 * WIDTH) + column
    tl.store(sums, tl.sum(of_q, 0))
    tl.store(sums + WIDTH, tl.sum(of_k, 0))
    tl.store(sums + 2 * WIDTH, tl.sum(of_v, 0))


@triton.jit
def through_norm(  # type: ignore[no-untyped-def]
    of_made, of_y, of_x, of_change, x, w, gain, seed, sums, sums_below, tokens, eps,
    WIDTH: tl.constexpr, K: tl.constexpr, BLOCK: tl.constexpr, CHUNK: tl.constexpr, KEEP: tl.constexpr,
    BELOW: tl.constexpr,
):  # fmt: skip
    token = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    live, column = token < tokens, tl.arange(0, WIDTH)
    here = token[:, None].to(tl.int64) * WIDTH + column[None, :]
    of_h = _product(of_made, w, token, live, column, K, WIDTH, 1, BLOCK, WIDTH, CHUNK)
    plain, inverse = _normed(tl.load(x + here, mask=live[:, None], other=0.0), live, eps, WIDTH)
    row = tl.program_id(0) * (3 * WIDTH) + column
    tl.store(sums + row, tl.sum(of_h * plain, 0))
    tl.store(sums + row + WIDTH, tl.sum(of_h, 0))
    of_plain = of_h * tl.load(gain + column)[None, :]
    mean, along = tl.sum(of_plain, 1)[:, None] / WIDTH, tl.sum(of_plain * plain, 1)[:, None] / WIDTH
    back = tl.load(of_y + here, mask=live[:, None], other=0.0)
    back += (of_plain - mean - plain * along) * inverse[:, None]
    tl.store(of_x + here, back, mask=live[:, None])
    if BELOW:
        if KEEP < 1:
            back = _dropped(back, seed, token, column, WIDTH, KEEP)
        tl.store(of_change + here, back.to(tl.bfloat16), mask=live[:, None])
        tl.store(sums_below + row + 2 * WIDTH, tl.sum(tl.where(live[:, None], back, 0.0), 0))
