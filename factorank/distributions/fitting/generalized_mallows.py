"""Generalized Mallows by maximum likelihood: one dispersion for each item of the reference."""

from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from factorank.distributions.fitting import dispersion
from factorank.distributions.fitting.checks import complete_orders, row_weights
from factorank.distributions.fitting.consensus import kemeny, move, pairwise_counts
from factorank.distributions.fitting.mallows import fixed_order
from factorank.distributions.fitting.report import FitReport

if TYPE_CHECKING:
    from factorank.distributions.generalized_mallows import GeneralizedMallows


def fit_generalized_mallows(
    orders: Tensor,
    weights: Tensor | None = None,
    *,
    central: Sequence[int] | Tensor | None = None,
    start: Tensor | None = None,
    max_moves: int = 10_000,
) -> "GeneralizedMallows":
    r"""The maximum-likelihood generalized Mallows law of orders ``(*batch, n)``.

    Item i of the reference σ is inserted :math:`d_i` places before the end of the items ahead of it, with
    :math:`P(d_i) ∝ φ_i^{d_i}`. The mean of :math:`d_i` over the votes is a sum of pairwise counts, and each
    :math:`φ_i` (at most 1) solves its own moment equation. σ is then moved, one item at a time, to where the
    likelihood rises most, from the Kemeny consensus (and ``start``) on, to a local optimum. ``central``
    fixes it.

    Fligner and Verducci, "Distance based ranking models", 1986.

    >>> law = fit_generalized_mallows(torch.tensor([[0, 1, 2], [0, 1, 2], [1, 0, 2]]))
    >>> law.central, law.phis
    (tensor([0, 1, 2]), tensor([1.0000, 0.5000, 0.0000], dtype=torch.float64))
    """
    from factorank.distributions.generalized_mallows import GeneralizedMallows

    rows = complete_orders(orders)
    n = rows.shape[1]
    counted = row_weights(weights, tuple(orders.shape[:-1]))
    shares = pairwise_counts(rows, counted) / counted.sum()
    moves, converged = 0, True
    if central is None:
        starts = [kemeny(shares)[0]]
        if start is not None:
            starts.append(fixed_order(start, n))
        climbed = [_climb(shares, one, max_moves) for one in starts]
        order, moves, converged = max(climbed, key=lambda found: _value(shares, found[0]))
    else:
        order = fixed_order(central, n)
    phis = _phis(shares, order)
    law = GeneralizedMallows(
        torch.from_numpy(order).to(orders.device), torch.from_numpy(phis).to(orders.device)
    )
    law.report = FitReport(
        "generalized Mallows",
        rankings=float(counted.sum()),
        log_likelihood=float(counted.sum()) * _value(shares, order),
        parameters=n - 1,
        iterations=moves,
        converged=converged,
        exact=None if central is not None else n <= 2,
    )
    return law


def improve(rows: np.ndarray, weights: np.ndarray, start: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
    """Reference and dispersions at least as likely as those of ``start``; from the consensus without one."""
    shares = pairwise_counts(rows, weights) / weights.sum()
    order, _, _ = _climb(shares, kemeny(shares)[0] if start is None else start, 1000)
    return order, _phis(shares, order)


def _means(shares: np.ndarray, order: np.ndarray) -> np.ndarray:
    """The mean of d_i: how many of the items ahead of i in the reference come after it in a vote."""
    return np.tril(shares[np.ix_(order, order)], -1).sum(1)


def _phis(shares: np.ndarray, order: np.ndarray) -> np.ndarray:
    phis = dispersion.solve(_means(shares, order), np.arange(1.0, len(order) + 1)[:, None])
    phis[:1] = 1.0  # the first item has a single slot; any value will do
    return phis


def _value(shares: np.ndarray, order: np.ndarray) -> float:
    """The log-likelihood of an order, a vote, at the best dispersions."""
    means, phis = _means(shares, order), _phis(shares, order)
    spread = phis > 0  # φ = 0 stands for a mean of 0, which costs nothing
    theta = -np.log(phis[spread])
    sizes = np.arange(1.0, len(order) + 1)[spread]
    return -float((theta * means[spread] + dispersion.log_normaliser(theta, sizes)).sum())


def _climb(shares: np.ndarray, order: np.ndarray, max_moves: int) -> tuple[np.ndarray, int, bool]:
    """The best move of one item while it raises the likelihood; order, moves, whether no move was left."""
    value = _value(shares, order)
    for moves in range(max_moves):
        estimates = _after_moves(shares, order)
        for place in np.argsort(-estimates, axis=None)[:3]:  # interpolated values: ask a few, exactly
            i, k = np.unravel_index(int(place), estimates.shape)
            moved = move(order, int(i), int(k))
            found = _value(shares, moved)
            if found > value + 1e-12:
                order, value = moved, found
                break
        else:
            return order, moves, True
    return order, max_moves, False


def _after_moves(shares: np.ndarray, order: np.ndarray) -> np.ndarray:
    """``[i, k]``: about the log-likelihood, a vote, after moving place i's item to place k; -inf at i = k."""
    from factorank.kernels import fitting as kernels

    inside = np.ascontiguousarray(shares[np.ix_(order, order)])
    return kernels.insertion_values(inside, _table(1 << (len(order) - 1).bit_length()))


_GRID = 512


@lru_cache(maxsize=16)
def _table(n: int) -> np.ndarray:
    """``[i, g]``: the best log-likelihood of d_i at a mean of (g / grid)² of its largest, i / 2.

    The square spreads small means, where the likelihood is steep.
    """
    sizes = np.arange(1.0, n + 1)[:, None]
    means = (np.arange(_GRID + 1) / _GRID) ** 2 * (sizes - 1) / 2
    phis = dispersion.solve(means.reshape(-1), np.repeat(sizes, _GRID + 1, axis=0)).reshape(means.shape)
    phis[0] = 1.0
    theta = -np.log(np.where(phis > 0, phis, 1.0))
    return np.where(phis > 0, -theta * means - dispersion.log_normaliser(theta, sizes), 0.0)
