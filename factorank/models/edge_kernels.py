"""All rounds of edge attention as Triton kernels: one forward, one backward, one for the weights' gradient.

A round mixes only tokens of one list, so a tile of whole lists goes through all rounds in one program: the
stream stays in registers, and what each token hears of the others never leaves the program, but for what the
backward pass wants. Lists shorter than a tile share it; who listens to whom is then a matrix with a block for
each list.

Products are in bfloat16 with float32 sums; the stream, norms and sums over rounds are in float32. Sums over
tokens, the gradients of gains and biases, are left as a row for each tile.
"""

import triton
import triton.language as tl

from factorank.models.fused_kernels import _gauss, _normed

VALUE = tl.constexpr(16)
"""How wide a message is."""
MIXES = tl.constexpr(8)
"""Four directions by two exponents: how many messages a token hears."""


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
def forward(  # type: ignore[no-untyped-def]
    x, y, near, found, matrices, vectors, streams, inputs, values, ups, actives, tokens, rounds, eps,
    N: tl.constexpr, PADDED: tl.constexpr, WIDTH: tl.constexpr, BLOCK: tl.constexpr, SAVE: tl.constexpr,
):  # fmt: skip
    K: tl.constexpr = WIDTH + MIXES * VALUE + MIXES
    row, token, live = _tile(tokens, N, BLOCK)
    column, value = tl.arange(0, WIDTH), tl.arange(0, VALUE)
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
        plain, _ = _normed(stream, live, eps, WIDTH)
        h = (plain * tl.load(gain)[None, :] + tl.load(gain + WIDTH)[None, :]).to(tl.bfloat16)
        if SAVE:
            tl.store(streams + at * WIDTH + column[None, :], stream, mask=live[:, None])
            tl.store(inputs + at * K + column[None, :], h, mask=live[:, None])
            tl.store(inputs + at * K + (value + (WIDTH + MIXES * VALUE))[None, :], fit, mask=told)
        up = tl.dot(h, from_h)
        up = tl.dot(fit, from_fit, up)
        for direction in tl.static_range(4):
            # All that a direction needs is asked for at once.
            to_value = tl.load(to_values + (value + direction * VALUE)[None, :] * WIDTH + column[:, None])
            mine = near + place + 2 * direction * N * PADDED
            broad = tl.load(mine, mask=seen, other=0.0)
            sharp = tl.load(mine + N * PADDED, mask=seen, other=0.0)
            from_heard = w_up + column[None, :] * K + (value + (WIDTH + 2 * direction * VALUE))[:, None]
            from_broad, from_sharp = tl.load(from_heard), tl.load(from_heard + VALUE)
            said = tl.dot(h, to_value).to(tl.bfloat16)
            heard_broad = tl.dot(broad, said).to(tl.bfloat16)
            heard_sharp = tl.dot(sharp, said).to(tl.bfloat16)
            if SAVE:
                tl.store(
                    values + at * (4 * VALUE) + (value + direction * VALUE)[None, :], said, mask=live[:, None]
                )
                there = inputs + at * K + (value + (WIDTH + 2 * direction * VALUE))[None, :]
                tl.store(there, heard_broad, mask=live[:, None])
                tl.store(there + VALUE, heard_sharp, mask=live[:, None])
            up = tl.dot(heard_broad, from_broad, up)
            up = tl.dot(heard_sharp, from_sharp, up)
        up += tl.load(gain + 2 * WIDTH)[None, :]
        below, _ = _gauss(up)
        active = (up * below).to(tl.bfloat16)
        if SAVE:
            tl.store(ups + at * WIDTH + column[None, :], up.to(tl.bfloat16), mask=live[:, None])
            tl.store(actives + at * WIDTH + column[None, :], active, mask=live[:, None])
        change = tl.dot(active, tl.load(w_down + column[None, :] * WIDTH + column[:, None]))
        stream += change + tl.load(gain + 3 * WIDTH)[None, :]
    tl.store(y + here, stream, mask=live[:, None])


@triton.jit
def backward(  # type: ignore[no-untyped-def]
    of_y, of_x, of_found, near, matrices, vectors, streams, ups, of_change, of_up, of_heard, of_values, sums,
    tokens, rounds, eps,
    N: tl.constexpr, PADDED: tl.constexpr, WIDTH: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    K: tl.constexpr = WIDTH + MIXES * VALUE + MIXES
    row, token, live = _tile(tokens, N, BLOCK)
    column, value = tl.arange(0, WIDTH), tl.arange(0, VALUE)
    place, seen = _near(row, token, live, N, PADDED, BLOCK)
    here = token[:, None].to(tl.int64) * WIDTH + column[None, :]
    back = tl.load(of_y + here, mask=live[:, None], other=0.0)
    of_fit = tl.zeros((BLOCK, VALUE), tl.float32)
    for step in range(rounds):
        round = rounds - 1 - step
        to_values, w_up, w_down = _matrices(matrices, round, WIDTH)
        at = (token + round * tokens).to(tl.int64)[:, None]
        sums_here = sums + (round * tl.num_programs(0) + tl.program_id(0)) * (4 * WIDTH) + column
        w = tl.load(w_down + column[:, None] * WIDTH + column[None, :])
        up = tl.load(ups + at * WIDTH + column[None, :], mask=live[:, None], other=0.0).to(tl.float32)
        narrow = back.to(tl.bfloat16)
        tl.store(of_change + at * WIDTH + column[None, :], narrow, mask=live[:, None])
        tl.store(sums_here + 3 * WIDTH, tl.sum(back, 0))
        below, bell = _gauss(up)
        of_hidden = tl.dot(narrow, w) * (below + up * 0.3989422804014327 * bell)
        tl.store(sums_here + 2 * WIDTH, tl.sum(of_hidden, 0))
        narrow = of_hidden.to(tl.bfloat16)
        tl.store(of_up + at * WIDTH + column[None, :], narrow, mask=live[:, None])
        of_h = tl.dot(narrow, tl.load(w_up + column[:, None] * K + column[None, :]))
        from_fit = tl.load(
            w_up + column[:, None] * K + (value + (WIDTH + MIXES * VALUE))[None, :],
            mask=(value < MIXES)[None, :], other=0.0,
        )  # fmt: skip
        of_fit = tl.dot(narrow, from_fit, of_fit)
        for direction in tl.static_range(4):
            from_heard = w_up + column[:, None] * K + (value + (WIDTH + 2 * direction * VALUE))[None, :]
            from_broad, from_sharp = tl.load(from_heard), tl.load(from_heard + VALUE)
            mine = near + place + 2 * direction * N * PADDED
            broad = tl.load(mine, mask=seen, other=0.0)
            sharp = tl.load(mine + N * PADDED, mask=seen, other=0.0)
            to_value = tl.load(to_values + (value + direction * VALUE)[:, None] * WIDTH + column[None, :])
            of_broad = tl.dot(narrow, from_broad).to(tl.bfloat16)
            of_sharp = tl.dot(narrow, from_sharp).to(tl.bfloat16)
            there = of_heard + at * (MIXES * VALUE) + (value + 2 * direction * VALUE)[None, :]
            tl.store(there, of_broad, mask=live[:, None])
            tl.store(there + VALUE, of_sharp, mask=live[:, None])
            of_said = tl.dot(tl.trans(broad), of_broad)
            of_said = tl.dot(tl.trans(sharp), of_sharp, of_said).to(tl.bfloat16)
            there = of_values + at * (4 * VALUE) + (value + direction * VALUE)[None, :]
            tl.store(there, of_said, mask=live[:, None])
            of_h = tl.dot(of_said, to_value, of_h)
        stream = tl.load(streams + at * WIDTH + column[None, :], mask=live[:, None], other=0.0)
        plain, inverse = _normed(stream, live, eps, WIDTH)
        tl.store(sums_here, tl.sum(of_h * plain, 0))
        tl.store(sums_here + WIDTH, tl.sum(of_h, 0))
        of_plain = of_h * tl.load(vectors + round * (4 * WIDTH) + column)[None, :]
        mean, along = tl.sum(of_plain, 1)[:, None] / WIDTH, tl.sum(of_plain * plain, 1)[:, None] / WIDTH
        back += (of_plain - mean - plain * along) * inverse[:, None]
    tl.store(of_x + here, back, mask=live[:, None])
    told = live[:, None] & (value < MIXES)[None, :]
    tl.store(of_found + token[:, None] * MIXES + value[None, :], of_fit, mask=told)


@triton.jit
def through_weights(  # type: ignore[no-untyped-def]
    of_heard, values, of_near, tokens, rounds,
    N: tl.constexpr, PADDED: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """The gradient of who listens to whom in one direction: a sum over rounds of outer products."""
    row, token, live = _tile(tokens, N, BLOCK)
    value, direction = tl.arange(0, VALUE), tl.program_id(1)
    of_broad = tl.zeros((BLOCK, BLOCK), tl.float32)
    of_sharp = tl.zeros((BLOCK, BLOCK), tl.float32)
    for round in range(rounds):
        at = (token + round * tokens).to(tl.int64)
        said = values + at[None, :] * (4 * VALUE) + (value + direction * VALUE)[:, None]
        there = of_heard + at[:, None] * (MIXES * VALUE) + (value + 2 * direction * VALUE)[None, :]
        broad = tl.load(there, mask=live[:, None], other=0.0)
        sharp = tl.load(there + VALUE, mask=live[:, None], other=0.0)
        said = tl.load(said, mask=live[None, :], other=0.0)
        of_broad = tl.dot(broad, said, of_broad)
        of_sharp = tl.dot(sharp, said, of_sharp)
    place, seen = _near(row, token, live, N, PADDED, BLOCK)
    there = of_near + place + 2 * direction * N * PADDED
    tl.store(there, of_broad.to(tl.bfloat16), mask=seen)
    tl.store(there + N * PADDED, of_sharp.to(tl.bfloat16), mask=seen)
