"""Compiled loops over comparisons of two items. Imported only when they run, since numba loads slowly."""

import numpy as np
from numba import njit


@njit(cache=True)
def add_up(first, second, codes, weights, table):  # type: ignore[no-untyped-def]
    """Add the weight of each comparison to ``table[low, high, outcome]``.

    The outcome, 0 if the first item wins, 1 if the second, 2 for a tie, is turned with the pair. Without
    weights each comparison counts once.
    """
    weighted = len(weights) > 0
    for row in range(len(first)):
        a, b, code = first[row], second[row], codes[row]
        weight = weights[row] if weighted else 1.0
        if a < b:
            table[a, b, code] += weight
        else:
            table[b, a, 1 - code if code < 2 else 2] += weight


@njit(cache=True)
def add_to_items(values, first, second, a, b, out):  # type: ignore[no-untyped-def]
    """Add a times each row of ``values (sets, rows)`` to its first item and b times to its second, in
    ``out (sets, n)``."""
    for index in range(len(values)):
        for row in range(len(first)):
            value = values[index, row]
            out[index, first[row]] += a * value
            out[index, second[row]] += b * value


@njit(cache=True)
def add_to_pairs(values, first, second, a, b, c, d, out):  # type: ignore[no-untyped-def]
    """Add each row of ``values (sets, rows)``, times the outer product of (a, b) and (c, d) at its two items,
    to ``out (sets, n, n)``."""
    for index in range(len(values)):
        for row in range(len(first)):
            value, i, j = values[index, row], first[row], second[row]
            out[index, i, i] += a * c * value
            out[index, j, j] += b * d * value
            out[index, i, j] += a * d * value
            out[index, j, i] += b * c * value


@njit(cache=True)
def pair_up(left, left_items, right, right_items, pairs):  # type: ignore[no-untyped-def]
    """Write the items of two columns of numbers, ``left_items[left]`` and ``right_items[right]``, into
    ``pairs (rows, 2)``."""
    for row in range(len(left)):
        pairs[row, 0] = left_items[left[row]]
        pairs[row, 1] = right_items[right[row]]


@njit(cache=True)
def first_fault(pairs, n):  # type: ignore[no-untyped-def]
    """The first row of ``pairs (rows, 2)`` that does not hold two different items of 0..n-1; -1 if none."""
    for row in range(len(pairs)):
        a, b = pairs[row, 0], pairs[row, 1]
        if a < 0 or a >= n or b < 0 or b >= n or a == b:
            return row
    return -1


@njit(cache=True, fastmath={"nnan", "reassoc", "nsz", "contract"})
def largest_errors(errors, scale, shift, out):  # type: ignore[no-untyped-def]
    """``out[draw, j]``: the largest of ``(errors[draw, j] - errors[draw, k]) * scale[j, k] + shift[j, k]``.

    A shift of minus infinity leaves a pair out. There is no branch in the inner loop, so that it is vectors.
    """
    draws, n = errors.shape
    for draw in range(draws):
        for j in range(n):
            mine, largest = errors[draw, j], -np.inf
            for k in range(n):
                largest = max(largest, (mine - errors[draw, k]) * scale[j, k] + shift[j, k])
            out[draw, j] = largest
