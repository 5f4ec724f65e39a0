"""All orders of a few items, and the test that draws agree with ``log_prob``."""

import itertools
import math

import torch
from scipy.stats import chisquare

import factorank as fr


def all_orders(n):
    return torch.tensor(list(itertools.permutations(range(n))), dtype=torch.int64).view(math.factorial(n), n)


def p_value(law, draws):
    """Chi-square test of draws ``(samples, n)`` against ``log_prob``; impossible orders must not occur."""
    orders = all_orders(law.n)
    probabilities = law.log_prob(orders).exp().double()
    counts = torch.bincount(fr.index_of(draws), minlength=len(orders))
    assert counts[probabilities == 0].sum() == 0
    possible = probabilities > 0
    expected = probabilities[possible] / probabilities.sum() * len(draws)
    if possible.sum() == 1:
        return 1.0
    small = expected < 5
    observed = counts[possible].double()
    if small.any():  # the test wants five or more in each cell
        observed = torch.cat((observed[~small], observed[small].sum()[None]))
        expected = torch.cat((expected[~small], expected[small].sum()[None]))
    return chisquare(observed, expected).pvalue
