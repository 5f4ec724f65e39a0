r"""Confidence intervals of fitted parameters.

The dispersion of a Mallows law has three:

* *profile likelihood*: all φ whose likelihood, with the best centre, is within a quantile of χ² of the
  largest. The best centre does not depend on φ, so this is one curve.
* *test inversion*: with few voters the fitted centre comes too close to them and φ comes out too small,
  whatever the likelihood says. But the law of the fitted disagreement depends on φ alone, not on the centre
  (renaming items changes neither). So φ belongs to the interval if a disagreement as small, or as large, as
  the one observed is not too rare among votes simulated under φ. This is exact up to the simulation.
* *bias-corrected and accelerated bootstrap* (:func:`bca_interval`), which works for any law and its refits.
"""

import math
from collections.abc import Callable, Sequence
from functools import lru_cache
from statistics import NormalDist
from typing import TYPE_CHECKING

import numpy as np
import torch

from factorank.codes import code
from factorank.distributions.factorized import draw_geometric
from factorank.distributions.fitting.dispersion import fit_mallows_phi, mallows_likelihood
from factorank.distributions.fitting.kemeny import least_disagreements, pairwise_counts

if TYPE_CHECKING:
    from factorank.distributions.fitting.report import FitReport

FEW_VOTERS, MOST_ITEMS = 100, 16
"""Up to so many voters, who rank all of up to so many items, the interval of φ is found by test inversion."""
SIMULATED = 400
"""Simulated elections for each φ that is tried; a quarter of them beyond 10 items."""
GRID = 64
"""Steps of the grid of φ from 0 to 1."""


def report_intervals(report: "FitReport", level: float) -> tuple[tuple[float, float], ...]:
    """An interval for each value of a report: see :meth:`FitReport.intervals`."""
    if report.disagreement is not None and report.digits:
        digits = np.array(report.digits)
        voters = round(report.rankings)
        whole = report.rankings == voters and bool((digits == voters).all())
        few = whole and voters <= FEW_VOTERS and len(digits) <= MOST_ITEMS and report.exact is not None
        if few:
            return (inversion_interval(report.disagreement, len(digits), voters, level),)
        return (profile_interval(report.disagreement, digits, level),)
    width = NormalDist().inv_cdf((1 + level) / 2)
    if report.parameter == "phi":
        return tuple(
            _on_log_theta(value, error, width)
            for value, error in zip(report.values, report.errors, strict=True)
        )
    return tuple(
        (value - width * error, value + width * error)
        for value, error in zip(report.values, report.errors, strict=True)
    )


def _on_log_theta(phi: float, error: float, width: float) -> tuple[float, float]:
    """Wald's interval of log θ, θ = -log φ, turned into one of φ: it stays between 0 and 1."""
    if not 0 < phi < 1 or math.isnan(error):
        return math.nan, math.nan
    theta = -math.log(phi)
    factor = math.exp(width * error / (phi * theta))
    return math.exp(-theta * factor), math.exp(-theta / factor)


def profile_interval(disagreement: float, digits: np.ndarray, level: float = 0.95) -> tuple[float, float]:
    """The φ whose log-likelihood is within half a quantile of χ² (one degree of freedom) of the largest.

    >>> low, high = profile_interval(120.0, np.full(5, 40.0))
    >>> bool(low < 0.53 < high)
    True
    """
    best, largest = fit_mallows_phi(disagreement, digits)
    drop = NormalDist().inv_cdf((1 + level) / 2) ** 2 / 2

    def short(phi: float) -> float:
        return mallows_likelihood(phi, disagreement, digits) - largest + drop

    return _root(short, 0.0, best), _root(lambda phi: -short(phi), best, 1.0)


def _root(rising: Callable[[float], float], low: float, high: float) -> float:
    """Where a rising function crosses zero, by bisection; an end where it does not."""
    if rising(low) >= 0:
        return low
    if rising(high) <= 0:
        return high
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if rising(middle) < 0 else (low, middle)
    return (low + high) / 2


def inversion_interval(disagreement: float, n: int, voters: int, level: float = 0.95) -> tuple[float, float]:
    """The φ under which a disagreement as far out as this one is not too rare.

    Means and standard deviations of the disagreement are simulated at a few points of a fixed grid of φ, with
    the same random numbers for all. The ends of the interval are where the observed disagreement lies a
    normal quantile from the mean, on the line between two points.

    >>> low, high = inversion_interval(30.0, n=4, voters=20)
    >>> 0 < low < high <= 1
    True
    """
    width = NormalDist().inv_cdf((1 + level) / 2)
    return _crossing(disagreement, n, voters, width), _crossing(disagreement, n, voters, -width)


def _crossing(disagreement: float, n: int, voters: int, level: float) -> float:
    """The φ at which the score of the disagreement, which falls with φ, passes a level."""

    def score(point: int) -> float:
        mean, spread = simulated_disagreement(point / GRID, n, voters)
        return (disagreement - mean) / spread

    low, high = 0, GRID  # at φ = 0 the score of a positive disagreement is infinite
    if score(high) >= level:
        return 1.0
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if score(middle) >= level else (low, middle)
    first, second = score(low) if low else math.inf, score(high)
    if math.isinf(first):
        return high / GRID if disagreement > 0 else 0.0
    return (low + (first - level) / max(first - second, 1e-12)) / GRID


@lru_cache(maxsize=4096)
def simulated_disagreement(phi: float, n: int, voters: int) -> tuple[float, float]:
    """Mean and standard deviation of the disagreement with the fitted centre, over simulated elections."""
    ratio = torch.full((n,), phi, dtype=torch.float64).log()
    simulated = SIMULATED if n <= 10 else SIMULATED // 4
    sizes, shape = torch.arange(n, 0, -1), (simulated, voters, n)
    digits = draw_geometric(ratio, sizes, shape, torch.Generator().manual_seed(0))
    orders = code("lehmer").decode(digits, check=False).numpy()
    ones = np.ones(voters)
    values = least_disagreements(np.stack([pairwise_counts(votes, ones) for votes in orders]))
    return float(values.mean()), max(float(values.std(ddof=1)), 0.3)


def bca_interval(
    value: float, refits: Sequence[float], jackknife: Sequence[float], level: float = 0.95
) -> tuple[float, float]:
    """Efron's bias-corrected and accelerated interval (1987).

    ``refits`` are the values of fits to voters drawn with replacement, ``jackknife`` those of fits that leave
    out one voter, or one group of voters, each.

    >>> low, high = bca_interval(0.0, list(np.linspace(-2, 2, 101)), [-1.0, 0.0, 1.0], level=0.9)
    >>> bool(abs(low + 1.8) < 0.1 and abs(high - 1.8) < 0.1)
    True
    """
    draws, left_out = np.sort(np.asarray(refits, dtype=float)), np.asarray(jackknife, dtype=float)
    normal = NormalDist()
    below = ((draws < value).sum() + 0.5 * (draws == value).sum()) / len(draws)
    bias = normal.inv_cdf(float(np.clip(below, 1 / (2 * len(draws)), 1 - 1 / (2 * len(draws)))))
    deviations = left_out.mean() - left_out
    spread = float((deviations**2).sum()) ** 1.5
    skew = float((deviations**3).sum()) / (6 * spread) if spread > 0 else 0.0
    ends = []
    for side in ((1 - level) / 2, (1 + level) / 2):
        score = bias + normal.inv_cdf(side)
        ends.append(float(np.quantile(draws, normal.cdf(bias + score / (1 - skew * score)))))
    return ends[0], ends[1]
