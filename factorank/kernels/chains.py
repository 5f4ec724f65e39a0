"""Compiled loops of the Mallows law given partial orders: Gibbs sweeps, and exact probabilities of chains.

Imported only when they run, since numba loads slowly.
"""

import numpy as np
from numba import njit

from factorank.kernels.completions import hashed_uniform
from factorank.kernels.threads import in_threads

GRAIN = 4096
"""Items of chains that are worth a thread."""


def gibbs_sweep(  # type: ignore[no-untyped-def]
    orders, places, owners, edges, starts, rank, phi, distances, seed, number
) -> None:
    """Take every item of every order out in turn, and put it back by its law given the order of the others.

    ``orders (chains, n)`` and ``places``, their inverses, are changed in place. They agree with the partial
    orders of their ``owners``, and still do afterwards: ``edges[starts[v, a, 0]:starts[v, a, 1]]`` are the
    items directly above item a for owner v, and the next ones, up to ``starts[v, a, 2]``, those below it.
    ``rank`` is the place of each item in the centre. ``distances`` to it are kept up to date.
    """
    state = (orders, places, owners, edges, starts, rank, phi, distances, seed, number)
    chains = np.arange(len(orders))
    in_threads(lambda some, _: _sweep(some, *state), chains, chains, orders.size // GRAIN)


@njit(cache=True, nogil=True)
def _sweep(chains, orders, places, owners, edges, starts, rank, phi, distances, seed, number):  # type: ignore[no-untyped-def]
    n = orders.shape[1]
    powers = np.empty(2 * n + 1)
    for k in range(2 * n + 1):
        powers[k] = phi**k
    cost = np.empty(n, dtype=np.int64)
    sums = np.empty(n)
    for chain in chains:
        order, place = orders[chain], places[chain]
        for item in range(n):
            low, high, where, mine = 0, n - 1, place[item], rank[item]
            begin, middle, end = starts[owners[chain], item]
            for e in range(begin, middle):
                low = max(low, place[edges[e]] + 1)
            for e in range(middle, end):
                high = min(high, place[edges[e]] - 1)
            if low == high:
                continue
            change, least = 0, 0
            cost[low] = 0
            for slot in range(low, high):  # the slots count places without the item
                change += 1 if rank[order[slot + (slot >= where)]] > mine else -1
                cost[slot + 1] = change
                least = min(least, change)
            total = 0.0
            for slot in range(low, high + 1):
                total += powers[cost[slot] - least]
                sums[slot] = total
            target = total * hashed_uniform(seed, number, chain, item)
            chosen = low
            while chosen < high and sums[chosen] <= target:
                chosen += 1
            distances[chain] += cost[chosen] - cost[where]
            step = 1 if chosen > where else -1
            for slot in range(where, chosen, step):
                order[slot] = order[slot + step]
                place[order[slot]] = slot
            order[chosen] = item
            place[item] = chosen


@njit(cache=True)
def kendall_to(orders, rank, distances):  # type: ignore[no-untyped-def]
    """Fill ``distances`` with those of ``orders (chains, n)`` to the centre whose places are ``rank``."""
    chains, n = orders.shape
    for chain in range(chains):
        pairs = 0
        for i in range(n):
            for j in range(i + 1, n):
                pairs += rank[orders[chain, i]] > rank[orders[chain, j]]
        distances[chain] = pairs


@njit(cache=True)
def chain_log_probs(chains, lengths, sums, probs, binomials):  # type: ignore[no-untyped-def]
    """The log-probability that items stand in the order of each chain, wherever the others stand.

    ``chains (rows, k)`` holds items named by their place in the centre, best first, then -1. The items are
    inserted one after the other as by a RIM, ``probs[i, v]`` being the probability of slot v of item i and
    ``sums[i, v]`` that of the slots before it. The state is the set of places of the chain's items so far,
    which :math:`\\sum_j \\binom{s_j}{j+1}` numbers. A slot of another item matters by the gap it is in alone.
    """
    rows, n = len(chains), len(probs)
    result = np.empty(rows)
    position = np.empty(n, dtype=np.int64)
    places = np.empty(n + 1, dtype=np.int64)
    most = 1
    for k in range(n + 1):
        most = max(most, binomials[n, k])
    now, after = np.empty(most), np.empty(most)
    for row in range(rows):
        length = lengths[row]
        position[:] = -1
        for c in range(length):
            position[chains[row, c]] = c
        tracked, scale = 0, 0.0
        now[0] = 1.0
        for i in range(n):
            states = binomials[i, tracked]
            listed = position[i] >= 0
            gap = 0
            if listed:  # the number of the chain's items so far that come before it
                for other in range(i):
                    gap += 0 <= position[other] < position[i]
            count = binomials[i + 1, tracked + listed]
            after[:count] = 0.0
            for j in range(tracked):
                places[j] = j
            for state in range(states):
                value = now[state]
                if value > 0.0:
                    if listed:
                        _insert_listed(places, tracked, gap, i, value, probs, binomials, after)
                    else:
                        _insert_other(places, tracked, i, value, sums, binomials, after)
                _next_set(places, tracked)
            tracked += listed
            largest = 0.0
            for state in range(count):
                largest = max(largest, after[state])
            if largest == 0.0:
                scale = -np.inf
                break
            for state in range(count):
                now[state] = after[state] / largest
            scale += np.log(largest)
        total = 0.0
        for state in range(binomials[n, tracked]):
            total += now[state]
        result[row] = scale + np.log(total) if scale > -np.inf else scale
    return result


@njit(cache=True)
def _insert_other(places, tracked, i, value, sums, binomials, after):  # type: ignore[no-untyped-def]
    number = 0
    for j in range(tracked):
        number += binomials[places[j] + 1, j + 1]  # all of them shifted: the first gap
    low = 0
    for gap in range(tracked + 1):
        high = places[gap] + 1 if gap < tracked else i + 1
        after[number] += value * (sums[i, high] - sums[i, low])
        low = high
        if gap < tracked:
            number += binomials[places[gap], gap + 1] - binomials[places[gap] + 1, gap + 1]


@njit(cache=True)
def _insert_listed(places, tracked, gap, i, value, probs, binomials, after):  # type: ignore[no-untyped-def]
    number = 0
    for j in range(tracked):
        number += binomials[places[j], j + 1] if j < gap else binomials[places[j] + 1, j + 2]
    low = places[gap - 1] + 1 if gap > 0 else 0
    high = places[gap] if gap < tracked else i
    for slot in range(low, high + 1):
        after[number + binomials[slot, gap + 1]] += value * probs[i, slot]


@njit(cache=True)
def _next_set(places, size):  # type: ignore[no-untyped-def]
    """The set of the next number."""
    j = 0
    while j + 1 < size and places[j] + 1 == places[j + 1]:
        places[j] = j
        j += 1
    if size:
        places[j] += 1
