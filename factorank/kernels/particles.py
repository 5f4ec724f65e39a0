"""Compiled loops of completions of partial orders: all of them where they are few, particles where not.

Imported only when they run, since numba loads slowly.
"""

import numpy as np
from numba import njit

from factorank.kernels.completions import complete, hashed_uniform


@njit(cache=True)
def start_chains(relations, owners, reference, sums, logs, seed, orders):  # type: ignore[no-untyped-def]
    """Fill ``orders (chains, n)`` with completions of the partial orders of their owners, drawn by AMP."""
    nothing = np.empty(0, dtype=np.int64)
    for chain in range(len(orders)):
        complete(relations[owners[chain]], reference, sums, logs, orders[chain], nothing, seed, 0, chain)


@njit(cache=True)
def linear_extensions(relation, out):  # type: ignore[no-untyped-def]
    """List the orders that agree with a partial order, as many as ``out (limit, n)`` holds.

    ``relation[a, b]`` is 1 where b must be above a. Returns their number, or -1 if there are more.
    """
    limit, n = out.shape
    above = np.zeros(n, dtype=np.int64)
    for a in range(n):
        for b in range(n):
            if relation[a, b] == 1:
                above[a] |= np.int64(1) << b
    order = np.full(n, -1, dtype=np.int64)
    used, depth, count = np.int64(0), 0, 0
    while depth >= 0:
        if order[depth] >= 0:
            used ^= np.int64(1) << order[depth]
        item = order[depth] + 1
        while item < n and ((used >> item) & 1 or (above[item] & ~used) != 0):
            item += 1
        if item == n:
            order[depth] = -1
            depth -= 1
            continue
        order[depth] = item
        used |= np.int64(1) << item
        if depth < n - 1:
            depth += 1
            continue
        if count == limit:
            return -1
        out[count] = order
        count += 1
    return count


@njit(cache=True)
def draw_particles(relation, reference, sums, logs, orders, spare, log_weights, seed, voter):  # type: ignore[no-untyped-def]
    """Complete one partial order by as many particles as ``orders (samples, n)`` has rows.

    The items are inserted one after the other as AMP does. Whenever the weights have become uneven, the
    particles are drawn anew in proportion to them (sequential Monte Carlo). ``log_weights`` are those left at
    the end. Returns the logarithm of an unbiased estimate of the probability of the partial order.
    """
    samples, n = orders.shape
    parents = np.empty(samples, dtype=np.int64)
    log_weights[:] = 0.0
    evidence = 0.0
    for i in range(n):
        item = reference[i]
        for s in range(samples):
            log_weights[s] += _insert(
                relation[item], item, i, sums[i], logs[i], orders[s], hashed_uniform(seed, s, voter, i)
            )
        largest = log_weights.max()
        if largest == -np.inf:
            return -np.inf
        total, squares = 0.0, 0.0
        for s in range(samples):
            weight = np.exp(log_weights[s] - largest)
            total += weight
            squares += weight * weight
        if i == n - 1 or total * total >= 0.5 * samples * squares:
            continue
        evidence += largest + np.log(total / samples)
        offset = hashed_uniform(seed, samples, voter, i)
        parent, reached = 0, np.exp(log_weights[0] - largest) * samples / total
        for s in range(samples):
            while reached < s + offset and parent < samples - 1:
                parent += 1
                reached += np.exp(log_weights[parent] - largest) * samples / total
            parents[s] = parent
        for s in range(samples):
            spare[s, : i + 1] = orders[parents[s], : i + 1]
        orders[:, : i + 1] = spare[:samples, : i + 1]
        log_weights[:] = 0.0
    largest, total = log_weights.max(), 0.0
    for s in range(samples):
        total += np.exp(log_weights[s] - largest)
    return evidence + largest + np.log(total / samples)


@njit(cache=True)
def _insert(side, item, i, sums, logs, order, uniform):  # type: ignore[no-untyped-def]
    """Insert an item into one of the slots that its partial order allows; the log of their probability."""
    low, high = 0, i
    for place in range(i):
        if side[order[place]] == 1:
            low = place + 1
        elif side[order[place]] == 2:
            high = place
            break
    mass = sums[high + 1] - sums[low]
    if mass > 1e-6:
        log_mass = np.log(mass)
        target, chosen, after = sums[low] + uniform * mass, low, high
        while chosen < after:
            middle = (chosen + after) // 2
            if target < sums[middle + 1]:
                after = middle
            else:
                chosen = middle + 1
    else:  # the difference has lost its digits
        largest = logs[low]
        for slot in range(low, high + 1):
            largest = max(largest, logs[slot])
        if largest == -np.inf:
            chosen, log_mass = low + int(uniform * (high + 1 - low)), -np.inf
        else:
            mass = 0.0
            for slot in range(low, high + 1):
                mass += np.exp(logs[slot] - largest)
            target, chosen, log_mass = uniform * mass, low, largest + np.log(mass)
            while chosen < high:
                target -= np.exp(logs[chosen] - largest)
                if target < 0.0:
                    break
                chosen += 1
    for place in range(i, chosen, -1):
        order[place] = order[place - 1]
    order[chosen] = item
    return log_mass


@njit(cache=True)
def fill_particles(relations, reference, sums, logs, starts, orders, log_weights, evidence, seed):  # type: ignore[no-untyped-def]
    """Particles ``starts[v]:starts[v + 1]`` of every voter v, the log of their share of the evidence."""
    n = orders.shape[1]
    spare = np.empty((np.diff(starts).max(), n), dtype=orders.dtype)
    for voter in range(len(relations)):
        here = slice(starts[voter], starts[voter + 1])
        weights = log_weights[here]
        evidence[voter] = draw_particles(
            relations[voter], reference, sums, logs, orders[here], spare, weights, seed, voter
        )
        largest = weights.max()
        if largest == -np.inf:
            continue
        total = 0.0
        for s in range(len(weights)):
            total += np.exp(weights[s] - largest)
        for s in range(len(weights)):
            weights[s] += evidence[voter] - largest - np.log(total)


@njit(cache=True)
def log_evidence(relations, reference, sums, logs, samples, seed):  # type: ignore[no-untyped-def]
    """The log-probability of each partial order, estimated by so many particles."""
    voters, n = relations.shape[:2]
    result, weights = np.empty(voters), np.empty(samples)
    orders, spare = np.empty((samples, n), dtype=np.int64), np.empty((samples, n), dtype=np.int64)
    for voter in range(voters):
        result[voter] = draw_particles(
            relations[voter], reference, sums, logs, orders, spare, weights, seed, voter
        )
    return result
