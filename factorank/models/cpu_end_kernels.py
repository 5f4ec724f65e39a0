"""The ends of the network on CPUs as numba kernels: codes to tokens, tokens to log-probabilities."""

import math
from typing import Any

import numpy as np

from factorank.models.cpu_layers import enter, leave, norm, through_norm, turn_matrix
from factorank.models.cpu_vectors import LANES, add_product, exp, jit


@jit
def embed(code: Any, values: Any, places: Any, out: Any) -> bool:
    """``out (tokens, width)``: the row of ``values`` that the token's code names, and that of its place.

    Says whether there is such a row for all of them."""
    n, width = places.shape
    for t in range(code.size):
        value, place = code[t], t % n
        if not 0 <= value < len(values):
            return False
        for w in range(width):
            out[t, w] = values[value, w] + places[place, w]
    return True


@jit
def through_embed(of_out: Any, code: Any, of_values: Any, of_places: Any) -> None:
    """Add the gradient of each token to those of the rows its code and its place name."""
    for t in range(code.size):
        value, place = code[t], t % len(of_places)
        for w in range(of_out.shape[1]):
            of_values[value, w] += of_out[t, w]
            of_places[place, w] += of_out[t, w]


@jit
def fold(weight: Any, gain: Any, shift: Any, folded: Any, bias: Any) -> None:
    """The weight that follows a norm without gain and shift, and its bias."""
    for v in range(len(weight)):
        total = weight.dtype.type(0)
        for k in range(weight.shape[1]):  # nothing but the sum: see ``cpu_kernels.fold``
            total += weight[v, k] * shift[k]
        bias[v] = total
        for k in range(weight.shape[1]):
            folded[v, k] = weight[v, k] * gain[k]


@jit
def unfold(
    weight: Any, gain: Any, shift: Any, products: Any, tables: Any, of_gain: Any, of_shift: Any,
    of_weight: Any, of_table: Any,
) -> None:  # fmt: skip
    """The gradients, from what :func:`through_choice` gave by part."""
    for part in range(1, len(products)):
        products[0] += products[part]
        tables[0] += tables[part]
    of_table[:] = tables[0]
    of_gain[:] = 0
    of_shift[:] = 0
    for v in range(len(weight)):
        total = weight.dtype.type(0)
        for t in range(len(of_table)):
            total += of_table[t, v]
        for k in range(weight.shape[1]):
            of_gain[k] += weight[v, k] * products[0, v, k]
            of_shift[k] += weight[v, k] * total
            of_weight[v, k] = products[0, v, k] * gain[k] + total * shift[k]


@jit
def choose(
    x: Any, code: Any, weight: Any, bias: Any, table: Any, allowed: Any, eps: Any, start: Any, end: Any,
    normed: Any, scale: Any, logits: Any, chosen: Any,
) -> None:  # fmt: skip
    """``chosen (rows, n)`` is the log-probability of each value of ``code``, among those allowed there.

    For groups start..end-1 of lists, as in ``cpu_kernels``. ``weight (values, width)`` and ``bias`` follow
    the norm; ``table (n, values)`` has a row for each place. ``normed (groups, width, columns)``, ``scale``
    and ``logits (groups, values, columns)``, which become probabilities, are kept for the way back.
    """
    n, width = x.shape[1:]
    stream = np.empty((width, n * LANES), x.dtype)
    for group in range(start, end):
        enter(x, group * LANES, stream)
        choose_in_group(
            stream, code[group * LANES :], weight, bias, table, allowed, eps, normed[group], scale[group],
            logits[group], chosen[group * LANES :],
        )  # fmt: skip


@jit
def choose_in_group(
    stream: Any, code: Any, weight: Any, bias: Any, table: Any, allowed: Any, eps: Any, normed: Any,
    scale: Any, p: Any, chosen: Any,
) -> None:  # fmt: skip
    """The same for a group's ``stream (width, columns)``, and the code that begins with its first list."""
    columns, count = stream.shape[1], len(weight)
    n, lists = columns // LANES, min(LANES, len(code))
    kind = stream.dtype.type
    zero, lowest = kind(0), kind(-1e30)
    highest, total = np.full(columns, lowest, stream.dtype), np.zeros(columns, stream.dtype)
    norm(stream, eps, np.empty(columns, stream.dtype), normed, scale)
    for v in range(count):
        for t in range(n):
            p[v, t * LANES : (t + 1) * LANES] = bias[v] + table[t, v]
    add_product(weight, normed, p)
    for v in range(count):
        for t in range(n):
            for c in range(t * LANES, (t + 1) * LANES):
                p[v, c] = p[v, c] if allowed[t, v] else lowest
                highest[c] = max(highest[c], p[v, c])
    for lane in range(lists):
        for t in range(n):
            value, c = code[lane, t], t * LANES + lane
            there = 0 <= value < count
            chosen[lane, t] = p[value, c] - highest[c] if there else kind(np.nan)
    for v in range(count):
        for c in range(columns):
            w = exp(p[v, c] - highest[c])
            w = zero if p[v, c] <= lowest else w
            p[v, c] = w
            total[c] += w
    for lane in range(lists):
        for t in range(n):
            value = code[lane, t]
            if 0 <= value < count and not allowed[t, value]:
                chosen[lane, t] = kind(-np.inf)
            else:
                chosen[lane, t] -= kind(math.log(total[t * LANES + lane]))
    for c in range(columns):
        total[c] = kind(1) / total[c]
    for v in range(count):
        for c in range(columns):
            p[v, c] *= total[c]


@jit
def through_choice(
    of_chosen: Any, code: Any, turned: Any, start: Any, end: Any, normed: Any, scale: Any, probabilities: Any,
    of_x: Any, products: Any, of_table: Any,
) -> None:  # fmt: skip
    """``of_x (rows, n, width)`` is the gradient of x; to those of weight and table is added.

    ``turned (width, values)`` is the weight; ``products (values, width up to LANES)`` its gradient.
    """
    n, width = of_x.shape[1:]
    arriving = np.empty((width, n * LANES), of_x.dtype)
    for group in range(start, end):
        first = group * LANES
        through_choice_of_group(
            of_chosen[first:], code[first:], turned, normed[group], scale[group], probabilities[group],
            arriving, products, of_table,
        )  # fmt: skip
        leave(arriving, first, of_x)


@jit
def through_choice_of_group(
    of_chosen: Any, code: Any, turned: Any, normed: Any, scale: Any, p: Any, arriving: Any, products: Any,
    of_table: Any,
) -> None:  # fmt: skip
    """The same for a group: ``arriving (width, columns)`` is the gradient of its stream."""
    (width, columns), count, dtype = normed.shape, len(p), normed.dtype
    n, lists = columns // LANES, min(LANES, len(code))
    of_logits, of_normed = np.empty((count, columns), dtype), np.zeros((width, columns), dtype)
    total, along = np.zeros(columns, dtype), np.empty(columns, dtype)
    there = np.zeros((columns, products.shape[1] + LANES), dtype)
    for lane in range(lists):
        for t in range(n):
            total[t * LANES + lane] = of_chosen[lane, t]
    for v in range(count):
        for c in range(columns):
            of_logits[v, c] = -total[c] * p[v, c]
    for lane in range(lists):
        for t in range(n):
            value = code[lane, t]
            if 0 <= value < count:
                of_logits[value, t * LANES + lane] += of_chosen[lane, t]
    for v in range(count):
        for t in range(n):
            of_table[t, v] += of_logits[v, t * LANES : (t + 1) * LANES].sum()
    turn_matrix(normed, there)
    add_product(of_logits, there, products)
    add_product(turned, of_logits, of_normed)
    arriving[:] = 0
    through_norm(of_normed, normed, scale, total, along, arriving)
