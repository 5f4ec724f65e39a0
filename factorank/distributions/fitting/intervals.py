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
from statistics import NormalDist
from typing import TYPE_CHECKING

import numpy as np
import torch

from factorank.codes import code
from factorank.distributions.factorized import draw_geometric
from factorank.distributions.fitting.consensus import disagreement as disagreement_with
from factorank.distributions.fitting.consensus import kemeny, pairwise_counts
from factorank.distributions.fitting.dispersion import fit_mallows_phi, mallows_likelihood

if TYPE_CHECKING:
    from factorank.distributions.fitting.report import FitReport

FEW_VOTERS = 200
"""Up to so many voters who rank all items the interval of φ is found by test inversion."""
SIMULATED = 200
"""Simulated elections for each φ that is tried."""


def report_intervals(report: "FitReport", level: float) -> tuple[tuple[float, float], ...]:
    """An interval for each value of a report: see :meth:`FitReport.intervals`."""
    if report.disagreement is not None and report.digits:
        digits = np.array(report.digits)
        voters = round(report.rankings)
        whole = report.rankings == voters and bool((digits == voters).all())
        few = (
            whole
            and voters * len(digits) <= FEW_VOTERS * 10
            and len(digits) <= 16
            and report.exact is not None
        )
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


def inversion_interval(
    disagreement: float, n: int, voters: int, level: float = 0.95, simulated: int = SIMULATED, seed: int = 0
) -> tuple[float, float]:
    """The φ under which a disagreement as far out as this one is not too rare.

    The shares of simulated disagreements below the observed one fall with φ. They are simulated at a grid of
    φ around the fit, with the same random numbers for all, and a probit line through the shares gives both
    ends.

    >>> low, high = inversion_interval(30.0, n=4, voters=20, simulated=100)
    >>> 0 < low < high <= 1
    True
    """
    digits = np.full(n, float(voters))
    low, high = profile_interval(disagreement, digits, 0.999)
    best = fit_mallows_phi(disagreement, digits)[0]
    if best == 0:
        low, high = 0.0, max(high, 0.3)
    # The bias lets the true φ lie above the fit: the grid goes further to that side.
    grid = np.unique(
        np.clip(np.concatenate([np.linspace(low, best, 5), np.linspace(best, 2 * high - best, 9)]), 1e-3, 1)
    )
    values = np.stack([simulated_disagreements(phi, n, voters, simulated, seed) for phi in grid])
    width = NormalDist().inv_cdf((1 + level) / 2)
    # Shrunken spread and mean of each column make a smooth distribution function of each φ.
    means, spreads = values.mean(1), np.maximum(values.std(1, ddof=1), 0.3)
    scores = (disagreement - means) / spreads  # falling in φ
    return _crossing(grid, scores, width), _crossing(grid, scores, -width)


def _crossing(grid: np.ndarray, scores: np.ndarray, level: float) -> float:
    """The φ at which falling scores pass a level: by a smooth cubic, and the ends of the scale beyond."""
    scores = np.minimum.accumulate(scores)
    if level >= scores[0]:
        return 0.0 if grid[0] <= 1e-3 else float(grid[0])
    if level <= scores[-1]:
        return 1.0 if grid[-1] >= 1 else float(grid[-1])
    return float(np.interp(-level, -scores, grid))


def simulated_disagreements(phi: float, n: int, voters: int, simulated: int, seed: int) -> np.ndarray:
    """The disagreement with the fitted centre in so many simulated elections."""
    ratio = torch.full((n,), phi, dtype=torch.float64).log()
    sizes, shape = torch.arange(n, 0, -1), (simulated, voters, n)
    digits = draw_geometric(ratio, sizes, shape, torch.Generator().manual_seed(seed))
    orders = code("lehmer").decode(digits, check=False).numpy()
    ones, result = np.ones(voters), np.empty(simulated)
    for number in range(simulated):
        counts = pairwise_counts(orders[number], ones)
        result[number] = disagreement_with(counts, kemeny(counts)[0])
    return result


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
