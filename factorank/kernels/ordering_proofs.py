"""Proofs for the linear ordering problem, compiled: an upper bound of the value, and all best orders.

Margins and values are those of ``ordering.py``, in float64. Write s[a, b] = 1 if a is above b, else -1. In
any order s[a, b] + s[b, c] + s[c, a] is 1 or -1: no three items form a cycle. With a multiplier y for each
triple of items the value ½ Σ m s is at most ½ (Σ |m - g| + Σ |y|), where g[a, b] is the sum of the
multipliers of the triples around a and b, with their signs. :func:`triangle_bound` lowers this bound.
:func:`all_best` uses it in a search over the sets of items that can fill the first places.
"""

import itertools
from typing import NamedTuple

import numpy as np
from numba import njit


class Bound(NamedTuple):
    """No order is worth more than ``value``; where that comes from."""

    value: float
    reduced: np.ndarray
    """The margins m - g ``(n, n)``."""
    multipliers: np.ndarray
    """y, for each triple a < b < c in lexicographic order."""


def triangle_bound(margins: np.ndarray, target: float, iterations: int) -> Bound:
    """The least bound found.

    Primal-dual hybrid gradient (Chambolle and Pock, 2011) on the linear programme over s in [-1, 1] with all
    triangle inequalities. It stops when the bound is below ``target``.
    """
    n = len(margins)
    triples = n * (n - 1) * (n - 2) // 6
    simple = Bound(float(np.abs(margins).sum()) / 4, margins, np.zeros(triples))
    if iterations == 0 or triples == 0 or simple.value == 0:
        return simple
    scale = 4 * simple.value / n**2
    m = np.triu(margins / scale)
    s, sums, y = np.sign(m), np.zeros((2, n, n)), np.zeros((2, triples))
    value = scale * _primal_dual(m, s, s.copy(), sums, y, target / scale, iterations)
    if value >= simple.value:
        return simple
    return Bound(value, margins - (sums[1] - sums[1].T) * scale, y[1] * scale)


def all_best(
    margins: np.ndarray, bound: Bound, target: float, tiny: float, most: int
) -> tuple[np.ndarray, float]:
    """A best order of at most 64 items and how many there are, if some order is worth ``target``.

    Dynamic programming over the sets that fill the first places, from the empty one upwards. A set is left
    out if what its best order is worth and the bound of what can follow stay below the target. What follows a
    set is bounded as the whole is: a triple with two members of the set adds nothing to it, since both are
    above the third. Orders that differ by ``tiny`` are equally good. The number is 0 if more than ``most``
    sets were met: nothing is proven then.
    """
    n = len(margins)
    cube, items = np.zeros((n, n, n)), np.arange(n)
    triples = np.nonzero((items[:, None, None] < items[:, None]) & (items[:, None] < items))
    for a, b, c in itertools.permutations(triples):
        cube[a, b, c] = np.abs(bound.multipliers)
    return _over_sets(margins, bound.value, bound.reduced, cube, target, tiny, most)


@njit(cache=True)
def _primal_dual(m, s, ahead, sums, multipliers, target, iterations):  # type: ignore[no-untyped-def]
    """Lowers the bound; the best g and y are left in ``sums[1]`` and ``multipliers[1]``."""
    n = len(m)
    primal, dual = 2 * 0.99 / np.sqrt(n), 0.5 * 0.99 / np.sqrt(n)
    g, y, best = sums[0], multipliers[0], np.inf
    for _ in range(iterations):
        for a in range(n):
            for b in range(n):
                g[a, b] = 0.0
        bound, t = 0.0, 0
        for a in range(n):
            for b in range(a + 1, n):
                around = 0.0
                for c in range(b + 1, n):
                    value = y[t] + dual * (ahead[a, b] + ahead[b, c] - ahead[a, c])
                    value = max(value - dual, 0.0) + min(value + dual, 0.0)
                    y[t] = value
                    bound += abs(value)
                    around += value
                    g[b, c] += value
                    g[a, c] -= value
                    t += 1
                g[a, b] += around
        for a in range(n):
            for b in range(a + 1, n):
                rest = m[a, b] - g[a, b]
                bound += abs(rest)
                after = min(max(s[a, b] + primal * rest, -1.0), 1.0)
                ahead[a, b] = 2 * after - s[a, b]
                s[a, b] = after
        if bound / 2 < best:
            best = bound / 2
            for a in range(n):
                for b in range(n):
                    sums[1, a, b] = g[a, b]
            for t in range(len(y)):
                multipliers[1, t] = y[t]
            if best < target:
                break
    return best


@njit(cache=True)
def _over_sets(margins, bound, reduced, multipliers, target, tiny, most):  # type: ignore[no-untyped-def]
    n = len(margins)
    size = 1
    while size < 2 * most:
        size *= 2
    table = np.full(size, -1, dtype=np.int32)
    sets = np.zeros(most, dtype=np.uint64)
    worth, follows, ways = np.zeros(most), np.zeros(most), np.zeros(most)
    parent, last = np.zeros(most, dtype=np.int32), np.zeros(most, dtype=np.int8)
    above = _needed(reduced, bound, target - tiny)
    follows[0], ways[0], met, state = bound, 1.0, 1, 0
    while state < met:
        members = sets[state]
        for x in range(n):
            bit = np.uint64(1) << np.uint64(x)
            if members & bit or above[x] & ~members:
                continue
            gain, left = 0.0, 0.0
            for a in range(n):
                if (members >> np.uint64(a)) & np.uint64(1):
                    gain += margins[a, x]
                    left += reduced[a, x]
                elif a != x:
                    left += abs(reduced[x, a]) - reduced[x, a]
            value, rest = worth[state] + gain / 2, follows[state] - left / 2
            if value + rest < target - tiny:
                continue
            rest -= _crossing(multipliers[x], members, x) / 2
            if value + rest < target - tiny:
                continue
            after = members | bit
            slot = _slot(table, sets, after)
            index = table[slot]
            if index < 0:
                if met == most:
                    return np.zeros(n, dtype=np.int64), 0.0
                index = met
                met += 1
                table[slot] = index
                sets[index], worth[index], follows[index] = after, value, rest
                parent[index], last[index], ways[index] = state, x, ways[state]
            elif value > worth[index] + tiny:
                worth[index], parent[index], last[index], ways[index] = value, state, x, ways[state]
            elif value > worth[index] - tiny:
                ways[index] += ways[state]
        state += 1
    order, index = np.empty(n, dtype=np.int64), met - 1  # sets are met by size: the last one is the whole
    for place in range(n - 1, -1, -1):
        order[place] = last[index]
        index = parent[index]
    return order, ways[met - 1]


@njit(cache=True)
def _needed(reduced, bound, target):  # type: ignore[no-untyped-def]
    """For each item the set of those above it in every order that is worth the target."""
    n = len(reduced)
    above = np.zeros(n, dtype=np.uint64)
    for a in range(n):
        for x in range(n):
            if reduced[a, x] > 0 and bound - reduced[a, x] < target:
                above[x] |= np.uint64(1) << np.uint64(a)
    return above


@njit(cache=True)
def _crossing(multipliers, members, x):  # type: ignore[no-untyped-def]
    """The multipliers of the triples of x, a member and an item left over."""
    n = len(multipliers)
    total = 0.0
    for a in range(n):
        if (members >> np.uint64(a)) & np.uint64(1):
            for b in range(n):
                if b != x and not (members >> np.uint64(b)) & np.uint64(1):
                    total += multipliers[a, b]
    return total


@njit(cache=True)
def _slot(table, sets, members):  # type: ignore[no-untyped-def]
    """Where a set is in the table, or will be."""
    mask = np.uint64(len(table) - 1)
    slot = ((members * np.uint64(0x9E3779B97F4A7C15)) >> np.uint64(20)) & mask
    while table[slot] >= 0 and sets[table[slot]] != members:
        slot = (slot + np.uint64(1)) & mask
    return slot
