"""Compiled loops of the fits: pairs of items in rankings, choices of Plackett-Luce, dispersions.

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
def disagreements(ranks, centres):  # type: ignore[no-untyped-def]
    """``[v, k]``: the pairs that row v of ``ranks``, ties allowed, orders otherwise than ``centres[k]``."""
    rows, n = ranks.shape
    result = np.empty((rows, len(centres)))
    for row in range(rows):
        for k in range(len(centres)):
            against = 0
            for a in range(n):
                for b in range(a):
                    against += (ranks[row, a] - ranks[row, b]) * (centres[k, a] - centres[k, b]) < 0
            result[row, k] = against
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
def choice_likelihood(items, starts, stages, weights, logits, inverse, gradient, curvature):  # type: ignore[no-untyped-def]
    """One pass over Plackett-Luce data: log-likelihood, its gradient and the diagonal of minus its Hessian.

    Ranking r holds ``items[starts[r]:starts[r + 1]]``, of which the first ``stages[r]`` were choices.
    ``inverse`` receives one over the sum of the weights that each choice was made from.
    """
    n = len(logits)
    skill = np.empty(n)
    largest = logits.max()
    for a in range(n):
        skill[a] = np.exp(logits[a] - largest)
        gradient[a] = 0.0
        curvature[a] = 0.0
    total = 0.0
    for r in range(len(stages)):
        weight = weights[r]
        begin, end, choices = starts[r], starts[r + 1], starts[r] + stages[r]
        left = 0.0
        for j in range(end - 1, begin - 1, -1):
            left += skill[items[j]]
            inverse[j] = left
        share_sum, square_sum, log, product = 0.0, 0.0, 0.0, 1.0
        for j in range(begin, choices):
            a = items[j]
            # Logarithms are dear: take that of a product of several sums, away from under- and overflow.
            product *= inverse[j]
            if product < 1e-150 or product > 1e100:
                log += np.log(product)
                product = 1.0
            share = 1.0 / inverse[j]
            inverse[j] = share
            share_sum += share
            square_sum += share * share
            log -= logits[a] - largest
            mean = skill[a] * share_sum
            gradient[a] += weight * (1.0 - mean)
            curvature[a] += weight * (mean - skill[a] * skill[a] * square_sum)
        for j in range(choices, end):
            a = items[j]
            mean = skill[a] * share_sum
            gradient[a] -= weight * mean
            curvature[a] += weight * (mean - skill[a] * skill[a] * square_sum)
        total -= weight * (log + np.log(product))
    return total


@njit(cache=True)
def choice_log_probs(items, starts, stages, logits):  # type: ignore[no-untyped-def]
    """``[r, k]``: the log-probability of the choices of ranking r under ``logits[k]``."""
    laws, n = logits.shape
    result = np.zeros((len(stages), laws))
    skill = np.empty(n)
    for k in range(laws):
        largest = logits[k].max()
        for a in range(n):
            skill[a] = np.exp(logits[k, a] - largest)
        for r in range(len(stages)):
            begin, end, choices = starts[r], starts[r + 1], starts[r] + stages[r]
            left, total = 0.0, 0.0
            for j in range(end - 1, begin - 1, -1):
                left += skill[items[j]]
                if j < choices:
                    total += logits[k, items[j]] - largest - np.log(left)
            result[r, k] = total
    return result


@njit(cache=True)
def hessian_product(items, starts, stages, weights, logits, inverse, vector, out):  # type: ignore[no-untyped-def]
    """Minus the Hessian times a vector, in one pass; ``inverse`` as :func:`choice_likelihood` left it."""
    n = len(logits)
    skill = np.empty(n)
    product = np.empty(n)
    tail = np.empty(n)
    largest = logits.max()
    for a in range(n):
        skill[a] = np.exp(logits[a] - largest)
        product[a] = skill[a] * vector[a]
        out[a] = 0.0
    for r in range(len(stages)):
        begin, end, choices = starts[r], starts[r + 1], starts[r] + stages[r]
        left = 0.0
        for j in range(end - 1, begin - 1, -1):  # summed from the small end: the sums never cancel
            left += product[items[j]]
            tail[j - begin] = left
        share_sum, mixed_sum = 0.0, 0.0
        weight = weights[r]
        for j in range(begin, choices):
            a = items[j]
            share = inverse[j]
            share_sum += share
            mixed_sum += tail[j - begin] * share * share
            out[a] += weight * (product[a] * share_sum - skill[a] * mixed_sum)
        for j in range(choices, end):
            a = items[j]
            out[a] += weight * (product[a] * share_sum - skill[a] * mixed_sum)


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
def solve_dispersion(means, sizes, scales, times):  # type: ignore[no-untyped-def]
    """For each m the φ at which the scaled means of variables of ``sizes[m]`` add up to ``means[m]``.

    Variable j counts ``times[j]``.
    """
    result = np.empty(len(means))
    for m in range(len(means)):
        ceiling = 0.0
        for j in range(sizes.shape[1]):
            ceiling += times[j] * scales[j] * (sizes[m, j] - 1) / 2
        if means[m] <= 0.0 or means[m] >= ceiling:
            result[m] = 0.0 if means[m] <= 0.0 else 1.0
            continue
        low, high = 0.0, 1.0
        for _ in range(64):  # halvings: beyond the last bit of a float64
            middle = (low + high) / 2
            theta = -np.log(middle)
            total = 0.0
            for j in range(sizes.shape[1]):
                total += times[j] * scales[j] * geometric_mean(theta * scales[j], sizes[m, j])
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
