"""All rounds of edge attention as Triton kernels: one forward, one backward, one for the weights' gradient.

A round mixes only tokens of one list, so a tile of whole lists goes through all rounds in one program. The
stream stays in registers. What each token hears of the others leaves the program only where the backward pass
needs it. Lists shorter than a tile share it; the attention weights of a tile are then a matrix with a block
for each list.

Products are in bfloat16 with float32 sums; the stream, norms and sums over rounds are in float32. Sums over
tokens, the gradients of gains and biases, are products too. They are stored as a row for each tile.
"""

import triton
import triton.language as tl

VALUE = tl.constexpr(16)
"""The width of a message."""
MIXES = tl.constexpr(8)
"""Four directions by two exponents: how many messages a token hears."""


@triton.jit
def _gauss_tail(x):  # type: ignore[no-untyped-def]
    """The normal probability beyond abs(x), to 1e-7 (Abramowitz and Stegun, 7.1.26), and exp(-x^2 / 2).

    An inverse root squared is cheaper than a division, and powers of two are cheaper than those of e.
    """
    root = tl.rsqrt(1.0 + 0.23164189 * tl.abs(x))
    t, bell = root * root, tl.exp2(x * (x * -0.7213475204444817))
    tail = t * (0.127414796 + t * (-0.142248368 + t * (0.710706871 + t * (-0.726576013 + t * 0.530702714))))
    return tail * bell, bell


@triton.jit
def _tile(tokens, N, BLOCK):  # type: ignore[no-untyped-def]
    """The rows of a tile, their tokens, and which of them exist."""
    row = tl.arange(0, BLOCK)
    whole = BLOCK // N * N
    token = tl.program_id(0) * whole + row
    return row, token, (row < whole) & (token < tokens)


@triton.jit
def _weights_of_tile(row, token, live, N, PADDED, BLOCK):  # type: ignore[no-untyped-def]
    """Where the attention weights of a tile's tokens lie, ``(BLOCK, BLOCK)``, and which of them exist."""
    at = (token // N).to(tl.int64) * (MIXES * N * PADDED)
    if BLOCK // N == 1:  # memory behind the list is zero
        place = at[:, None] + row[:, None] * PADDED + row[None, :]
        allowed = live[:, None] & (row < PADDED)[None, :]
    else:
        place = at[:, None] + (row % N)[:, None] * PADDED + (row % N)[None, :]
        allowed = live[:, None] & ((row // N)[:, None] == (row // N)[None, :])
    return place, allowed


@triton.jit
def _matrices(matrices, round, WIDTH):  # type: ignore[no-untyped-def]
    """The matrices of a round, which lie one after the other: to the values, up and down."""
    to_values = matrices + round * (4 * VALUE * WIDTH + WIDTH * (2 * WIDTH + MIXES * VALUE + MIXES))
    up = to_values + 4 * VALUE * WIDTH
    return to_values, up, up + WIDTH * (WIDTH + MIXES * VALUE + MIXES)


@triton.jit
def _halves(x, ROWS, COLUMNS):  # type: ignore[no-untyped-def]
    """The left and the right half of the columns."""
    return tl.split(tl.permute(tl.reshape(x, (ROWS, 2, COLUMNS // 2)), (0, 2, 1)))


@triton.jit
def _quarters(x, ROWS, COLUMNS):  # type: ignore[no-untyped-def]
    left, right = _halves(x, ROWS, COLUMNS)
    first, second = _halves(left, ROWS, COLUMNS // 2)
    third, fourth = _halves(right, ROWS, COLUMNS // 2)
    return first, second, third, fourth


@triton.jit
def _store_sums(target, x, column, BLOCK):  # type: ignore[no-untyped-def]
    """The sums of the columns of a tile, as a product: tensor cores take far less time than shuffles."""
    row = tl.arange(0, 16)  # the smallest product; its rows are all the same
    sums = tl.dot(tl.full((16, BLOCK), 1.0, x.dtype), x)
    tl.store(target + row[:, None] * 0 + column[None, :], sums, mask=(row == 0)[:, None])


@triton.jit
def _hear(up, message, direction, weights, allowed, from_heard, heard, live, SIZE, SAVE):  # type: ignore[no-untyped-def]
    """Add to ``up`` what is heard from one direction, with either exponent."""
    weights += 2 * direction * SIZE
    from_heard += 2 * direction * VALUE
    heard += 2 * direction * VALUE
    broad = tl.load(weights, mask=allowed, other=0.0)
    sharp = tl.load(weights + SIZE, mask=allowed, other=0.0)
    from_broad, from_sharp = tl.load(from_heard), tl.load(from_heard + VALUE)
    broad = tl.dot(broad, message).to(tl.bfloat16)
    sharp = tl.dot(sharp, message).to(tl.bfloat16)
    if SAVE:
        tl.store(heard, broad, mask=live[:, None])
        tl.store(heard + VALUE, sharp, mask=live[:, None])
    return tl.dot(sharp, from_sharp, tl.dot(broad, from_broad, up))


@triton.jit
def _hear_backward(grad_h, grad_heard, direction, weights, allowed, to_value, grad_value, live, SIZE, WIDTH):  # type: ignore[no-untyped-def]
    """Backward of one direction: through either exponent to its messages, and on to the normed stream."""
    weights += 2 * direction * SIZE
    grad_value += direction * VALUE
    broad = tl.load(weights, mask=allowed, other=0.0)
    sharp = tl.load(weights + SIZE, mask=allowed, other=0.0)
    to_value = tl.load(to_value + direction * VALUE * WIDTH)
    grad_broad, grad_sharp = _halves(grad_heard, grad_heard.shape[0], 2 * VALUE)
    grad_message = tl.dot(tl.trans(broad), grad_broad)
    grad_message = tl.dot(tl.trans(sharp), grad_sharp, grad_message).to(tl.bfloat16)
    tl.store(grad_value, grad_message, mask=live[:, None])
    return tl.dot(grad_message, to_value, grad_h)


@triton.jit
def forward(  # type: ignore[no-untyped-def]
    x, y, weights, best_fit, matrices, vectors, plains, scales, inputs, values, ups, actives,
    tokens, rounds, eps,
    N: tl.constexpr, PADDED: tl.constexpr, WIDTH: tl.constexpr, BLOCK: tl.constexpr, SAVE: tl.constexpr,
):  # fmt: skip
    K: tl.constexpr = WIDTH + MIXES * VALUE + MIXES
    row, token, live = _tile(tokens, N, BLOCK)
    column, value, message_column = tl.arange(0, WIDTH), tl.arange(0, VALUE), tl.arange(0, 4 * VALUE)
    place, allowed = _weights_of_tile(row, token, live, N, PADDED, BLOCK)
    here = token[:, None].to(tl.int64) * WIDTH + column[None, :]
    stream = tl.load(x + here, mask=live[:, None], other=0.0)
    fit_live = live[:, None] & (value < MIXES)[None, :]
    fit = tl.load(best_fit + token[:, None] * MIXES + value[None, :], mask=fit_live, other=0.0)
    fit = fit.to(tl.bfloat16)
    for round in range(rounds):
        to_values, w_up, w_down = _matrices(matrices, round, WIDTH)
        gain = vectors + round * (4 * WIDTH) + column
        at = (token + round * tokens).to(tl.int64)[:, None]
        from_h = tl.load(w_up + column[None, :] * K + column[:, None])
        from_fit = tl.load(
            w_up + column[None, :] * K + (value + (WIDTH + MIXES * VALUE))[:, None],
            mask=(value < MIXES)[:, None], other=0.0,
        )  # fmt: skip
        plain = stream - tl.sum(stream, 1)[:, None] / WIDTH
        inverse = tl.rsqrt(tl.sum(plain * plain, 1) / WIDTH + eps)
        plain *= inverse[:, None]
        h = (plain * tl.load(gain)[None, :] + tl.load(gain + WIDTH)[None, :]).to(tl.bfloat16)
        if SAVE:
            tl.store(plains + at * WIDTH + column[None, :], plain.to(tl.bfloat16), mask=live[:, None])
            tl.store(scales + token + round * tokens, inverse, mask=live)
            tl.store(inputs + at * K + column[None, :], h, mask=live[:, None])
            tl.store(inputs + at * K + (value + (WIDTH + MIXES * VALUE))[None, :], fit, mask=fit_live)
        else:
            # Or the compiler would hold all the weights of a tile in shared memory from round to round, and
            # leave little of it as a cache for the rest.
            tl.debug_barrier()
        up = tl.dot(h, from_h)
        up = tl.dot(fit, from_fit, up)
        messages = tl.dot(h, tl.load(to_values + message_column[None, :] * WIDTH + column[:, None]))
        messages = messages.to(tl.bfloat16)
        if SAVE:
            tl.store(values + at * (4 * VALUE) + message_column[None, :], messages, mask=live[:, None])
        right, left, below, above = _quarters(messages, BLOCK, 4 * VALUE)
        heard = inputs + at * K + (value + WIDTH)[None, :]
        from_heard = w_up + column[None, :] * K + (value + WIDTH)[:, None]
        tile = weights + place
        up = _hear(up, right, 0, tile, allowed, from_heard, heard, live, N * PADDED, SAVE)
        up = _hear(up, left, 1, tile, allowed, from_heard, heard, live, N * PADDED, SAVE)
        up = _hear(up, below, 2, tile, allowed, from_heard, heard, live, N * PADDED, SAVE)
        up = _hear(up, above, 3, tile, allowed, from_heard, heard, live, N * PADDED, SAVE)
        up += tl.load(gain + 2 * WIDTH)[None, :]
        tail, _ = _gauss_tail(up)
        active = (tl.maximum(up, 0.0) - tl.abs(up) * tail).to(tl.bfloat16)
        if SAVE:
            tl.store(ups + at * WIDTH + column[None, :], up.to(tl.bfloat16), mask=live[:, None])
            tl.store(actives + at * WIDTH + column[None, :], active, mask=live[:, None])
        stream = tl.dot(active, tl.load(w_down + column[None, :] * WIDTH + column[:, None]), stream)
        stream += tl.load(gain + 3 * WIDTH)[None, :]
    tl.store(y + here, stream, mask=live[:, None])


@triton.jit
def backward(  # type: ignore[no-untyped-def]
    grad_y, grad_x, weights, matrices, vectors, plains, scales, ups, grad_change, grad_up, grad_heard,
    grad_values, sums, tokens, rounds,
    N: tl.constexpr, PADDED: tl.constexpr, WIDTH: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    K: tl.constexpr = WIDTH + MIXES * VALUE + MIXES
    row, token, live = _tile(tokens, N, BLOCK)
    column, value, heard_column = tl.arange(0, WIDTH), tl.arange(0, VALUE), tl.arange(0, MIXES * VALUE)
    place, allowed = _weights_of_tile(row, token, live, N, PADDED, BLOCK)
    here = token[:, None].to(tl.int64) * WIDTH + column[None, :]
    grad_stream = tl.load(grad_y + here, mask=live[:, None], other=0.0)
    for step in range(rounds):
        round = rounds - 1 - step
        to_values, w_up, w_down = _matrices(matrices, round, WIDTH)
        at = (token + round * tokens).to(tl.int64)[:, None]
        sums_here = sums + (round * tl.num_programs(0) + tl.program_id(0)) * (4 * WIDTH)
        w = tl.load(w_down + column[:, None] * WIDTH + column[None, :])
        up = tl.load(ups + at * WIDTH + column[None, :], mask=live[:, None], other=0.0)
        narrow = grad_stream.to(tl.bfloat16)
        tl.store(grad_change + at * WIDTH + column[None, :], narrow, mask=live[:, None])
        _store_sums(sums_here + 3 * WIDTH, narrow, column, BLOCK)
        grad_hidden = tl.dot(narrow, w)
        up = up.to(tl.float32)
        tail, bell = _gauss_tail(up)
        grad_hidden *= tl.where(up < 0, tail, 1.0 - tail) + up * 0.3989422804014327 * bell
        narrow = grad_hidden.to(tl.bfloat16)
        _store_sums(sums_here + 2 * WIDTH, narrow, column, BLOCK)
        tl.store(grad_up + at * WIDTH + column[None, :], narrow, mask=live[:, None])
        grad_h = tl.dot(narrow, tl.load(w_up + column[:, None] * K + column[None, :]))
        grad_all = tl.dot(narrow, tl.load(w_up + column[:, None] * K + (heard_column + WIDTH)[None, :]))
        grad_all = grad_all.to(tl.bfloat16)
        tl.store(grad_heard + at * (MIXES * VALUE) + heard_column[None, :], grad_all, mask=live[:, None])
        right, left, below, above = _quarters(grad_all, BLOCK, MIXES * VALUE)
        grad_value = grad_values + at * (4 * VALUE) + value[None, :]
        to_value = to_values + value[:, None] * WIDTH + column[None, :]
        tile = weights + place
        grad_h = _hear_backward(
            grad_h, right, 0, tile, allowed, to_value, grad_value, live, N * PADDED, WIDTH
        )
        grad_h = _hear_backward(grad_h, left, 1, tile, allowed, to_value, grad_value, live, N * PADDED, WIDTH)
        grad_h = _hear_backward(
            grad_h, below, 2, tile, allowed, to_value, grad_value, live, N * PADDED, WIDTH
        )
        grad_h = _hear_backward(
            grad_h, above, 3, tile, allowed, to_value, grad_value, live, N * PADDED, WIDTH
        )
        plain = tl.load(plains + at * WIDTH + column[None, :], mask=live[:, None], other=0.0)
        inverse = tl.load(scales + token + round * tokens, mask=live, other=0.0)[:, None]
        plain = plain.to(tl.float32)
        _store_sums(sums_here, (grad_h * plain).to(tl.bfloat16), column, BLOCK)
        _store_sums(sums_here + WIDTH, grad_h.to(tl.bfloat16), column, BLOCK)
        grad_plain = grad_h * tl.load(vectors + round * (4 * WIDTH) + column)[None, :]
        mean, along = tl.sum(grad_plain, 1)[:, None] / WIDTH, tl.sum(grad_plain * plain, 1)[:, None] / WIDTH
        grad_stream += (grad_plain - mean - plain * along) * inverse
    tl.store(grad_x + here, grad_stream, mask=live[:, None])


@triton.jit
def weights_backward(  # type: ignore[no-untyped-def]
    grad_heard, values, grad_weights, tokens, rounds,
    N: tl.constexpr, PADDED: tl.constexpr, BLOCK: tl.constexpr, TOGETHER: tl.constexpr,
):  # fmt: skip
    """The gradient of the attention weights of one direction: a sum over rounds of outer products.

    Messages of several rounds side by side are one longer product.
    """
    row, token, live = _tile(tokens, N, BLOCK)
    inner, direction = tl.arange(0, TOGETHER * VALUE), tl.program_id(1)
    grad_broad = tl.zeros((BLOCK, BLOCK), tl.float32)
    grad_sharp = tl.zeros((BLOCK, BLOCK), tl.float32)
    for first in range(0, rounds, TOGETHER):
        round = inner // VALUE + first
        heard = (token[:, None] + round[None, :] * tokens).to(tl.int64) * (MIXES * VALUE)
        heard = grad_heard + heard + (inner % VALUE + 2 * direction * VALUE)[None, :]
        message = (token[None, :] + round[:, None] * tokens).to(tl.int64) * (4 * VALUE)
        message = values + message + (inner % VALUE + direction * VALUE)[:, None]
        present = live[:, None] & (round < rounds)[None, :]
        broad = tl.load(heard, mask=present, other=0.0)
        sharp = tl.load(heard + VALUE, mask=present, other=0.0)
        message = tl.load(message, mask=live[None, :] & (round < rounds)[:, None], other=0.0)
        grad_broad = tl.dot(broad, message, grad_broad)
        grad_sharp = tl.dot(sharp, message, grad_sharp)
    place, allowed = _weights_of_tile(row, token, live, N, PADDED, BLOCK)
    target = grad_weights + place + 2 * direction * N * PADDED
    tl.store(target, grad_broad.to(tl.bfloat16), mask=allowed)
    tl.store(target + N * PADDED, grad_sharp.to(tl.bfloat16), mask=allowed)
