"""Compiled loops over pairs of items in rankings: counts, disagreements, and the Kemeny order.

Imported only when they run, since numba loads slowly.
"""

import numpy as np
from numba import njit


@njit(cache=True)
def pairwise_counts(orders, weights, place_weights):  # type: ignore[no-untyped-def]
    """``[a, b]``: the weight of the rows that put a above b, times the weight of the place that a holds."""
    rows, n = orders.shape
    counts = np.zeros((n, n))
    for row in range(rows):
        if weights[row] == 0.0:
            continue
        for i in range(n):
            a = orders[row, i]
            weight = weights[row] * place_weights[i]
            for j in range(i + 1, n):
                counts[a, orders[row, j]] += weight
    return counts


@njit(cache=True)
def pairwise_counts_of_ranks(ranks, weights):  # type: ignore[no-untyped-def]
    """``[a, b]``: the weight of the rows that put a above b; equal ranks and ranks of -1 say nothing."""
    rows, n = ranks.shape
    counts = np.zeros((n, n))
    for row in range(rows):
        for a in range(n):
            for b in range(n):
                if 0 <= ranks[row, a] < ranks[row, b]:
                    counts[a, b] += weights[row]
    return counts


@njit(cache=True)
def disagreement_shares(ranks, voter):  # type: ignore[no-untyped-def]
    """For each row the share of the pairs ordered by it and by ``voter`` that the two order differently.

    One half, as for strangers, where there is no such pair. Equal ranks and ranks of -1 order nothing.
    """
    rows, n = ranks.shape
    result = np.empty(rows)
    for row in range(rows):
        shared, against = 0, 0
        for a in range(n):
            if ranks[row, a] < 0 or ranks[voter, a] < 0:
                continue
            for b in range(a):
                if ranks[row, b] < 0 or ranks[voter, b] < 0:
                    continue
                sign = (ranks[row, a] - ranks[row, b]) * (ranks[voter, a] - ranks[voter, b])
                shared += sign != 0
                against += sign < 0
        result[row] = against / shared if shared else 0.5
    return result


@njit(cache=True)
def count_inversions(listed, consensus, total):  # type: ignore[no-untyped-def]
    """``total[v, c]``: pairs of ``listed[v]``, best first, that ``consensus[c]`` scores the other way."""
    lists, m = listed.shape
    scores = np.empty(m, dtype=consensus.dtype)
    for v in range(lists):
        for c in range(len(consensus)):
            for i in range(m):
                scores[i] = consensus[c, listed[v, i]]
            inverted = 0
            for i in range(m - 1):
                for j in range(i + 1, m):
                    inverted += scores[j] > scores[i]
            total[v, c] = inverted


@njit(cache=True)
def kemeny_order(counts):  # type: ignore[no-untyped-def]
    """The Kemeny order by dynamic programming over subsets (Held and Karp, 1962; Betzler et al., 2009).

    ``cost[S]`` is the least disagreement within S when the set S fills the first places.
    """
    n = len(counts)
    size = 1 << n
    cost = np.full(size, np.inf)
    last = np.zeros(size, dtype=np.int8)
    cost[0] = 0.0
    for subset in range(1, size):
        for a in range(n):
            if not (subset >> a) & 1:
                continue
            rest = subset ^ (1 << a)
            total = cost[rest]
            for b in range(n):
                if (rest >> b) & 1:
                    total += counts[a, b]
            if total < cost[subset]:
                cost[subset] = total
                last[subset] = a
    order = np.empty(n, dtype=np.int64)
    subset = size - 1
    for place in range(n - 1, -1, -1):
        order[place] = last[subset]
        subset ^= 1 << last[subset]
    return order
