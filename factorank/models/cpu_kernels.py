"""A stack of transformer blocks as two numba kernels: there and back.

``LANES`` lists, a group, go through all blocks together, a number of each in every lane of a vector. What a
group has lies as ``(features, tokens, lanes)``, tokens and lanes also taken as one axis of columns: nothing
is gathered and nothing summed across a vector, and a group stays in the cache. The functions hold no lock and
no state: callers may split groups over threads.

The gain and shift of a norm are part of the weights that follow it (:func:`fold`), and their gradients come
from those of these weights (:func:`unfold`).
"""

from typing import Any

import numpy as np

from factorank.models.cpu_layers import (
    add_bias,
    add_change,
    add_columns,
    attention,
    enter,
    fill,
    gelu,
    leave,
    norm,
    through_attention,
    through_norm,
    turn_matrix,
)
from factorank.models.cpu_vectors import LANES, add_product, jit


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
    stream = np.empty((width, n * LANES), x.dtype)
    for group in range(start, end):
        first, here = group * LANES, group if masked else 0
        enter(x, first, stream)
        mine = room[group if keeps else 0]
        some = len(positions) > 0
        there(
            stream, hidden[here], masked, causal, noise, drops, weights[: depth - 1] if some else weights,
            heads, eps, first, keeps, mine,
        )  # fmt: skip
        if some:
            mix(stream, hidden[here], masked, causal, weights[depth - 1], heads, eps, mine[0])
            _rest_of_some(stream, _parts(mine[0], width)[3], positions, first, weights[depth - 1], eps, out)
        else:
            leave(stream, first, out)


@jit
def there(
    stream: Any, hidden: Any, masked: Any, causal: Any, noise: Any, drops: Any, weights: Any, heads: Any,
    eps: Any, first: Any, keeps: Any, room: Any,
) -> None:  # fmt: skip
    """``stream (width, columns)`` of the group of list ``first`` through blocks; the rest as in
    :func:`forward`, whose ``room`` has a row for each block or, if nothing is kept, one for all."""
    width, columns = stream.shape
    change, mean = np.empty((width, columns), stream.dtype), np.empty(columns, stream.dtype)
    for block in range(len(weights)):
        mine = room[block if keeps else 0]
        mix(stream, hidden, masked, causal, weights[block], heads, eps, mine)
        _, _, _, mixed, normed, scale, slope, active = _parts(mine, width)
        _, _, following, last_bias = _half(weights[block], width, True)
        fill(change, last_bias)
        add_product(following, mixed, change)
        add_change(stream, change, noise, drops, 2 * block, first)
        weight, bias, following, last_bias = _half(weights[block], width, False)
        norm(stream, eps, mean, normed, scale)
        fill(slope, bias)
        add_product(weight, normed, slope)
        gelu(slope.reshape(-1), active.reshape(-1), keeps)
        fill(change, last_bias)
        add_product(following, active, change)
        add_change(stream, change, noise, drops, 2 * block + 1, first)


@jit
def mix(
    stream: Any, hidden: Any, masked: Any, causal: Any, weights: Any, heads: Any, eps: Any, room: Any
) -> None:
    """What attention mixes of the stream, to its part of the room of a block."""
    width, columns = stream.shape
    normed, scale, qkv, mixed, _, _, _, _ = _parts(room, width)
    weight, bias, _, _ = _half(weights, width, True)
    norm(stream, eps, np.empty(columns, stream.dtype), normed, scale)
    fill(qkv, bias)
    add_product(weight, normed, qkv)
    shape = (heads, width // heads, columns // LANES, LANES)
    attention(qkv.reshape((3, *shape)), hidden, masked, causal, mixed.reshape(shape))


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
    add_bias(x, last_bias)
    add_product(following, taken, x)
    weight, bias, following, last_bias = _half(weights, width, False)
    mean, scale = np.empty(columns, x.dtype), np.empty(columns, x.dtype)
    norm(x, eps, mean, taken, scale)
    wide, active = np.empty((4 * width, columns), x.dtype), np.empty((4 * width, columns), x.dtype)
    fill(wide, bias)
    add_product(weight, taken, wide)
    gelu(wide.reshape(-1), active.reshape(-1), False)
    add_bias(x, last_bias)
    add_product(following, active, x)
    leave(x, first, out)


@jit
def backward(
    gradient: Any, hidden: Any, masked: Any, causal: Any, noise: Any, drops: Any, turned: Any, heads: Any,
    start: Any, end: Any, kept: Any, out: Any, products: Any, sums: Any,
) -> None:  # fmt: skip
    """``out (rows, n, width)`` is the gradient of x, given that of what :func:`forward` made.

    ``products (depth, 12 width, width up to LANES)`` and ``sums (depth, 9 width, LANES)`` become the
    gradients of the folded weights, in the order of the blocks but ``(in, out)`` where nothing is normed
    before, and of the biases, by lane.
    """
    n, width = gradient.shape[1:]
    products[:] = 0
    sums[:] = 0
    arriving = np.empty((width, n * LANES), gradient.dtype)
    room = room_back(arriving, products)
    for group in range(start, end):
        first, here = group * LANES, group if masked else 0
        enter(gradient, first, arriving)
        back(
            arriving, hidden[here], masked, causal, noise, drops, turned, heads, first, kept[group], room,
            products, sums,
        )  # fmt: skip
        leave(arriving, first, out)


@jit
def room_back(arriving: Any, products: Any) -> Any:
    """Room for :func:`back` to work in."""
    (width, columns), dtype = arriving.shape, arriving.dtype
    # Rows of a power of two would share few lines of a cache: a vector more spreads them.
    turned = np.zeros((columns, products.shape[-1] + LANES), dtype)
    narrow, wide = np.empty((2, width, columns), dtype), np.empty((4 * width, columns), dtype)
    return turned, narrow[0], narrow[1], wide, np.empty(columns, dtype), np.empty(columns, dtype)


@jit
def back(
    arriving: Any, hidden: Any, masked: Any, causal: Any, noise: Any, drops: Any, turned_weights: Any,
    heads: Any, first: Any, kept: Any, room: Any, products: Any, sums: Any,
) -> None:  # fmt: skip
    """The gradient ``arriving (width, columns)`` of a group back through what :func:`there` kept; to products
    and sums, as in :func:`backward`, is added."""
    w, columns = arriving.shape
    turned, change, of_normed, of_wide, total, along = room
    shape = (heads, w // heads, columns // LANES, LANES)
    for block in range(len(turned_weights) - 1, -1, -1):
        normed, scale, qkv, mixed, mlp_normed, mlp_scale, slope, active = _parts(kept[block], w)
        made, summed = products[block], sums[block]

        weight, following = _turned_half(turned_weights[block], w, False)
        change[:] = 0
        add_change(change, arriving, noise, drops, 2 * block + 1, first)
        turn_matrix(change, turned)
        add_product(active, turned, made[8 * w :])
        add_columns(change, summed[8 * w :])
        of_wide[:] = 0
        add_product(following, change, of_wide)
        of_wide *= slope
        turn_matrix(mlp_normed, turned)
        add_product(of_wide, turned, made[4 * w : 8 * w])
        add_columns(of_wide, summed[4 * w : 8 * w])
        of_normed[:] = 0
        add_product(weight, of_wide, of_normed)
        through_norm(of_normed, mlp_normed, mlp_scale, total, along, arriving)

        weight, following = _turned_half(turned_weights[block], w, True)
        change[:] = 0
        add_change(change, arriving, noise, drops, 2 * block, first)
        turn_matrix(change, turned)
        add_product(mixed, turned, made[3 * w : 4 * w])
        add_columns(change, summed[3 * w : 4 * w])
        of_normed[:] = 0
        add_product(following, change, of_normed)
        of_qkv = of_wide[: 3 * w]
        through_attention(
            of_normed.reshape(shape), qkv.reshape((3, *shape)), hidden, masked, causal,
            of_qkv.reshape((3, *shape)),
        )  # fmt: skip
        turn_matrix(normed, turned)
        add_product(of_qkv, turned, made[: 3 * w])
        add_columns(of_qkv, summed[: 3 * w])
        of_normed[:] = 0
        add_product(weight, of_qkv, of_normed)
        through_norm(of_normed, normed, scale, total, along, arriving)
