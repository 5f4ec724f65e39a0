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
from factorank.distributions.fitting.consensus import disagreement, kemeny, pairwise_counts
from factorank.distributions.fitting.dispersion import fit_mallows_phi
from factorank.distributions.fitting.intervals import bca_interval, inversion_interval, profile_interval

SETTINGS = tuple((n, voters) for n in (5, 10) for voters in (5, 10, 20, 50, 100))
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
        fits = []
        for _ in range(elections):
            orders = law.sample((voters,), generator=generator).numpy()
            fits.append(_fit(orders, np.ones(voters))[0])
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
                "mean_fit": round(float(np.mean(fits)), 4),
            }


def intervals(orders: np.ndarray, generator: torch.Generator) -> dict[str, tuple[float, float]]:
    """The interval of φ of each kind, for voters who rank all items."""
    voters, n = orders.shape
    phi, against = _fit(orders, np.ones(voters))
    draws = torch.randint(voters, (REFITS, voters), generator=generator).numpy()
    weights = np.stack([np.bincount(draw, minlength=voters).astype(float) for draw in draws])
    refits = [_fit(orders, each)[0] for each in weights]
    jackknife = [_fit(orders, each)[0] for each in 1 - np.eye(voters)]
    low, high = np.quantile(refits, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return {
        "percentile bootstrap": (float(low), float(high)),
        "bca bootstrap": bca_interval(phi, refits, jackknife, LEVEL),
        "profile likelihood": profile_interval(against, np.full(n, float(voters)), LEVEL),
        "test inversion": inversion_interval(against, n, voters, LEVEL),
    }


def _fit(orders: np.ndarray, weights: np.ndarray) -> tuple[float, float]:
    """φ, and the disagreement with the fitted centre."""
    counts = pairwise_counts(orders, weights)
    against = disagreement(counts, kemeny(counts)[0])
    return fit_mallows_phi(against, np.full(orders.shape[1], weights.sum()))[0], against
