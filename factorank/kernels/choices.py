"""Compiled loops over the choices of Plackett-Luce: the likelihood and its derivatives.

Imported only when they run, since numba loads slowly.
"""

import numpy as np
from numba import njit


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
