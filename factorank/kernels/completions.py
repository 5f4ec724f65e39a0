"""Compiled loops of AMP: completions of partial orders.

Imported only when they run, since numba loads slowly.
"""

import numpy as np
from numba import njit


@njit(cache=True)
def hashed_uniform(seed, draw, voter, step):  # type: ignore[no-untyped-def]
    """A number in (0, 1), a hash of the arguments (splitmix64): nothing is stored, everything repeats."""
    state = np.uint64(seed)
    for word in (np.uint64(draw), np.uint64(voter), np.uint64(step)):
        state = (state ^ word) + np.uint64(0x9E3779B97F4A7C15)
        state = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        state = (state ^ (state >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        state = state ^ (state >> np.uint64(31))
    return (np.float64(state >> np.uint64(11)) + 0.5) * 2.0**-53


@njit(cache=True)
def complete(relation, reference, sums, logs, order, rank, seed, draw, voter):  # type: ignore[no-untyped-def]
    """One completion of one partial order: fills ``order``, returns (log-proposal, log-probability).

    ``relation[a, b]`` is 1 where b is above a, 2 where it is below, 0 where neither; ``sums[i, v]`` is the
    probability of the slots before v, and ``logs[i, v]`` the log-probability of slot v.

    With ``rank`` (of length n) the completion with these ranks is retraced instead of drawn; the log-proposal
    is then minus infinity where the partial order forbids it.
    """
    n = len(reference)
    log_proposal, log_prob = 0.0, 0.0
    for i in range(n):
        item = reference[i]
        low, high = 0, i
        for place in range(i):
            side = relation[item, order[place]]
            if side == 1:
                low = place + 1
            elif side == 2:
                high = place
                break  # nothing above the item can follow something below it
        mass = sums[i, high + 1] - sums[i, low]
        plain = mass > 1e-6
        largest = 0.0
        if not plain:  # the difference has lost its digits, or is no number a float can hold
            largest = logs[i, low]
            for slot in range(low, high + 1):
                largest = max(largest, logs[i, slot])
            mass = 0.0
            if largest > -np.inf:
                for slot in range(low, high + 1):
                    mass += np.exp(logs[i, slot] - largest)
        if len(rank):
            chosen = 0
            while chosen < i and rank[order[chosen]] < rank[item]:
                chosen += 1
            if chosen < low or chosen > high:
                return -np.inf, 0.0
        else:
            target = hashed_uniform(seed, draw, voter, i)
            chosen = low
            if mass == 0.0:
                chosen = low + int(target * (high + 1 - low))
            elif plain:
                target = sums[i, low] + target * mass
                after = high
                while chosen < after:  # the slot whose sums enclose the target
                    middle = (chosen + after) // 2
                    if target < sums[i, middle + 1]:
                        after = middle
                    else:
                        chosen = middle + 1
            else:
                target *= mass
                while chosen < high:
                    target -= np.exp(logs[i, chosen] - largest)
                    if target < 0.0:
                        break
                    chosen += 1
        if mass == 0.0:  # the law excludes all that the voter allows: any slot, of weight zero
            log_proposal -= np.log(high + 1 - low)
        else:
            log_proposal += logs[i, chosen] - largest - np.log(mass)
        log_prob += logs[i, chosen]
        for place in range(i, chosen, -1):
            order[place] = order[place - 1]
        order[chosen] = item
    return log_proposal, log_prob


@njit(cache=True)
def fill_completions(relations, reference, sums, logs, ranks, seed, orders, log_proposal):  # type: ignore[no-untyped-def]
    """Fill ``orders (samples, voters, n)`` with completions, ``log_proposal`` with their log-probability.

    They are drawn, or those with the ranks ``(samples, voters, n)`` where these are not of length 0.
    """
    samples, voters, _ = orders.shape
    law = (reference, sums, logs)
    for voter in range(voters):
        for draw in range(samples):
            log_proposal[draw, voter], _ = complete(
                relations[voter], *law, orders[draw, voter], ranks[draw, voter], seed, draw, voter
            )
