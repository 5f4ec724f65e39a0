"""Mixtures of Mallows laws on three items: the maximum of the likelihood by trying all pairs of centres."""

import itertools
import math

import numpy as np
import torch
from scipy.optimize import minimize

import factorank as fr


def largest_likelihood(orders, counts):
    """Over all pairs of centres, with both φ and the weight by an optimiser from several points."""
    ranks = np.argsort(orders, axis=1)
    pairs = list(itertools.combinations(range(3), 2))

    def distances(centre):
        place = np.argsort(centre)
        return np.array(
            [sum((rank[a] < rank[b]) != (place[a] < place[b]) for a, b in pairs) for rank in ranks]
        )

    def probabilities(distance, phi):
        return phi**distance / ((1 + phi) * (1 + phi + phi**2))

    best = -math.inf
    for first, second in itertools.combinations_with_replacement(itertools.permutations(range(3)), 2):
        apart = distances(first), distances(second)

        def loss(x, apart=apart):
            weight, phis = 1 / (1 + math.exp(-x[0])), 1 / (1 + np.exp(-x[1:]))
            mixed = weight * probabilities(apart[0], phis[0]) + (1 - weight) * probabilities(
                apart[1], phis[1]
            )
            return -float(counts @ np.log(mixed))

        for start in (
            [0.0, -1.0, -1.0],
            [1.0, -2.0, 0.5],
            [-1.0, 0.5, -2.0],
            [2.0, 0.0, -5.0],
            [-2.0, -5.0, 0.0],
        ):
            found = minimize(loss, start, method="L-BFGS-B", bounds=[(-12, 12)] * 3)
            best = max(best, -found.fun)
    return best


def test_the_maximum_of_all():
    """A small group beside a large one is among these votes; EM may miss it, but not often."""
    orders, reached = np.array(list(itertools.permutations(range(3)))), 0
    for seed in range(1, 5):
        counts = np.random.default_rng(seed).integers(3, 60, 6).astype(float)
        law = fr.Mixture.fit(
            torch.from_numpy(orders),
            torch.from_numpy(counts),
            components=2,
            tolerance=1e-9,
            max_iterations=5000,
            generator=torch.Generator().manual_seed(seed),
        )
        assert law.report.starts == 50
        below = largest_likelihood(orders, counts) - law.report.log_likelihood
        assert below > -1e-3
        reached += below < 0.02
    assert reached >= 3
