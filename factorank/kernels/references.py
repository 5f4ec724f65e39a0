"""Compiled searches for the best reference order of a RIM or a generalized Mallows law.

The likelihood of a reference is a sum over its items of ``score[a, S]``: what item a, inserted after the
items of the set S, adds. So the best reference comes from dynamic programming over sets. Imported only when
they run, since numba loads slowly.
"""

import numpy as np
from numba import njit

from factorank.kernels.fitting import geometric_mean


@njit(cache=True)
def best_order(scores):  # type: ignore[no-untyped-def]
    """The order with the largest sum of ``scores (n, 2^(n-1))``; sets are numbered without the bit of a."""
    n = len(scores)
    size = 1 << n
    best = np.full(size, -np.inf)
    last = np.zeros(size, dtype=np.int8)
    best[0] = 0.0
    for subset in range(1, size):
        for a in range(n):
            if (subset >> a) & 1:
                rest = subset ^ (1 << a)
                total = best[rest] + scores[a, without_bit(rest, a)]
                if total > best[subset]:
                    best[subset] = total
                    last[subset] = a
    order = np.empty(n, dtype=np.int64)
    subset = size - 1
    for place in range(n - 1, -1, -1):
        order[place] = last[subset]
        subset ^= 1 << last[subset]
    return order


@njit(cache=True)
def without_bit(subset, a):  # type: ignore[no-untyped-def]
    """The number of a set of the other n - 1 items: bit a, which is not set, is cut out."""
    return ((subset >> (a + 1)) << a) | (subset & ((1 << a) - 1))


@njit(cache=True)
def slot_scores(ranks, weights, smoothing):  # type: ignore[no-untyped-def]
    """``[a, S]``: the log-likelihood of the slots of item a among the items of S, at their shares.

    A vote is, for item a, the set of the items above it, and the slot is how many of them are in S. The
    generating polynomials of the slots for all S come from the weights of these sets by a transform, one item
    at a time, whatever the number of votes. Only positive numbers are added: nothing cancels.
    """
    rows, n = ranks.shape
    half = 1 << (n - 1)
    scores = np.empty((n, half))
    counts = np.empty((half, n))
    for a in range(n):
        counts[:] = 0.0
        for row in range(rows):
            above = 0
            for b in range(n):
                if ranks[row, b] < ranks[row, a]:
                    above |= 1 << b
            counts[without_bit(above, a), 0] += weights[row]
        for bit in range(n - 1):
            for low in range(half):
                if (low >> bit) & 1:
                    continue
                high = low | (1 << bit)
                for slot in range(bit + 1, 0, -1):  # from above: an entry is read before it changes
                    inside = counts[low, slot] + counts[high, slot - 1]
                    counts[low, slot] += counts[high, slot]
                    counts[high, slot] = inside
                here = counts[low, 0]
                counts[low, 0] += counts[high, 0]
                counts[high, 0] = here
        for subset in range(half):
            size = 1
            for bit in range(n - 1):
                size += (subset >> bit) & 1
            scores[a, subset] = share_score(counts[subset], size, smoothing)
    return scores


@njit(cache=True)
def share_score(counts, size, smoothing):  # type: ignore[no-untyped-def]
    """Σ (c + s) log share of the first ``size`` counts, where each share is (c + s) over their sum."""
    total, score = 0.0, 0.0
    for slot in range(size):
        count = counts[slot] + smoothing
        if count > 0.0:
            score += count * np.log(count)
            total += count
    return score - total * np.log(total) if total > 0.0 else 0.0


@njit(cache=True)
def overtaking_scores(shares):  # type: ignore[no-untyped-def]
    """``[a, S]``: the log-likelihood, a vote, of how many items of S item a overtakes, at the best φ."""
    n = len(shares)
    half = 1 << (n - 1)
    scores = np.empty((n, half))
    means = np.zeros(half)
    for a in range(n):
        scores[a, 0] = 0.0
        for subset in range(1, half):
            bit = 0
            while not (subset >> bit) & 1:
                bit += 1
            rest = subset & (subset - 1)
            means[subset] = means[rest] + shares[a, bit if bit < a else bit + 1]
            size = 1
            while rest:
                rest &= rest - 1
                size += 1
            scores[a, subset] = geometric_likelihood(means[subset], size + 1)
    return scores


@njit(cache=True)
def geometric_likelihood(mean, size):  # type: ignore[no-untyped-def]
    """The largest mean log-likelihood of a variable on 0..size-1 with P(v) ∝ φ^v, φ from 0 to 1.

    It is the least value over θ = -log φ of θ·mean + log Σ e^{-θv}, negated. Newton's steps are kept inside a
    bracket of the minimum.
    """
    if mean <= 0.0 or size == 1:
        return 0.0
    if mean >= (size - 1) / 2:
        return -np.log(size)
    low, high = 0.0, np.log1p(1.0 / mean)  # a variable without an upper end has this θ, and a larger mean
    theta = high / 2
    for _ in range(100):
        excess = geometric_mean(theta, float(size)) - mean
        if excess > 0.0:
            low = theta
        else:
            high = theta
        after = theta + excess / geometric_variance(theta, float(size))
        if not low < after < high:
            after = (low + high) / 2
        step = abs(after - theta)
        theta = after
        if step <= 1e-13 * theta:
            break
    return -theta * mean - np.log(-np.expm1(-size * theta)) + np.log(-np.expm1(-theta))


@njit(cache=True)
def geometric_variance(theta, size):  # type: ignore[no-untyped-def]
    """The variance of a variable on 0..size-1 with P(v) ∝ exp(-theta v)."""
    if theta * size < 0.02:
        return (size**2 - 1) / 12 - theta**2 * (size**4 - 1) / 240
    near = 1 / (4 * np.sinh(theta / 2) ** 2) if theta < 700.0 else 0.0
    far = (size / 2) ** 2 / np.sinh(theta * size / 2) ** 2 if theta * size < 700.0 else 0.0
    return near - far


@njit(cache=True)
def improve_reference(ranks, weights, reference, smoothing, reach, max_sweeps):  # type: ignore[no-untyped-def]
    """Move items of a RIM's reference, one at a time, to where the likelihood is largest, in place.

    ``ranks (n, votes)`` has a row for each item. An item moves at most ``reach`` places at a time. Returns
    the number of moves; there are at most ``max_sweeps`` sweeps over the items. An item that passes a
    neighbour changes the slots of these two alone, so each step is one pass over the votes.
    """
    n, votes = ranks.shape
    slots = np.zeros((n, votes), dtype=np.int32)
    terms = np.empty(n)  # by item
    counts, other = np.empty(n + 1), np.empty(n + 1)
    place = np.empty(n, dtype=np.int64)
    for i in range(n):
        a = reference[i]
        place[a] = i
        for j in range(i):
            slots[a] += ranks[reference[j]] < ranks[a]
        _count(slots[a], weights, counts, i + 1)
        terms[a] = share_score(counts, i + 1, smoothing)
    mine = np.empty(votes, dtype=np.int32)
    moves = 0
    for _ in range(max_sweeps):
        moved = False
        for a in range(n):
            start, best, target = place[a], 1e-9 * weights.sum(), place[a]
            for step in (-1, 1):
                mine[:] = slots[a]
                gain, own = 0.0, terms[a]
                k = start
                while 0 <= k + step < n and abs(k + step - start) <= reach:
                    b = reference[k + step]
                    _pass(
                        ranks[a], ranks[b], mine, slots[b], weights, step, counts, other, max(k, k + step) + 1
                    )
                    # Behind the other, an item has a slot more.
                    after = share_score(counts, k + step + 1, smoothing)
                    passed = share_score(other, k + 1, smoothing)
                    gain += after - own + passed - terms[b]
                    own = after
                    k += step
                    if gain > best:
                        best, target = gain, k
            if target == start:
                continue
            moved = True
            moves += 1
            step = 1 if target > start else -1
            k = start
            while k != target:  # once more, and keep what changes
                b = reference[k + step]
                mine[:] = slots[b]
                _pass(ranks[a], ranks[b], slots[a], mine, weights, step, counts, other, max(k, k + step) + 1)
                for vote in range(votes):
                    slots[b, vote] += (ranks[a, vote] < ranks[b, vote]) * (-1 if step > 0 else 1)
                terms[a] = share_score(counts, k + step + 1, smoothing)
                terms[b] = share_score(other, k + 1, smoothing)
                reference[k], place[b] = b, k
                reference[k + step], place[a] = a, k + step
                k += step
        if not moved:
            break
    return moves


@njit(cache=True)
def _count(slots, weights, counts, size):  # type: ignore[no-untyped-def]
    counts[:size] = 0.0
    for vote in range(len(slots)):
        counts[slots[vote]] += weights[vote]


@njit(cache=True)
def _pass(rank, rank_b, mine, slots_b, weights, step, counts, other, size):  # type: ignore[no-untyped-def]
    """Let a pass b, down the reference (step 1) or up (-1): ``mine`` and both counts are as after it."""
    counts[:size] = 0.0
    other[:size] = 0.0
    for vote in range(len(mine)):
        behind = rank_b[vote] < rank[vote]  # b is above a in this vote
        mine[vote] += step * behind
        counts[mine[vote]] += weights[vote]
        other[slots_b[vote] - step * (1 - behind)] += weights[vote]
