"""How often an interval of φ holds the truth: simulated elections, and four kinds of interval.

The voters of an election rank n items by a Mallows law. Its φ is fitted with its centre, and each kind of
interval is to hold the true φ in 95% of the elections. Few voters are the hard case: the fitted centre comes
too close to them.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch

from factorank.distributions import Mallows
from factorank.distributions.fitting.dispersion import solve
from factorank.distributions.fitting.intervals import bca_interval, inversion_interval, profile_interval
from factorank.distributions.fitting.kemeny import least_disagreements

SETTINGS = tuple((n, voters) for n in (5, 7) for voters in (5, 10, 20, 50))
PHI = 0.7
LEVEL = 0.95
REFITS = 100
METHODS = ("percentile bootstrap", "bca bootstrap", "profile likelihood", "test inversion")


def coverage_rows(elections: int, seed: int = 0) -> Iterator[dict[str, Any]]:
    """A row for each number of items and of voters and each kind of interval."""
    for n, voters in SETTINGS:
        law = Mallows(torch.arange(n), PHI)
        generator = torch.Generator().manual_seed(seed)
        held = dict.fromkeys(METHODS, 0)
        widths = dict.fromkeys(METHODS, 0.0)
        fitted = []
        for _ in range(elections):
            orders = law.sample((voters,), generator=generator).numpy()
            fitted.append(fits(orders, np.ones((1, voters)))[0][0])
            for method, (low, high) in intervals(orders, generator).items():
                held[method] += low <= PHI <= high
                widths[method] += (high - low) / elections
        for method in METHODS:
            share = held[method] / elections
            yield {"experiment": "coverage", "n": n, "voters": voters, "phi": PHI, "seed": seed} | {
                "method": method,
                "level": LEVEL,
                "elections": elections,
                "coverage": share,
                "coverage_se": round((share * (1 - share) / elections) ** 0.5, 4),
                "width": round(widths[method], 4),
                "mean_fit": round(float(np.mean(fitted)), 4),
            }


def intervals(orders: np.ndarray, generator: torch.Generator) -> dict[str, tuple[float, float]]:
    """The interval of φ of each kind, for voters who rank all items."""
    voters, n = orders.shape
    draws = torch.randint(voters, (REFITS, voters), generator=generator).numpy()
    again = np.stack([np.bincount(draw, minlength=voters).astype(float) for draw in draws])
    weights = np.concatenate([np.ones((1, voters)), again, 1 - np.eye(voters)])
    phis, against = fits(orders, weights)
    refits, jackknife = phis[1 : REFITS + 1], phis[REFITS + 1 :]
    low, high = np.quantile(refits, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return {
        "percentile bootstrap": (float(low), float(high)),
        "bca bootstrap": bca_interval(phis[0], list(refits), list(jackknife), LEVEL),
        "profile likelihood": profile_interval(against[0], np.full(n, float(voters)), LEVEL),
        "test inversion": inversion_interval(against[0], n, voters, LEVEL),
    }


def fits(orders: np.ndarray, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """φ and the disagreement with the fitted centre, for each row of ``weights`` ``(m, voters)``."""
    n = orders.shape[1]
    ranks = np.argsort(orders, axis=1)
    above = (ranks[:, :, None] < ranks[:, None, :]).reshape(len(orders), -1).astype(float)
    against = least_disagreements((weights @ above).reshape(-1, n, n))
    means, sizes = against / weights.sum(1), np.tile(np.arange(n, 0, -1.0), (len(weights), 1))
    return solve(means, sizes), against
