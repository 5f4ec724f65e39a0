"""All rounds of edge attention as Triton kernels: one forward, one backward, one for the weights' gradient.

A round mixes only tokens of one list, so a tile of whole lists goes through all rounds in one program: the
stream stays in registers, and what each token hears of the others never leaves the program, but for what the
backward pass wants. Lists shorter than a tile share it; who listens to whom is then a matrix with a block for
each list.

Products are in bfloat16 with float32 sums; the stream, norms and sums over rounds are in float32. Sums over
tokens, the gradients of gains and biases, are products too, and left as a row for each tile.
"""

import triton
import triton.language as tl

VALUE = tl.constexpr(16)
"""How wide a message is."""
MIXES = tl.constexpr(8)
"""Four directions by two exponents: how many messages a token hears."""


@triton.jit
def _gauss_tail(x):  # type: ignore[no-untyped-def]
    """What the normal law has beyond abs(x), to 1e-7 (Abramowitz and Stegun, 7.1.26), and exp(-x^2 / 2).

    An inverse root squared is cheaper than a division, and powers of two are cheaper than those of e.
    """
    root = tl.rsqrt(1.0 + 0.23164189 * tl.abs(x))
    t, bell = root * root, tl.exp2(x * (x * -0.7213475204444817))
    tail = t * (0.127414796 + t * (-0.142248368 + t * (0.710706871 + t * (-0.726576013 + t * 0.530702714))))
    return tail * bell, bell


@triton.jit
def _tile(tokens, N, BLOCK):  # type: ignore[no-untyped-def]
    """The rows of a tile, their tokens, and which of them there are."""
    row = tl.arange(0, BLOCK)
    whole = BLOCK // N * N
    token = tl.program_id(0) * whole + row
    return row, token, (row < whole) & (token < tokens)


@triton.jit
def _near(row, token, live, N, PADDED, BLOCK):  # type: ignore[no-untyped-def]
    """Where the weights of a tile's tokens lie, ``(BLOCK, BLOCK)``, and which of them there are."""
    at = (token // N).to(tl.int64) * (MIXES * N * PADDED)
    if BLOCK // N == 1:  # what is behind the list is zero in memory
        place = at[:, None] + row[:, None] * PADDED + row[None, :]
        seen = live[:, None] & (row < PADDED)[None, :]
    else:
        place = at[:, None] + (row % N)[:, None] * PADDED + (row % N)[None, :]
        seen = live[:, None] & ((row // N)[:, None] == (row // N)[None, :])
    return place, seen


@triton.jit
def _matrices(matrices, round, WIDTH):  # type: ignore[no-untyped-def]
    """The weights of a round: to the values, up and down; they lie one after the other."""
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
def _store_sums(there, x, column, BLOCK):  # type: ignore[no-untyped-def]
    """The sums of the columns of a tile, as a product: tensor cores take far less time than shuffles."""
    row = tl.arange(0, 16)  # the smallest product there is; its rows are all the same
    sums = tl.dot(tl.full((16, BLOCK), 1.0, x.dtype), x)
    tl.store(there + row[:, None] * 0 + column[None, :], sums, mask=(row == 0)[:, None])


@triton.jit
def _hear(up, said, near, seen, from_heard, heard, live, NEXT, SAVE):  # type: ignore[no-untyped-def]
    """What is heard from one direction, by either exponent, and what goes up from it."""
    broad = tl.load(near, mask=seen, other=0.0)
    sharp = tl.load(near + NEXT, mask=seen, other=0.0)
    from_broad, from_sharp = tl.load(from_heard), tl.load(from_heard + VALUE)
    broad = tl.dot(broad, said).to(tl.bfloat16)
    sharp = tl.dot(sharp, said).to(tl.bfloat16)
    if SAVE:
        tl.store(heard, broad, mask=live[:, None])
        tl.store(heard + VALUE, sharp, mask=live[:, None])
    return tl.dot(sharp, from_sharp, tl.dot(broad, from_broad, up))


@triton.jit
def _hear_back(of_h, of_heard, near, seen, to_value, of_said, live, NEXT, BLOCK):  # type: ignore[no-untyped-def]
    """The way back: through either exponent to what was said, and from there to the normed stream."""
    broad = tl.load(near, mask=seen, other=0.0)
    sharp = tl.load(near + NEXT, mask=seen, other=0.0)
    to_value = tl.load(to_value)
    of_broad, of_sharp = _halves(of_heard, BLOCK, 2 * VALUE)
    back = tl.dot(tl.trans(broad), of_broad)
    back = tl.dot(tl.trans(sharp), of_sharp, back).to(tl.bfloat16)
    tl.store(of_said, back, mask=live[:, None])
    return tl.dot(back, to_value, of_h)


@triton.jit
def forward(  # type: ignore[no-untyped-def]
    x, y, near, found, matrices, vectors, plains, scales, inputs, values, ups, actives, tokens, rounds, eps,
    N: tl.constexpr, PADDED: tl.constexpr, WIDTH: tl.constexpr, BLOCK: tl.constexpr, SAVE: tl.constexpr,
):  # fmt: skip
    K: tl.constexpr = WIDTH + MIXES * VALUE + MIXES
    row, token, live = _tile(tokens, N, BLOCK)
    column, value, said_column = tl.arange(0, WIDTH), tl.arange(0, VALUE), tl.arange(0, 4 * VALUE)
    place, seen = _near(row, token, live, N, PADDED, BLOCK)
    here = token[:, None].to(tl.int64) * WIDTH + column[None, :]
    stream = tl.load(x + here, mask=live[:, None], other=0.0)
    told = live[:, None] & (value < MIXES)[None, :]
    fit = tl.load(found + token[:, None] * MIXES + value[None, :], mask=told, other=0.0).to(tl.bfloat16)
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
            tl.store(inputs + at * K + (value + (WIDTH + MIXES * VALUE))[None, :], fit, mask=told)
        else:
            # Or the compiler would hold all the weights of a tile in shared memory from round to round, and
            # leave little of it as a cache for the rest.
            tl.debug_barrier()
        up = tl.dot(h, from_h)
        up = tl.dot(fit, from_fit, up)
        said = tl.dot(h, tl.load(to_values + said_column[None, :] * WIDTH + column[:, None])).to(tl.bfloat16)
        if SAVE:
            tl.store(values + at * (4 * VALUE) + said_column[None, :], said, mask=live[:, None])
        right, left, below, above = _quarters(said, BLOCK, 4 * VALUE)
        heard = inputs + at * K + (value + WIDTH)[None, :]
        from_heard = w_up + column[None, :] * K + (value + WIDTH)[:, None]
        up = _hear(up, right, near + place, seen, from_heard, heard, live, N * PADDED, SAVE)
        up = _hear(
            up, left, near + place + 2 * N * PADDED, seen, from_heard + 2 * VALUE, heard + 2 * VALUE, live,
            N * PADDED, SAVE,
        )  # fmt: skip
        up = _hear(
            up, below, near + place + 4 * N * PADDED, seen, from_heard + 4 * VALUE, heard + 4 * VALUE, live,
            N * PADDED, SAVE,
        )  # fmt: skip
        up = _hear(
            up, above, near + place + 6 * N * PADDED, seen, from_heard + 6 * VALUE, heard + 6 * VALUE, live,
            N * PADDED, SAVE,
        )  # fmt: skip
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
    of_y, of_x, near, matrices, vectors, plains, scales, ups, of_change, of_up, of_heard, of_values,
    sums, tokens, rounds,
    N: tl.constexpr, PADDED: tl.constexpr, WIDTH: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    K: tl.constexpr = WIDTH + MIXES * VALUE + MIXES
    row, token, live = _tile(tokens, N, BLOCK)
    column, value, heard_column = tl.arange(0, WIDTH), tl.arange(0, VALUE), tl.arange(0, MIXES * VALUE)
    place, seen = _near(row, token, live, N, PADDED, BLOCK)
    here = token[:, None].to(tl.int64) * WIDTH + column[None, :]
    back = tl.load(of_y + here, mask=live[:, None], other=0.0)
    for step in range(rounds):
        round = rounds - 1 - step
        to_values, w_up, w_down = _matrices(matrices, round, WIDTH)
        at = (token + round * tokens).to(tl.int64)[:, None]
        sums_here = sums + (round * tl.num_programs(0) + tl.program_id(0)) * (4 * WIDTH)
        w = tl.load(w_down + column[:, None] * WIDTH + column[None, :])
        up = tl.load(ups + at * WIDTH + column[None, :], mask=live[:, None], other=0.0)
        narrow = back.to(tl.bfloat16)
        tl.store(of_change + at * WIDTH + column[None, :], narrow, mask=live[:, None])
        _store_sums(sums_here + 3 * WIDTH, narrow, column, BLOCK)
        of_hidden = tl.dot(narrow, w)
        up = up.to(tl.float32)
        tail, bell = _gauss_tail(up)
        of_hidden *= tl.where(up < 0, tail, 1.0 - tail) + up * 0.3989422804014327 * bell
        narrow = of_hidden.to(tl.bfloat16)
        _store_sums(sums_here + 2 * WIDTH, narrow, column, BLOCK)
        tl.store(of_up + at * WIDTH + column[None, :], narrow, mask=live[:, None])
        of_h = tl.dot(narrow, tl.load(w_up + column[:, None] * K + column[None, :]))
        of_all = tl.dot(narrow, tl.load(w_up + column[:, None] * K + (heard_column + WIDTH)[None, :]))
        of_all = of_all.to(tl.bfloat16)
        tl.store(of_heard + at * (MIXES * VALUE) + heard_column[None, :], of_all, mask=live[:, None])
        right, left, below, above = _quarters(of_all, BLOCK, MIXES * VALUE)
        of_said = of_values + at * (4 * VALUE) + value[None, :]
        to_value = to_values + value[:, None] * WIDTH + column[None, :]
        of_h = _hear_back(of_h, right, near + place, seen, to_value, of_said, live, N * PADDED, BLOCK)
        of_h = _hear_back(
            of_h, left, near + place + 2 * N * PADDED, seen, to_value + VALUE * WIDTH, of_said + VALUE, live,
            N * PADDED, BLOCK,
        )  # fmt: skip
        of_h = _hear_back(
            of_h, below, near + place + 4 * N * PADDED, seen, to_value + 2 * VALUE * WIDTH,
            of_said + 2 * VALUE, live, N * PADDED, BLOCK,
        )  # fmt: skip
        of_h = _hear_back(
            of_h, above, near + place + 6 * N * PADDED, seen, to_value + 3 * VALUE * WIDTH,
            of_said + 3 * VALUE, live, N * PADDED, BLOCK,
        )  # fmt: skip
        plain = tl.load(plains + at * WIDTH + column[None, :], mask=live[:, None], other=0.0)
        inverse = tl.load(scales + token + round * tokens, mask=live, other=0.0)[:, None]
        plain = plain.to(tl.float32)
        _store_sums(sums_here, (of_h * plain).to(tl.bfloat16), column, BLOCK)
        _store_sums(sums_here + WIDTH, of_h.to(tl.bfloat16), column, BLOCK)
        of_plain = of_h * tl.load(vectors + round * (4 * WIDTH) + column)[None, :]
        mean, along = tl.sum(of_plain, 1)[:, None] / WIDTH, tl.sum(of_plain * plain, 1)[:, None] / WIDTH
        back += (of_plain - mean - plain * along) * inverse
    tl.store(of_x + here, back, mask=live[:, None])


@triton.jit
def through_weights(  # type: ignore[no-untyped-def]
    of_heard, values, of_near, tokens, rounds,
    N: tl.constexpr, PADDED: tl.constexpr, BLOCK: tl.constexpr, TOGETHER: tl.constexpr,
):  # fmt: skip
    """The gradient of who listens to whom in one direction: a sum over rounds of outer products.

    Messages of several rounds side by side are one longer product.
    """
    row, token, live = _tile(tokens, N, BLOCK)
    inner, direction = tl.arange(0, TOGETHER * VALUE), tl.program_id(1)
    of_broad = tl.zeros((BLOCK, BLOCK), tl.float32)
    of_sharp = tl.zeros((BLOCK, BLOCK), tl.float32)
    for first in range(0, rounds, TOGETHER):
        round = inner // VALUE + first
        there = (token[:, None] + round[None, :] * tokens).to(tl.int64) * (MIXES * VALUE)
        there = of_heard + there + (inner % VALUE + 2 * direction * VALUE)[None, :]
        said = (token[None, :] + round[:, None] * tokens).to(tl.int64) * (4 * VALUE)
        said = values + said + (inner % VALUE + direction * VALUE)[:, None]
        there_is = live[:, None] & (round < rounds)[None, :]
        broad = tl.load(there, mask=there_is, other=0.0)
        sharp = tl.load(there + VALUE, mask=there_is, other=0.0)
        said = tl.load(said, mask=live[None, :] & (round < rounds)[:, None], other=0.0)
        of_broad = tl.dot(broad, said, of_broad)
        of_sharp = tl.dot(sharp, said, of_sharp)
    place, seen = _near(row, token, live, N, PADDED, BLOCK)
    there = of_near + place + 2 * direction * N * PADDED
    tl.store(there, of_broad.to(tl.bfloat16), mask=seen)
    tl.store(there + N * PADDED, of_sharp.to(tl.bfloat16), mask=seen)
