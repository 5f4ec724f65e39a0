"""Sums over all orders by dynamic programming over sets of items.

Item a behind the set S costs ``Σ_{b in S} counts[a, b] + costs[a, |S|]``. Imported only when they run, since
numba loads slowly.
"""

import numpy as np
from numba import njit


@njit(cache=True)
def half_sums(counts):  # type: ignore[no-untyped-def]
    """``[h, a, T]``: the sum of ``counts[a, b]`` over the items b of T, a set of the lower or upper half."""
    n = len(counts)
    half = (n + 1) // 2
    tables = np.zeros((2, n, 1 << half))
    for upper in range(2):
        for a in range(n):
            for part in range(1, 1 << half):
                bit = 0
                while not (part >> bit) & 1:
                    bit += 1
                b = bit + upper * half
                more = counts[a, b] if b < n else 0.0
                tables[upper, a, part] = tables[upper, a, part & (part - 1)] + more
    return tables


@njit(cache=True)
def order_sums(tables, costs, theta):  # type: ignore[no-untyped-def]
    """``[S]``: the log of the sum of exp(-theta · cost) over the orders of the items of S."""
    n = len(costs)
    sums = np.zeros(1 << n)
    terms = np.empty(n)
    for subset in range(1, 1 << n):
        size = 0
        for a in range(n):
            size += (subset >> a) & 1
        largest = -np.inf
        for a in range(n):
            if (subset >> a) & 1:
                terms[a] = sums[subset ^ (1 << a)] - theta * _cost(tables, costs, a, subset, size)
                largest = max(largest, terms[a])
        total = 0.0
        for a in range(n):
            if (subset >> a) & 1:
                total += np.exp(terms[a] - largest)
        sums[subset] = largest + np.log(total)
    return sums


@njit(cache=True)
def draw_orders(tables, costs, theta, sums, uniforms):  # type: ignore[no-untyped-def]
    """Orders ``(draws, n)`` in proportion to exp(-theta · cost), from the last place to the first."""
    draws, n = uniforms.shape
    orders = np.empty((draws, n), dtype=np.int64)
    for draw in range(draws):
        subset = (1 << n) - 1
        for place in range(n - 1, -1, -1):
            target, chosen = uniforms[draw, place], -1
            for a in range(n):
                if (subset >> a) & 1:
                    chosen = a
                    cost = _cost(tables, costs, a, subset, place + 1)
                    target -= np.exp(sums[subset ^ (1 << a)] - theta * cost - sums[subset])
                    if target < 0.0:
                        break
            orders[draw, place] = chosen
            subset ^= 1 << chosen
    return orders


@njit(cache=True)
def _cost(tables, costs, a, subset, size):  # type: ignore[no-untyped-def]
    """Of item a as the last one of a set of this size; an item does not count against itself."""
    half = (len(costs) + 1) // 2
    low, high = subset & ((1 << half) - 1), subset >> half
    return costs[a, size - 1] + tables[0, a, low] + tables[1, a, high]
