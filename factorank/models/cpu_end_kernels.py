"""The ends of the network on CPUs as numba kernels, on tokens ``(tokens, width)``."""

import math
from typing import Any

import numpy as np

from factorank.models.cpu_vectors import exp, jit


@jit
def close(
    x: Any, change: Any, bias: Any, noise: Any, adds: Any, drops: Any, out: Any,
    gain: Any, shift: Any, eps: Any, norms: Any, normed: Any, means: Any, scales: Any,
) -> None:  # fmt: skip
    """The end of a half block and the norm that begins the next, on ``(tokens, width)``.

    With ``adds``, ``out`` is x and what the half adds to it: the product ``change``, its bias, and dropout by
    ``noise``. With ``norms``, ``normed`` is the layer norm of that; its means and reciprocal deviations are
    kept for the gradient.
    """
    width = x.shape[1]
    kind = x.dtype.type
    share = kind(1.0 / width)
    for t in range(x.shape[0]):
        if adds:
            if drops:
                for w in range(width):
                    out[t, w] = x[t, w] + (change[t, w] + bias[w]) * noise[t, w]
            else:
                for w in range(width):
                    out[t, w] = x[t, w] + (change[t, w] + bias[w])
        if not norms:
            continue
        mean = kind(0)
        for w in range(width):
            mean += out[t, w]
        mean *= share
        square = kind(0)
        for w in range(width):
            square += (out[t, w] - mean) * (out[t, w] - mean)
        scale = kind(1.0) / kind(math.sqrt(square * share + kind(eps)))
        means[t], scales[t] = mean, scale
        for w in range(width):
            normed[t, w] = (out[t, w] - mean) * scale * gain[w] + shift[w]


@jit
def through_norm(of_normed: Any, x: Any, means: Any, scales: Any, gain: Any, of_x: Any) -> None:
    """Add to ``of_x`` what comes back through a norm of x; ``of_normed`` becomes each token's part of the
    gradient of the gain."""
    width = x.shape[1]
    kind = x.dtype.type
    share = kind(1.0 / width)
    for t in range(x.shape[0]):
        mean, scale = means[t], scales[t]
        along, total = kind(0), kind(0)
        for w in range(width):
            total += of_normed[t, w] * gain[w]
            along += of_normed[t, w] * gain[w] * (x[t, w] - mean)
        total *= share
        along *= share * scale * scale
        for w in range(width):
            of_x[t, w] += (of_normed[t, w] * gain[w] - total - (x[t, w] - mean) * along) * scale
        for w in range(width):
            of_normed[t, w] *= (x[t, w] - mean) * scale


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
def through_values(of_out: Any, code: Any, of_values: Any) -> None:
    """Add the gradient of each token to that of the row its code names."""
    for t in range(code.size):
        value = code[t]
        for w in range(of_out.shape[1]):
            of_values[value, w] += of_out[t, w]


@jit
def choose(logits: Any, table: Any, allowed: Any, code: Any, chosen: Any) -> None:
    """``chosen`` is the log-probability of each token's value, among those allowed at its place.

    ``logits (tokens, n)`` lack the table's row ``(n, n)`` of the place; they become the probabilities.
    """
    n = logits.shape[1]
    kind = logits.dtype.type
    lowest, zero = kind(-np.inf), kind(0)
    for t in range(code.size):
        place = t % n
        if not 0 <= code[t] < n:
            chosen[t] = np.nan
            logits[t] = np.nan
            continue
        highest = lowest
        for v in range(n):
            x = logits[t, v] + table[place, v] if allowed[place, v] else lowest
            logits[t, v] = x
            highest = max(highest, x)
        mine = logits[t, code[t]] - highest
        total = zero
        for v in range(n):
            w = exp(max(logits[t, v] - highest, kind(-1e30))) if allowed[place, v] else zero
            logits[t, v] = w
            total += w
        chosen[t] = mine - kind(math.log(total))
        total = kind(1) / total
        for v in range(n):
            logits[t, v] *= total


@jit
def through_choice(of_chosen: Any, probabilities: Any, code: Any, out: Any) -> None:
    """``out (tokens, n)`` is the gradient of the logits."""
    for t in range(code.size):
        g = of_chosen[t]
        for v in range(out.shape[1]):
            out[t, v] = -g * probabilities[t, v]
        if 0 <= code[t] < out.shape[1]:
            out[t, code[t]] += g
