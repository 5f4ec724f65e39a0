"""Mallows from rankings that place all items, with ties or without: a closed form."""

import math

import numpy as np
import torch
from torch import Tensor

from factorank.distributions.fitting.ballots import Ballots
from factorank.distributions.fitting.dispersion import digit_weights, fit_mallows_phi
from factorank.distributions.fitting.errors import FitError
from factorank.distributions.fitting.kemeny import disagreement, kemeny, pairwise_counts
from factorank.distributions.fitting.report import FitReport


def fit_mallows(
    ballots: Ballots, central: np.ndarray | None = None, place_weights: Tensor | None = None
) -> tuple[np.ndarray, float, FitReport]:
    """Centre, φ and report of the Mallows law of maximum likelihood, of the weighted one with weights."""
    from factorank.kernels.fitting import pairwise_counts_of_ranks

    n, places = ballots.n, np.ones(ballots.n)
    if place_weights is not None:
        places = place_weights.detach().to("cpu", torch.float64).numpy()
        if places.shape != (n,) or not (np.isfinite(places).all() and (places >= 0).all()):
            raise FitError(f"place_weights are {n} finite numbers of 0 or more, not {place_weights.tolist()}")
    if ballots.complete:
        counts = pairwise_counts(ballots.orders, ballots.weights, places)
        digits = np.full(n, ballots.total)
    else:
        counts = pairwise_counts_of_ranks(ballots.ranks, ballots.weights)
        digits = digit_weights(ballots.ranks, ballots.weights)
    order, exact, _ = kemeny(counts) if central is None else (central, None, None)
    against = disagreement(counts, order)
    phi, likelihood = fit_mallows_phi(against, digits, places)
    report = FitReport(
        "Mallows" if place_weights is None else "weighted Mallows",
        ballots.total,
        likelihood,
        parameters=1,
        exact=exact,
        disagreement=against if place_weights is None else None,
        digits=tuple(digits.tolist()) if place_weights is None else (),
    )
    error = phi_error(phi, digits, places)
    return order, phi, report.with_estimates("phi", [phi], [error], ballots.items)


def phi_error(phi: float, digits: np.ndarray, places: np.ndarray | None = None) -> float:
    """The standard error of φ from the information; NaN at the ends of the scale."""
    from factorank.kernels.references import geometric_variance

    if not 0 < phi < 1:
        return math.nan
    theta, places = -math.log(phi), np.ones(len(digits)) if places is None else places
    sizes = range(len(digits), 0, -1)
    information = sum(
        times * scale**2 * geometric_variance(theta * scale, float(size))
        for times, scale, size in zip(digits, places, sizes, strict=True)
        if size > 1 and scale > 0
    )
    return phi / math.sqrt(information) if information > 0 else math.nan
