"""The ends of the network on CPUs as numba kernels: codes to tokens, tokens to log-probabilities."""

import math
from typing import Any

import numpy as np

from factorank.models.cpu_kernels import enter, leave, norm, through_norm, turn_matrix
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
    n, width, count = x.shape[1], x.shape[2], len(weight)
    kind = x.dtype.type
    zero, lowest = kind(0), kind(-1e30)
    stream, mean = np.empty((width, n * LANES), x.dtype), np.empty(n * LANES, x.dtype)
    highest, total = np.empty(n * LANES, x.dtype), np.empty(n * LANES, x.dtype)
    for group in range(start, end):
        first, p = group * LANES, logits[group]
        enter(x, first, stream)
        norm(stream, eps, mean, normed[group], scale[group])
        for v in range(count):
            for t in range(n):
                p[v, t * LANES : (t + 1) * LANES] = bias[v] + table[t, v]
        add_product(weight, normed[group], p)
        highest[:] = lowest
        total[:] = zero
        for v in range(count):
            for t in range(n):
                for c in range(t * LANES, (t + 1) * LANES):
                    p[v, c] = p[v, c] if allowed[t, v] else lowest
                    highest[c] = max(highest[c], p[v, c])
        for lane in range(min(LANES, len(code) - first)):
            for t in range(n):
                value, c = code[first + lane, t], t * LANES + lane
                there = 0 <= value < count
                chosen[first + lane, t] = p[value, c] - highest[c] if there else kind(np.nan)
        for v in range(count):
            for c in range(n * LANES):
                w = exp(p[v, c] - highest[c])
                w = zero if p[v, c] <= lowest else w
                p[v, c] = w
                total[c] += w
        for lane in range(min(LANES, len(code) - first)):
            for t in range(n):
                value = code[first + lane, t]
                if 0 <= value < count and not allowed[t, value]:
                    chosen[first + lane, t] = kind(-np.inf)
                else:
                    chosen[first + lane, t] -= kind(math.log(total[t * LANES + lane]))
        for c in range(n * LANES):
            total[c] = kind(1) / total[c]
        for v in range(count):
            for c in range(n * LANES):
                p[v, c] *= total[c]


@jit
def through_choice(
    of_chosen: Any, code: Any, turned: Any, start: Any, end: Any, normed: Any, scale: Any, probabilities: Any,
    of_x: Any, products: Any, of_table: Any,
) -> None:  # fmt: skip
    """``of_x (rows, n, width)`` is the gradient of x; to those of weight and table is added.

    ``turned (width, values)`` is the weight; ``products (values, width up to LANES)`` its gradient.
    """
    rows, n, width = of_x.shape
    count = turned.shape[1]
    columns, dtype = n * LANES, of_x.dtype
    of_logits, of_normed = np.empty((count, columns), dtype), np.empty((width, columns), dtype)
    total, along = np.empty(columns, dtype), np.empty(columns, dtype)
    arriving, there = np.empty((width, columns), dtype), np.zeros((columns, products.shape[1] + LANES), dtype)
    for group in range(start, end):
        first, p = group * LANES, probabilities[group]
        total[:] = 0
        for lane in range(min(LANES, rows - first)):
            for t in range(n):
                total[t * LANES + lane] = of_chosen[first + lane, t]
        for v in range(count):
            for c in range(columns):
                of_logits[v, c] = -total[c] * p[v, c]
        for lane in range(min(LANES, rows - first)):
            for t in range(n):
                value = code[first + lane, t]
                if 0 <= value < count:
                    of_logits[value, t * LANES + lane] += of_chosen[first + lane, t]
        for v in range(count):
            for t in range(n):
                of_table[t, v] += of_logits[v, t * LANES : (t + 1) * LANES].sum()
        turn_matrix(normed[group], there)
        add_product(of_logits, there, products)
        of_normed[:] = 0
        add_product(turned, of_logits, of_normed)
        arriving[:] = 0
        through_norm(of_normed, normed[group], scale[group], total, along, arriving)
        leave(arriving, first, of_x)
