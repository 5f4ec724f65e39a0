"""Compiled loops of dispersions: the moment equation, and generalized Mallows after moves of one item.

Imported only when they run, since numba loads slowly.
"""

import numpy as np
from numba import njit


@njit(cache=True)
def geometric_mean(theta, size):  # type: ignore[no-untyped-def]
    """The mean of a variable on 0..size-1 with P(v) ∝ exp(-theta v); theta from 0 to infinity."""
    if theta * size < 0.02:  # the two terms below cancel; the series of x/(e^x - 1) does not
        return (size - 1) / 2 - theta * (size**2 - 1) / 12 + theta**3 * (size**4 - 1) / 720
    if theta > 700.0:  # e^700 is the end of a float64
        return 0.0
    far = size / np.expm1(theta * size) if theta * size < 700.0 else 0.0
    return 1 / np.expm1(theta) - far


@njit(cache=True)
def solve_dispersion(means, sizes, scales):  # type: ignore[no-untyped-def]
    """For each m the φ at which the scaled means of variables of ``sizes[m]`` add up to ``means[m]``."""
    result = np.empty(len(means))
    for m in range(len(means)):
        ceiling = 0.0
        for j in range(sizes.shape[1]):
            ceiling += scales[j] * (sizes[m, j] - 1) / 2
        if means[m] <= 0.0 or means[m] >= ceiling:
            result[m] = 0.0 if means[m] <= 0.0 else 1.0
            continue
        low, high = 0.0, 1.0
        for _ in range(64):  # halvings: beyond the last bit of a float64
            middle = (low + high) / 2
            theta = -np.log(middle)
            total = 0.0
            for j in range(sizes.shape[1]):
                total += scales[j] * geometric_mean(theta * scales[j], sizes[m, j])
            if total < means[m]:
                low = middle
            else:
                high = middle
        result[m] = high
    return result


@njit(cache=True)
def likelihood_after_moves(shares, table):  # type: ignore[no-untyped-def]
    """``[i, k]``: the generalized Mallows likelihood after moving place i's item to place k; -inf at i = k.

    ``shares[a, b]`` is the share of the votes that put the item of place a above that of place b. An item
    that passes a neighbour changes their two means by one such share, so each item is moved step by step,
    its own mean and the total carried along.
    """
    n = len(shares)
    means, own = np.zeros(n), np.empty(n)
    for i in range(n):
        for j in range(i):
            means[i] += shares[i, j]
        own[i] = _interpolate(means[i], i, table)
    values = np.full((n, n), -np.inf)
    for i in range(n):
        for step in (-1, 1):
            mine, here, total = means[i], own[i], own.sum()
            k = i + step
            while 0 <= k < n:
                mine += step * shares[i, k]
                moved = _interpolate(mine, k, table)
                total += moved - here - own[k] + _interpolate(means[k] - step * shares[k, i], k - step, table)
                here = moved
                values[i, k] = total
                k += step
    return values


@njit(cache=True)
def _interpolate(mean, place, table):  # type: ignore[no-untyped-def]
    """Interpolate ``table[place]``, whose columns are the squares of equal steps up to the mean place / 2."""
    last = table.shape[1] - 1
    spot = np.sqrt(min(max(2 * mean / max(place, 1), 0.0), 1.0)) * last
    low = min(int(spot), last - 1)
    share = spot - low
    return (1 - share) * table[place, low] + share * table[place, low + 1]
