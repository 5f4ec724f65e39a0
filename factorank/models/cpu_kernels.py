"""A stack of transformer blocks as two numba kernels: there and back.

``LANES`` lists, a group, go through all blocks together, a number of each in every lane of a vector. What a
group has lies as ``(features, tokens, lanes)``, tokens and lanes also taken as one axis of columns: nothing
is gathered and nothing summed across a vector, and a group stays in the cache. The functions hold no lock and
no state: callers may split groups over threads.

The gain and shift of a norm are part of the weights that follow it (:func:`fold`), and their gradients come
from those of these weights (:func:`unfold`).
"""

import math
from typing import Any

import numpy as np

from factorank.models.cpu_vectors import LANES, add_product, dot, exp, jit, tail


@jit
def fold(raw: Any, width: Any, folded: Any) -> None:
    """From the parameters of blocks, ``(depth, 12 width² + 13 width)`` in their order, those that follow a
    norm without gain and shift."""
    folded[:] = raw
    for block in range(len(raw)):
        for at, rows in ((0, 3 * width), (4 * width * width + 6 * width, 4 * width)):
            gain, shift = raw[block, at : at + width], raw[block, at + width : at + 2 * width]
            first = at + 2 * width
            for f in range(rows):
                weight = raw[block, first + f * width : first + (f + 1) * width]
                # A sum in a loop that also writes would be taken in an order that depends on addresses.
                total = raw[block, first + rows * width + f]
                for k in range(width):
                    total += weight[k] * shift[k]
                folded[block, first + rows * width + f] = total
                for k in range(width):
                    folded[block, first + f * width + k] = weight[k] * gain[k]


@jit
def unfold(raw: Any, width: Any, products: Any, sums: Any, out: Any) -> None:
    """``out``, like ``raw``, is the gradient of the parameters, from what :func:`backward` gave by part."""
    for part in range(1, len(products)):
        products[0] += products[part]
        sums[0] += sums[part]
    square = width * width
    for block in range(len(raw)):
        given, made = products[0, block], out[block]
        at = row = bias = 0
        for rows in (3 * width, 4 * width):
            gain, shift = raw[block, at : at + width], raw[block, at + width : at + 2 * width]
            of_gain, of_shift = made[at : at + width], made[at + width : at + 2 * width]
            of_gain[:] = 0
            of_shift[:] = 0
            first = at + 2 * width
            for f in range(rows):
                total = sums[0, block, bias + f].sum()
                made[first + rows * width + f] = total
                for k in range(width):
                    weight = raw[block, first + f * width + k]
                    of_gain[k] += weight * given[row + f, k]
                    of_shift[k] += weight * total
                    made[first + f * width + k] = given[row + f, k] * gain[k] + total * shift[k]
            at, row, bias = first + rows * width + rows, row + rows, bias + rows
            inner = width if rows == 3 * width else 4 * width
            for f in range(width):
                for k in range(inner):
                    made[at + f * inner + k] = given[row + k, f]
                made[at + inner * width + f] = sums[0, block, bias + f].sum()
            at, row, bias = at + inner * width + width, row + inner, bias + width
        assert at == 12 * square + 13 * width


@jit
def turn(folded: Any, width: Any, out: Any) -> None:
    """``out`` is like ``folded``, with each matrix transposed and nothing else: see :func:`_turned_half`."""
    for block in range(len(folded)):
        for first in (True, False):
            weight, _, following, _ = _half(folded[block], width, first)
            turned_weight, turned_following = _turned_half(out[block], width, first)
            turn_matrix(weight, turned_weight)
            turn_matrix(following, turned_following)


@jit
def _half(weights: Any, width: Any, first: Any) -> Any:
    """Of a block's folded parameters: weight, bias, weight, bias of the attention half, or of the MLP."""
    at = 2 * width if first else 4 * width * width + 8 * width
    rows, inner = (3 * width, width) if first else (4 * width, 4 * width)
    weight = weights[at : at + rows * width].reshape(rows, width)
    at += rows * width
    bias = weights[at : at + rows]
    at += rows
    following = weights[at : at + width * inner].reshape(width, inner)
    at += width * inner
    return weight, bias, following, weights[at : at + width]


@jit
def _turned_half(turned: Any, width: Any, first: Any) -> Any:
    """The two matrices of half a block that :func:`turn` made."""
    weight, _, following, _ = _half(turned, width, first)
    return weight.reshape((width, len(weight))), following.reshape((following.shape[1], width))


@jit
def _parts(room: Any, width: Any) -> Any:
    """What a group keeps of a block, ``(14 width + 2, columns)``: the normed stream and its scale for the
    attention half, queries, keys and values, what attention mixes; the same for the MLP, the slope of its
    GELU and the result."""
    w = width
    first, qkv, mixed = room[:w], room[w : 4 * w], room[4 * w : 5 * w]
    second, slope, active = room[5 * w : 6 * w], room[6 * w : 10 * w], room[10 * w : 14 * w]
    return first, room[14 * w], qkv, mixed, second, room[14 * w + 1], slope, active


@jit
def forward(
    x: Any, hidden: Any, masked: Any, causal: Any, noise: Any, drops: Any, positions: Any, weights: Any,
    heads: Any, eps: Any, start: Any, end: Any, keeps: Any, kept: Any, out: Any,
) -> None:  # fmt: skip
    """Groups start..end-1 of ``x (rows, n, width)`` through all blocks to ``out (rows, some, width)``.

    ``hidden (groups, n, LANES)`` is true where no query may look. ``noise (halves, rows, n, width)``
    multiplies what a half block adds. ``positions (rows, some)`` are the tokens asked for, all if it has no
    rows. With ``keeps``, ``kept (groups, depth, 14 width + 2, columns)`` is filled for the way back.
    """
    n, width, depth = x.shape[1], x.shape[2], len(weights)
    room = kept if keeps else np.empty((1, 1, 14 * width + 2, n * LANES), x.dtype)
    stream, change = np.empty((width, n * LANES), x.dtype), np.empty((width, n * LANES), x.dtype)
    mean = np.empty(n * LANES, x.dtype)
    for group in range(start, end):
        first = group * LANES
        enter(x, first, stream)
        for block in range(depth):
            mine = room[group, block] if keeps else room[0, 0]
            normed, scale, qkv, mixed, mlp_normed, mlp_scale, slope, active = _parts(mine, width)
            weight, bias, following, last_bias = _half(weights[block], width, True)
            norm(stream, eps, mean, normed, scale)
            _fill(qkv, bias)
            add_product(weight, normed, qkv)
            shape = (heads, width // heads, n, LANES)
            _attention(
                qkv.reshape((3, heads, width // heads, n, LANES)), hidden[group] if masked else hidden[0],
                masked, causal, mixed.reshape(shape),
            )  # fmt: skip
            if block == depth - 1 and len(positions) > 0:
                _rest_of_some(stream, mixed, positions, first, weights[block], eps, out)
                continue
            _fill(change, last_bias)
            add_product(following, mixed, change)
            _add(stream, change, noise, drops, 2 * block, first)
            weight, bias, following, last_bias = _half(weights[block], width, False)
            norm(stream, eps, mean, mlp_normed, mlp_scale)
            _fill(slope, bias)
            add_product(weight, mlp_normed, slope)
            gelu(slope.reshape(-1), active.reshape(-1), keeps)
            _fill(change, last_bias)
            add_product(following, active, change)
            _add(stream, change, noise, drops, 2 * block + 1, first)
        if len(positions) == 0:
            leave(stream, first, out)


@jit
def _rest_of_some(
    stream: Any, mixed: Any, positions: Any, first: Any, weights: Any, eps: Any, out: Any
) -> None:
    """The last block after its attention, for the tokens asked for."""
    width, some = len(stream), positions.shape[1]
    columns = some * LANES
    x, taken = np.zeros((width, columns), stream.dtype), np.zeros((width, columns), stream.dtype)
    for lane in range(min(LANES, len(positions) - first)):
        for s in range(some):
            c, at = positions[first + lane, s] * LANES + lane, s * LANES + lane
            for f in range(width):
                x[f, at] = stream[f, c]
                taken[f, at] = mixed[f, c]
    _, _, following, last_bias = _half(weights, width, True)
    _add_bias(x, last_bias)
    add_product(following, taken, x)
    weight, bias, following, last_bias = _half(weights, width, False)
    mean, scale = np.empty(columns, x.dtype), np.empty(columns, x.dtype)
    norm(x, eps, mean, taken, scale)
    wide, active = np.empty((4 * width, columns), x.dtype), np.empty((4 * width, columns), x.dtype)
    _fill(wide, bias)
    add_product(weight, taken, wide)
    gelu(wide.reshape(-1), active.reshape(-1), False)
    _add_bias(x, last_bias)
    add_product(following, active, x)
    leave(x, first, out)


@jit
def backward(
    gradient: Any, hidden: Any, masked: Any, causal: Any, noise: Any, drops: Any, turned_weights: Any,
    heads: Any, start: Any, end: Any, kept: Any, out: Any, products: Any, sums: Any,
) -> None:  # fmt: skip
    """``out (rows, n, width)`` is the gradient of x, given that of what :func:`forward` made.

    ``products (depth, 12 width, width up to LANES)`` and ``sums (depth, 9 width, LANES)`` become the
    gradients of the folded weights, in the order of the blocks but ``(in, out)`` where nothing is normed
    before, and of the biases, by lane.
    """
    n, w, dtype = gradient.shape[1], gradient.shape[2], gradient.dtype
    columns = n * LANES
    products[:] = 0
    sums[:] = 0
    arriving, change = np.empty((w, columns), dtype), np.empty((w, columns), dtype)
    # Rows of a power of two would share few lines of a cache: a vector more spreads them.
    turned = np.zeros((columns, products.shape[2] + LANES), dtype)
    of_normed, of_wide = np.empty((w, columns), dtype), np.empty((4 * w, columns), dtype)
    total, along = np.empty(columns, dtype), np.empty(columns, dtype)
    of_qkv = of_wide[: 3 * w].reshape((3, heads, w // heads, n, LANES))
    shape = (heads, w // heads, n, LANES)
    for group in range(start, end):
        first = group * LANES
        enter(gradient, first, arriving)
        for block in range(len(turned_weights) - 1, -1, -1):
            normed, scale, qkv, mixed, mlp_normed, mlp_scale, slope, active = _parts(kept[group, block], w)
            made, summed = products[block], sums[block]

            weight, following = _turned_half(turned_weights[block], w, False)
            change[:] = 0
            _add(change, arriving, noise, drops, 2 * block + 1, first)
            turn_matrix(change, turned)
            add_product(active, turned, made[8 * w :])
            _sum(change, summed[8 * w :])
            of_wide[:] = 0
            add_product(following, change, of_wide)
            of_wide *= slope
            turn_matrix(mlp_normed, turned)
            add_product(of_wide, turned, made[4 * w : 8 * w])
            _sum(of_wide, summed[4 * w : 8 * w])
            of_normed[:] = 0
            add_product(weight, of_wide, of_normed)
            through_norm(of_normed, mlp_normed, mlp_scale, total, along, arriving)

            weight, following = _turned_half(turned_weights[block], w, True)
            change[:] = 0
            _add(change, arriving, noise, drops, 2 * block, first)
            turn_matrix(change, turned)
            add_product(mixed, turned, made[3 * w : 4 * w])
            _sum(change, summed[3 * w : 4 * w])
            of_normed[:] = 0
            add_product(following, change, of_normed)
            _through_attention(
                of_normed.reshape(shape), qkv.reshape((3, heads, w // heads, n, LANES)),
                hidden[group] if masked else hidden[0], masked, causal, of_qkv,
            )  # fmt: skip
            turn_matrix(normed, turned)
            add_product(of_wide[: 3 * w], turned, made[: 3 * w])
            _sum(of_wide[: 3 * w], summed[: 3 * w])
            of_normed[:] = 0
            add_product(weight, of_wide[: 3 * w], of_normed)
            through_norm(of_normed, normed, scale, total, along, arriving)
        leave(arriving, first, out)


@jit
def enter(x: Any, first: Any, out: Any) -> None:
    """Lists first.. of ``x (rows, n, width)`` as columns; lanes without a list are 0."""
    rows, n, width = x.shape
    if first + LANES > rows:
        out[:] = 0
    for t in range(n):
        for lane in range(min(LANES, rows - first)):
            for f in range(width):
                out[f, t * LANES + lane] = x[first + lane, t, f]


@jit
def leave(x: Any, first: Any, out: Any) -> None:
    rows, n, width = out.shape
    for t in range(n):
        for lane in range(min(LANES, rows - first)):
            for f in range(width):
                out[first + lane, t, f] = x[f, t * LANES + lane]


@jit
def turn_matrix(x: Any, out: Any) -> None:
    for c in range(x.shape[1]):
        for f in range(len(x)):
            out[c, f] = x[f, c]


@jit
def _fill(out: Any, bias: Any) -> None:
    for f in range(len(out)):
        out[f] = bias[f]


@jit
def _add_bias(out: Any, bias: Any) -> None:
    for f in range(len(out)):
        out[f] += bias[f]


@jit
def _sum(x: Any, out: Any) -> None:
    """Add the columns to lanes."""
    for f in range(len(x)):
        for t in range(x.shape[1] // LANES):
            for lane in range(LANES):
                out[f, lane] += x[f, t * LANES + lane]


@jit
def _add(stream: Any, change: Any, noise: Any, drops: Any, half: Any, first: Any) -> None:
    """Add to the stream what a half block made of it, with its dropout."""
    if not drops:
        stream += change
        return
    _, rows, n, width = noise.shape
    for t in range(n):
        for lane in range(min(LANES, rows - first)):
            c = t * LANES + lane
            for f in range(width):
                stream[f, c] += change[f, c] * noise[half, first + lane, t, f]


@jit
def norm(x: Any, eps: Any, mean: Any, normed: Any, scale: Any) -> None:
    """The columns of x, centred and scaled to a variance of one; the scale is kept."""
    width, columns = x.shape
    kind = x.dtype.type
    share = kind(1.0 / width)
    mean[:] = 0
    scale[:] = 0
    for f in range(width):
        for c in range(columns):
            mean[c] += x[f, c]
    for c in range(columns):
        mean[c] *= share
    for f in range(width):
        for c in range(columns):
            away = x[f, c] - mean[c]
            normed[f, c] = away
            scale[c] += away * away
    for c in range(columns):
        scale[c] = kind(1.0) / kind(math.sqrt(scale[c] * share + kind(eps)))
    for f in range(width):
        for c in range(columns):
            normed[f, c] *= scale[c]


@jit
def through_norm(of_normed: Any, normed: Any, scale: Any, total: Any, along: Any, of_x: Any) -> None:
    """Add to ``of_x`` what comes back through :func:`norm`."""
    width, columns = normed.shape
    share = normed.dtype.type(1.0 / width)
    total[:] = 0
    along[:] = 0
    for f in range(width):
        for c in range(columns):
            total[c] += of_normed[f, c]
            along[c] += of_normed[f, c] * normed[f, c]
    for c in range(columns):
        total[c] *= share
        along[c] *= share
    for f in range(width):
        for c in range(columns):
            of_x[f, c] += (of_normed[f, c] - total[c] - normed[f, c] * along[c]) * scale[c]


@jit
def gelu(u: Any, out: Any, keeps: Any) -> None:
    """``out`` is GELU of a flat u; with ``keeps`` its derivative is left in u."""
    kind = u.dtype.type
    zero, one, half, root = kind(0.0), kind(1.0), kind(0.5), kind(1 / math.sqrt(2 * math.pi))
    if keeps:
        for i in range(u.size):
            x = u[i]
            density = exp(-half * x * x)
            above = tail(abs(x), density)
            below = above if x < zero else one - above
            out[i] = x * below
            u[i] = below + x * density * root
    else:
        for i in range(u.size):
            x = u[i]
            above = tail(abs(x), exp(-half * x * x))
            out[i] = x * (above if x < zero else one - above)


@jit
def _weights(query: Any, key: Any, n: Any, size: Any, hidden: Any, masked: Any, stop: Any, p: Any) -> None:
    """What a token of each list gives to tokens 0..stop-1: to ``p (tokens, lanes)``, 0 after them.

    ``query`` and ``key`` are the addresses of the token's query and of the first key."""
    kind = p.dtype.type
    item = np.int64(p.itemsize)
    scale, lowest, zero = kind(1.0 / math.sqrt(size)), kind(-1e30), kind(0)
    across = LANES * item
    for j in range(stop):
        dot(query, n * across, key + j * across, n * across, size, p.ctypes.data + j * across, zero)
    highest, total = np.full(LANES, lowest, p.dtype), np.zeros(LANES, p.dtype)
    for j in range(stop):
        for lane in range(LANES):
            x = p[j, lane] * scale
            if masked and hidden[j, lane]:
                x = lowest
            p[j, lane] = x
            highest[lane] = max(highest[lane], x)
    for j in range(stop):
        for lane in range(LANES):
            x = p[j, lane]
            w = exp(x - highest[lane])
            w = zero if x <= lowest else w
            p[j, lane] = w
            total[lane] += w
    for lane in range(LANES):
        total[lane] = kind(1) / total[lane] if total[lane] > zero else zero
    for j in range(stop):
        for lane in range(LANES):
            p[j, lane] *= total[lane]
    p[stop:] = zero


@jit
def _attention(qkv: Any, hidden: Any, masked: Any, causal: Any, out: Any) -> None:
    """Self-attention of ``qkv (3, heads, size, tokens, LANES)`` to ``out (heads, size, tokens, LANES)``."""
    _, heads, size, n, _ = qkv.shape
    item, zero = np.int64(qkv.itemsize), qkv.dtype.type(0)
    across = LANES * item
    whole = size * n * across
    p = np.empty((n, LANES), qkv.dtype)
    for h in range(heads):
        query, there = qkv.ctypes.data + h * whole, out.ctypes.data + h * whole
        key, value = query + heads * whole, query + 2 * heads * whole
        for i in range(n):
            stop = i + 1 if causal else n
            _weights(query + i * across, key, n, size, hidden, masked, stop, p)
            for d in range(size):
                line = d * n * across
                dot(p.ctypes.data, across, value + line, across, stop, there + line + i * across, zero)


@jit
def _through_attention(of_out: Any, qkv: Any, hidden: Any, masked: Any, causal: Any, of_qkv: Any) -> None:
    """``of_qkv`` is the gradient of ``qkv``; the rest as in :func:`_attention`."""
    _, heads, size, n, _ = qkv.shape
    kind = qkv.dtype.type
    item, zero, scale = np.int64(qkv.itemsize), kind(0), kind(1.0 / math.sqrt(size))
    across = LANES * item
    whole = size * n * across
    p, s = np.empty((n, n, LANES), qkv.dtype), np.empty((n, n, LANES), qkv.dtype)
    along = np.empty(LANES, qkv.dtype)
    for h in range(heads):
        query, of_query = qkv.ctypes.data + h * whole, of_qkv.ctypes.data + h * whole
        key, value = query + heads * whole, query + 2 * heads * whole
        of_key, of_value = of_query + heads * whole, of_query + 2 * heads * whole
        mixed = of_out.ctypes.data + h * whole
        for i in range(n):
            stop = i + 1 if causal else n
            _weights(query + i * across, key, n, size, hidden, masked, stop, p[i])
            for j in range(stop):
                there = s.ctypes.data + (i * n + j) * across
                dot(mixed + i * across, n * across, value + j * across, n * across, size, there, zero)
            for lane in range(LANES):
                along[lane] = zero
            for j in range(stop):
                for lane in range(LANES):
                    along[lane] += p[i, j, lane] * s[i, j, lane]
            for j in range(stop):
                for lane in range(LANES):
                    s[i, j, lane] = p[i, j, lane] * (s[i, j, lane] - along[lane]) * scale
            s[i, stop:] = zero
        weights, slopes = p.ctypes.data, s.ctypes.data
        for d in range(size):
            line = d * n * across
            for i in range(n):
                at = line + i * across
                dot(slopes + i * n * across, across, key + line, across, n, of_query + at, zero)
                dot(slopes + i * across, n * across, query + line, across, n, of_key + at, zero)
                dot(weights + i * across, n * across, mixed + line, across, n, of_value + at, zero)
