"""Mallows by maximum likelihood: the consensus, then the dispersion from its moment equation."""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from factorank.distributions.fitting import dispersion
from factorank.distributions.fitting.checks import Unranked, check_unused, complete_votes, reference_order
from factorank.distributions.fitting.consensus import disagreement, kemeny, pairwise_counts
from factorank.distributions.fitting.em import Votes, hold_out
from factorank.distributions.fitting.partial_mallows import PARTIAL_EM, as_partial_orders, fit_partial_mallows
from factorank.distributions.fitting.registry import register_fitter
from factorank.distributions.fitting.report import FitError, FitReport
from factorank.distributions.mallows import Mallows
from factorank.distributions.partial_orders import PartialOrders


@register_fitter(Mallows)
def fit_mallows(
    orders: Tensor | PartialOrders,
    weights: Tensor | None,
    *,
    central: Sequence[int] | Tensor | None,
    place_weights: Tensor | None,
    start: Tensor | None,
    unranked: Unranked | None,
    items: int | None,
    samples: int | None,
    max_iterations: int | None,
    tolerance: float | None,
    held_out: Tensor | PartialOrders | float | None,
    held_out_weights: Tensor | None,
    generator: torch.Generator | None,
    progress: bool,
) -> Mallows:
    """See :meth:`factorank.Mallows.fit`."""
    orders, held_out = as_partial_orders(orders, held_out, unranked, items)
    if isinstance(orders, PartialOrders):
        if central is not None or place_weights is not None or start is not None:
            raise FitError("a fit to partial orders takes no central, place_weights or start")
        settings = PARTIAL_EM.changed(
            max_iterations=max_iterations,
            tolerance=tolerance,
            samples=samples,
            generator=generator,
            progress=progress,
        )
        votes, others = hold_out(Votes(orders, weights), held_out, held_out_weights, generator)
        _, laws, report = fit_partial_mallows(votes, others, settings)
        laws[0].report = report
        return laws[0]
    check_unused(
        "a fit to complete orders",
        samples=samples,
        max_iterations=max_iterations,
        tolerance=tolerance,
        held_out=held_out,
        held_out_weights=held_out_weights,
    )
    return _fit_complete(orders, weights, central, place_weights, start)


def _fit_complete(
    orders: Tensor,
    weights: Tensor | None,
    central: Sequence[int] | Tensor | None,
    place_weights: Tensor | None,
    start: Tensor | None,
) -> Mallows:
    rows, row_weights = complete_votes(orders, weights)
    n, total = rows.shape[1], float(row_weights.sum())
    places = np.ones(n)
    if place_weights is not None:
        places = place_weights.detach().to("cpu", torch.float64).numpy()
        if places.shape != (n,) or not (np.isfinite(places).all() and (places >= 0).all()):
            raise FitError(f"place_weights are {n} finite numbers of 0 or more, not {place_weights.tolist()}")
    counts = pairwise_counts(rows, row_weights, places)
    if central is None:
        order, exact = kemeny(counts, None if start is None else start.to("cpu", torch.int64).numpy())
    else:
        order, exact = reference_order(central, n), True
    phi, likelihood = dispersion.fit_mallows_phi(disagreement(counts, order), n, total, places)
    law = Mallows(
        central=torch.from_numpy(order).to(orders.device),
        phi=torch.tensor(phi, dtype=torch.float64, device=orders.device),
        weights=None if place_weights is None else place_weights.to(orders.device, torch.float64),
    )
    law.report = FitReport(
        "Mallows" if place_weights is None else "weighted Mallows",
        rankings=total,
        log_likelihood=likelihood,
        parameters=1,
        exact=exact if central is None else None,
    )
    return law
