"""The parts of a transformer block as Triton kernels: matrix products with what comes before and after them.

Forward: torch's product to queries, keys and values, the kernel of ``gpu.attention``, ``up_gelu`` (a product
and the GELU), and ``add_to_stream`` (a product down to the stream, dropout, the residual sum and the next
norm). Backward: ``gelu_backward``, ``block_attention_backward``, and ``norm_backward`` (a product, the norm,
the residual sum, and the dropout below). A tile holds whole rows of the stream, so that norms need no launch
of their own.

Products are in bfloat16 with float32 sums; the stream, norms and softmax are in float32. Sums over tokens,
the gradients of gains and biases, are stored as a row for each tile.
"""

import triton
import triton.language as tl

from factorank.kernels.gpu.attention import probabilities, tile_of_lists


@triton.jit
def _normed(x, live, eps, WIDTH):  # type: ignore[no-untyped-def]
    """Rows brought to mean 0 and deviation 1, and the inverse of their deviation."""
    centred = tl.where(live[:, None], x - tl.sum(x, 1)[:, None] / WIDTH, 0.0)
    inverse = 1.0 / tl.sqrt(tl.sum(centred * centred, 1) / WIDTH + eps)
    return centred * inverse[:, None], inverse


@triton.jit
def _dropped(x, seed, token, column, WIDTH, KEEP):  # type: ignore[no-untyped-def]
    """Dropout by a hash of the seed and the position, so that the backward kernel draws the same."""
    bits = (token[:, None] * WIDTH + column[None, :]).to(tl.uint32) * 0x9E3779B1 + tl.load(seed).to(tl.uint32)
    bits = (bits ^ (bits >> 16)) * 0x85EBCA6B
    bits = (bits ^ (bits >> 13)) * 0xC2B2AE35
    bits = (bits ^ (bits >> 16)) >> 8
    return tl.where(bits < int(KEEP * 16777216), x * (1.0 / KEEP), 0.0)


@triton.jit
def _gauss(x):  # type: ignore[no-untyped-def]
    """The normal distribution function to 1e-7 (Abramowitz and Stegun, 7.1.26) and exp(-x^2 / 2).

    GELU and its slope need both, and erf would take longer than the rest of the kernel.
    """
    bell = tl.exp(-0.5 * x * x)
    t = 1.0 / (1.0 + 0.23164189 * tl.abs(x))
    tail = t * (0.127414796 + t * (-0.142248368 + t * (0.710706871 + t * (-0.726576013 + t * 0.530702714))))
    tail = tail * bell
    return tl.where(x < 0, tail, 1.0 - tail), bell


@triton.jit
def _tile(tokens, WIDTH, BLOCK):  # type: ignore[no-untyped-def]
    """The tokens of a tile, which of them exist, the columns of the stream, and where all that lies."""
    token, column = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK), tl.arange(0, WIDTH)
    return token, token < tokens, column, token[:, None].to(tl.int64) * WIDTH + column[None, :]


@triton.jit
def _norm_to(stream, normed, gain, shift, live, column, here, eps, WIDTH):  # type: ignore[no-untyped-def]
    """Stores the norm of a tile of the stream."""
    plain, _ = _normed(stream, live, eps, WIDTH)
    h = plain * tl.load(gain + column)[None, :] + tl.load(shift + column)[None, :]
    tl.store(normed + here, h.to(tl.bfloat16), mask=live[:, None])


@triton.jit
def _product(a, b, token, live, column, K, B_ROW, B_COLUMN, BLOCK, WIDTH, CHUNK):  # type: ignore[no-untyped-def]
    """``(BLOCK, WIDTH)``: rows of a, which are K wide, times b with the strides ``B_ROW, B_COLUMN``."""
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
    _, live, column, here = _tile(tokens, WIDTH, BLOCK)
    stream = tl.load(x + here, mask=live[:, None], other=0.0)
    _norm_to(stream, normed, gain, shift, live, column, here, eps, WIDTH)


@triton.jit
def up_gelu(  # type: ignore[no-untyped-def]
    h, y, w, b, tokens,
    WIDTH: tl.constexpr, OUT: tl.constexpr, BLOCK: tl.constexpr, COLUMNS: tl.constexpr, CHUNK: tl.constexpr,
):  # fmt: skip
    token = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    live, column = token < tokens, tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    up = _product(h, w, token, live, column, WIDTH, 1, WIDTH, BLOCK, COLUMNS, CHUNK)
    up += tl.load(b + column)[None, :]
    below, _ = _gauss(up)
    target = y + token[:, None].to(tl.int64) * OUT + column[None, :]
    tl.store(target, (up * below).to(tl.bfloat16), mask=live[:, None])


@triton.jit
def add_to_stream(  # type: ignore[no-untyped-def]
    a, x, y, normed, w, b, gain, shift, seed, tokens, eps,
    WIDTH: tl.constexpr, K: tl.constexpr, BLOCK: tl.constexpr, CHUNK: tl.constexpr, KEEP: tl.constexpr,
    NORM: tl.constexpr,
):  # fmt: skip
    token, live, column, here = _tile(tokens, WIDTH, BLOCK)
    change = _product(a, w, token, live, column, K, 1, K, BLOCK, WIDTH, CHUNK)
    change += tl.load(b + column)[None, :]
    if KEEP < 1:
        change = _dropped(change, seed, token, column, WIDTH, KEEP)
    stream = tl.load(x + here, mask=live[:, None], other=0.0) + change
    tl.store(y + here, stream, mask=live[:, None])
    if NORM:
        _norm_to(stream, normed, gain, shift, live, column, here, eps, WIDTH)


@triton.jit
def dropout_backward(  # type: ignore[no-untyped-def]
    grad_y, grad_change, sums, seed, tokens, WIDTH: tl.constexpr, BLOCK: tl.constexpr, KEEP: tl.constexpr
):
    token, live, column, here = _tile(tokens, WIDTH, BLOCK)
    change = tl.load(grad_y + here, mask=live[:, None], other=0.0)
    if KEEP < 1:
        change = _dropped(change, seed, token, column, WIDTH, KEEP)
    tl.store(grad_change + here, change.to(tl.bfloat16), mask=live[:, None])
    tl.store(sums + tl.program_id(0) * (3 * WIDTH) + 2 * WIDTH + column, tl.sum(change, 0))


@triton.jit
def gelu_backward(  # type: ignore[no-untyped-def]
    grad_change, h, grad_up, sums, w_up, b_up, w_down, tokens,
    WIDTH: tl.constexpr, HIDDEN: tl.constexpr, BLOCK: tl.constexpr, COLUMNS: tl.constexpr,
    CHUNK: tl.constexpr,
):  # fmt: skip
    token = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    live, column = token < tokens, tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    up = _product(h, w_up, token, live, column, WIDTH, 1, WIDTH, BLOCK, COLUMNS, CHUNK)
    up += tl.load(b_up + column)[None, :]
    below, bell = _gauss(up)
    slope = below + up * 0.3989422804014327 * bell
    grad = _product(grad_change, w_down, token, live, column, WIDTH, HIDDEN, 1, BLOCK, COLUMNS, CHUNK) * slope
    target = grad_up + token[:, None].to(tl.int64) * HIDDEN + column[None, :]
    tl.store(target, grad.to(tl.bfloat16), mask=live[:, None])
    tl.store(sums + tl.program_id(0) * HIDDEN + column, tl.sum(grad, 0))


@triton.jit
def block_attention_backward(  # type: ignore[no-untyped-def]
    grad_change, qkv, grad_qkv, sums, w_out, present, tokens, scale,
    N: tl.constexpr, WIDTH: tl.constexpr, HEAD: tl.constexpr, BLOCK: tl.constexpr, CHUNK: tl.constexpr,
    CAUSAL: tl.constexpr, MASKED: tl.constexpr,
):  # fmt: skip
    row, token, live, at = tile_of_lists(tokens, N, HEAD, BLOCK)
    column = tl.program_id(1) * HEAD + tl.arange(0, HEAD)
    at = token[:, None].to(tl.int64) * (3 * WIDTH) + at
    q = tl.load(qkv + at, mask=live[:, None], other=0.0)
    k = tl.load(qkv + at + WIDTH, mask=live[:, None], other=0.0)
    v = tl.load(qkv + at + 2 * WIDTH, mask=live[:, None], other=0.0)
    grad_mixed = _product(grad_change, w_out, token, live, column, WIDTH, WIDTH, 1, BLOCK, HEAD, CHUNK)
    grad_mixed = grad_mixed.to(tl.bfloat16)
    p = probabilities(q, k, present, row, token, live, scale, N, CAUSAL, MASKED, "ieee")
    grad_p = tl.dot(grad_mixed, tl.trans(v))
    grad_scores = (p * (grad_p - tl.sum(p * grad_p, 1)[:, None]) * scale).to(tl.bfloat16)
    grad_q = tl.dot(grad_scores, k)
    grad_k = tl.dot(tl.trans(grad_scores), q)
    grad_v = tl.dot(tl.trans(p.to(tl.bfloat16)), grad_mixed)
    tl.store(grad_qkv + at, grad_q.to(tl.bfloat16), mask=live[:, None])
    tl.store(grad_qkv + at + WIDTH, grad_k.to(tl.bfloat16), mask=live[:, None])
    tl.store(grad_qkv + at + 2 * WIDTH, grad_v.to(tl.bfloat16), mask=live[:, None])
    sums += tl.program_id(0) * (3 * WIDTH) + column
    tl.store(sums, tl.sum(grad_q, 0))
    tl.store(sums + WIDTH, tl.sum(grad_k, 0))
    tl.store(sums + 2 * WIDTH, tl.sum(grad_v, 0))


@triton.jit
def norm_backward(  # type: ignore[no-untyped-def]
    grad_product, grad_y, grad_x, grad_change, x, w, gain, seed, sums, sums_below, tokens, eps,
    WIDTH: tl.constexpr, K: tl.constexpr, BLOCK: tl.constexpr, CHUNK: tl.constexpr, KEEP: tl.constexpr,
    BELOW: tl.constexpr,
):  # fmt: skip
    token, live, column, here = _tile(tokens, WIDTH, BLOCK)
    grad_h = _product(grad_product, w, token, live, column, K, WIDTH, 1, BLOCK, WIDTH, CHUNK)
    plain, inverse = _normed(tl.load(x + here, mask=live[:, None], other=0.0), live, eps, WIDTH)
    row = tl.program_id(0) * (3 * WIDTH) + column
    tl.store(sums + row, tl.sum(grad_h * plain, 0))
    tl.store(sums + row + WIDTH, tl.sum(grad_h, 0))
    grad_plain = grad_h * tl.load(gain + column)[None, :]
    mean, along = tl.sum(grad_plain, 1)[:, None] / WIDTH, tl.sum(grad_plain * plain, 1)[:, None] / WIDTH
    grad = tl.load(grad_y + here, mask=live[:, None], other=0.0)
    grad += (grad_plain - mean - plain * along) * inverse[:, None]
    tl.store(grad_x + here, grad, mask=live[:, None])
    if BELOW:
        if KEEP < 1:
            grad = _dropped(grad, seed, token, column, WIDTH, KEEP)
        tl.store(grad_change + here, grad.to(tl.bfloat16), mask=live[:, None])
        tl.store(sums_below + row + 2 * WIDTH, tl.sum(tl.where(live[:, None], grad, 0.0), 0))
