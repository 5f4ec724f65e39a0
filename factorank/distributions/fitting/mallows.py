"""Mallows by maximum likelihood: the consensus, then the dispersion from its moment equation."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from factorank.distributions.fitting import dispersion
from factorank.distributions.fitting.checks import complete_orders, row_weights
from factorank.distributions.fitting.consensus import disagreement, kemeny, pairwise_counts
from factorank.distributions.fitting.report import FitError, FitReport
from factorank.permutations import check_permutation

if TYPE_CHECKING:
    from factorank.distributions.mallows import Mallows
    from factorank.distributions.partial import PartialOrders


def fit_mallows(
    orders: "Tensor | PartialOrders",
    weights: Tensor | None = None,
    *,
    central: Sequence[int] | Tensor | None = None,
    place_weights: Tensor | None = None,
    start: Tensor | None = None,
    **monte_carlo: Any,
) -> "Mallows":
    r"""The maximum-likelihood Mallows law of orders ``(*batch, n)``, or of :class:`PartialOrders`.

    The log-likelihood :math:`-θ \sum_v w_v d(σ, x_v) - N \log Z(θ)` is largest, whatever θ = -log φ, at the
    consensus σ (:func:`factorank.consensus`), and then where the expected distance equals the mean distance.
    All votes equal give φ = 0, votes without any order φ = 1. ``central`` fixes the reference order instead.

    With ``place_weights`` ``(n,)`` it is the weighted law :math:`φ^{\sum_j a_j L_j}/Z`, with L the
    right-Lehmer code relative to σ. A pair then counts with the weight of the higher place, so the best σ is
    again a consensus, from counts that are weighted so.

    Partial orders are fitted by Monte-Carlo EM: see :func:`fit_mallows_mixture_partial`, whose options
    (``samples``, ``generator``, ``max_iterations``, …) may follow.

    Fligner and Verducci, "Distance based ranking models", 1986.

    >>> law = fit_mallows(torch.tensor([[0, 1, 2], [0, 1, 2], [1, 0, 2]]))
    >>> law.central, round(float(law.phi), 4), law.report.exact
    (tensor([0, 1, 2]), 0.169, True)
    """
    from factorank.distributions.mallows import Mallows
    from factorank.distributions.partial import PartialOrders

    if isinstance(orders, PartialOrders):
        from factorank.distributions.fitting.partial_mallows import fit_mallows_partial

        if central is not None or place_weights is not None or start is not None:
            raise FitError("a fit to partial orders takes no central, place_weights or start")
        return fit_mallows_partial(orders, weights, **monte_carlo)
    if monte_carlo:
        raise FitError(f"a fit to complete orders has no option {', '.join(map(repr, monte_carlo))}")
    rows = complete_orders(orders)
    n = rows.shape[1]
    counted = row_weights(weights, tuple(orders.shape[:-1]))
    places = np.ones(n)
    if place_weights is not None:
        places = place_weights.detach().to("cpu", torch.float64).numpy()
        if places.shape != (n,) or not (np.isfinite(places).all() and (places >= 0).all()):
            raise FitError(f"place_weights are {n} finite numbers of 0 or more, not {place_weights.tolist()}")
    counts = pairwise_counts(rows, counted, places)
    if central is None:
        order, exact = kemeny(counts, None if start is None else start.to("cpu", torch.int64).numpy())
    else:
        order, exact = fixed_order(central, n), True
    phi, likelihood = dispersion_of(counts, order, float(counted.sum()), places)
    law = Mallows(
        central=torch.from_numpy(order).to(orders.device),
        phi=torch.tensor(phi, dtype=torch.float64, device=orders.device),
        weights=None if place_weights is None else place_weights.to(orders.device, torch.float64),
    )
    law.report = FitReport(
        "Mallows" if place_weights is None else "weighted Mallows",
        rankings=float(counted.sum()),
        log_likelihood=likelihood,
        parameters=1,
        exact=exact if central is None else None,
    )
    return law


def dispersion_of(
    counts: np.ndarray, order: np.ndarray, total: float, places: np.ndarray | None = None
) -> tuple[float, float]:
    """φ given the reference order, and the log-likelihood at it; ``total`` is the weight of all votes."""
    n = len(counts)
    places = np.ones(n) if places is None else places
    distance = disagreement(counts, order) / total
    sizes = np.arange(n, 0, -1.0)
    phi = float(dispersion.solve(np.array([distance]), sizes[None], places)[0])
    if phi == 0:
        return 0.0, 0.0 if (places[:-1] > 0).all() else -total * _free(sizes, places)
    theta = -np.log(phi)
    return phi, -total * float(theta * distance + dispersion.log_normaliser(theta * places, sizes).sum())


def fixed_order(order: Sequence[int] | Tensor, n: int) -> np.ndarray:
    """A reference order given by the caller, checked to be one of n items."""
    order = torch.as_tensor(order)
    check_permutation(order, "a reference is one of the")
    if order.shape != (n,):
        raise FitError(f"the reference order has shape {tuple(order.shape)}, but the orders rank {n} items")
    return order.to("cpu", torch.int64).numpy()


def _free(sizes: np.ndarray, places: np.ndarray) -> float:
    """The log-normaliser at φ = 0: the places without weight are uniform."""
    return float(np.log(sizes[places == 0]).sum())
