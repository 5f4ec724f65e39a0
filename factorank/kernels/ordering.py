"""The linear ordering problem, compiled: orders that put above what beats by the largest margins.

``margins[a, b]`` is what having a above b is worth, ``margins[b, a]`` minus that. The value of an order is
half the sum over its pairs. :func:`search` finds good orders of any number of items. The proofs are in
``ordering_proofs.py``. Imported only when they run, since numba loads slowly.
"""

import math

import numpy as np
from numba import njit

KICKS = 10
"""Items that are moved at random before each descent."""
HOT, COLD = 20.0, 0.3
"""The first and the last temperature, in mean absolute margins."""


def search(margins: np.ndarray, start: np.ndarray, rounds: int, seed: int) -> np.ndarray:
    """The best order found by ``rounds`` descents on whole margins, each from a shaken end of another.

    Iterated local search over moves of one item. Ends are accepted as in simulated annealing. The result is
    never worse than ``start``. The sum of absolute margins of an item must be below 2^31.
    """
    n = len(start)
    orders = np.empty((3, n), dtype=np.uint32)  # the one at work, the last accepted and the best
    orders[:] = start
    scale = float(np.abs(margins).sum()) / max(n * (n - 1), 1)
    state = np.array([seed], dtype=np.uint64)
    _anneal(
        np.ascontiguousarray(margins, dtype=np.int32),
        orders,
        np.argsort(start).astype(np.uint32),
        np.empty((3, n), dtype=np.int32),
        state,
        scale,
        rounds,
    )
    return orders[2].astype(np.int64)


@njit(cache=True)
def _anneal(margins, orders, place, space, state, scale, rounds):  # type: ignore[no-untyped-def]
    """Descents; the first one is not shaken."""
    order, current, best = orders[0], orders[1], orders[2]
    n = len(order)
    kicks = min(KICKS, max(2, n // 4))
    value, best_value = 0, 0
    for number in range(rounds + 1):
        temperature = scale * HOT * (COLD / HOT) ** (number / (rounds + 1))
        after = value
        for _ in range(kicks if number > 0 else 0):
            source = np.int64(_random(state) % np.uint64(n))
            target = np.int64(_random(state) % np.uint64(n))
            after += _move(margins, order, place, source, target)
        after += _descend(margins, order, place, space)
        chance = np.float64(_random(state)) / 2.0**31
        if after >= value or chance < math.exp((after - value) / temperature):
            value = after
            for k in range(n):
                current[k] = order[k]
            if value > best_value:
                best_value = value
                for k in range(n):
                    best[k] = order[k]
        else:
            for k in range(n):
                order[k] = current[k]
                place[current[k]] = k


@njit(cache=True)
def _descend(margins, order, place, space):  # type: ignore[no-untyped-def]
    """Move items to their best places until no move helps. Returns what that gained."""
    gain = 0
    best, here = space[1], space[2]
    while True:
        _best_insertions(margins, order, space)
        moved = False
        for item in range(len(order)):
            if best[item] > here[item]:
                more = _insert(margins[item], item, best[item] - here[item], order, place)
                gain += more
                moved = moved or more > 0
        if not moved:
            return gain


@njit(cache=True)
def _best_insertions(margins, order, space):  # type: ignore[no-untyped-def]
    """For all items at once: the worth of the best place, in ``space[1]``, and of the present one, in [2].

    The worth of a place for an item is, up to a constant, the sum of what beats it above that place. Going
    down the order adds one row of the margins after another, for all items: contiguous vectors of int32, four
    rows at a time. This takes the time of about 16 single insertions at n = 250. Sums are cast to int32
    since numba widens them to int64.
    """
    n = len(order)
    total, best, here = space[0], space[1], space[2]
    for a in range(n):
        total[a] = 0
        best[a] = 0
    k = 0
    while k + 4 <= n:
        first, second, third, fourth = order[k], order[k + 1], order[k + 2], order[k + 3]
        row, row1, row2, row3 = margins[first], margins[second], margins[third], margins[fourth]
        here[first] = total[first]
        here[second] = total[second] + row[second]
        here[third] = total[third] + row[third] + row1[third]
        here[fourth] = total[fourth] + row[fourth] + row1[fourth] + row2[fourth]
        for a in range(n):
            one = np.int32(total[a] + row[a])
            two = np.int32(one + row1[a])
            three = np.int32(two + row2[a])
            four = np.int32(three + row3[a])
            total[a] = four
            best[a] = max(best[a], max(max(one, two), max(three, four)))
        k += 4
    for j in range(k, n):
        item = order[j]
        here[item] = total[item]
        row = margins[item]
        for a in range(n):
            one = np.int32(total[a] + row[a])
            total[a] = one
            best[a] = max(best[a], one)


@njit(cache=True)
def _insert(row, item, enough, order, place):  # type: ignore[no-untyped-def]
    """Move an item to its best place, or to the first that gains enough. Returns what that gained."""
    i = int(place[item])
    best, where, total = np.int32(0), i, np.int32(0)
    for step in range(i):
        above = i - 1 - step
        total = np.int32(total + row[order[np.uint64(above)]])
        if total > best:
            best, where = total, above
            if best >= enough:
                break
    if best < enough:
        total = np.int32(0)
        for k in range(i + 1, len(order)):
            total = np.int32(total - row[order[np.uint64(k)]])
            if total > best:
                best, where = total, k
                if best >= enough:
                    break
    _shift(order, place, i, where)
    return np.int64(best)


@njit(cache=True)
def _move(margins, order, place, i, k):  # type: ignore[no-untyped-def]
    """Move the item at place i to place k. Returns what that gained."""
    row, gain = margins[order[i]], 0
    for j in range(k, i):
        gain += row[order[j]]
    for j in range(i + 1, k + 1):
        gain -= row[order[j]]
    _shift(order, place, i, k)
    return gain


@njit(cache=True)
def _shift(order, place, i, k):  # type: ignore[no-untyped-def]
    item = order[i]
    for j in range(i, k, -1):
        order[j] = order[j - 1]
        place[order[j]] = j
    for j in range(i, k):
        order[j] = order[j + 1]
        place[order[j]] = j
    order[k] = item
    place[item] = k


@njit(cache=True)
def _random(state):  # type: ignore[no-untyped-def]
    """31 random bits (xorshift64*, Marsaglia 2003, Vigna 2016): the same on every machine."""
    bits = state[0]
    bits ^= bits >> np.uint64(12)
    bits ^= bits << np.uint64(25)
    bits ^= bits >> np.uint64(27)
    state[0] = bits
    return (bits * np.uint64(2685821657736338717)) >> np.uint64(33)
