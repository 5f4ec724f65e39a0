"""Generalized Mallows by maximum likelihood: one dispersion for each item of the reference."""

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from factorank.distributions.fitting import dispersion
from factorank.distributions.fitting.checks import complete_votes, reference_order
from factorank.distributions.fitting.consensus import kemeny, move, pairwise_counts
from factorank.distributions.fitting.registry import register_fitter
from factorank.distributions.fitting.report import FitReport
from factorank.distributions.generalized_mallows import GeneralizedMallows


@register_fitter(GeneralizedMallows)
def fit_generalized_mallows(
    orders: Tensor,
    weights: Tensor | None,
    *,
    central: Sequence[int] | Tensor | None,
    start: Tensor | None,
    max_moves: int,
) -> GeneralizedMallows:
    """See :meth:`factorank.GeneralizedMallows.fit`."""
    rows, row_weights = complete_votes(orders, weights)
    n, total = rows.shape[1], float(row_weights.sum())
    shares = pairwise_counts(rows, row_weights) / total
    moves, converged = 0, True
    if central is None:
        starts = [kemeny(shares)[0]]
        if start is not None:
            starts.append(reference_order(start, n))
        ends = [_climb(shares, order, max_moves) for order in starts]
        order, moves, converged = max(ends, key=lambda end: _value(shares, end[0]))
    else:
        order = reference_order(central, n)
    phis = _phis(shares, order)
    law = GeneralizedMallows(
        torch.from_numpy(order).to(orders.device), torch.from_numpy(phis).to(orders.device)
    )
    law.report = FitReport(
        "generalized Mallows",
        rankings=total,
        log_likelihood=total * _value(shares, order),
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
        for place in np.argsort(-estimates, axis=None)[:3]:  # interpolated: try a few, exactly
            i, k = np.unravel_index(int(place), estimates.shape)
            moved = move(order, int(i), int(k))
            moved_value = _value(shares, moved)
            if moved_value > value + 1e-12:
                order, value = moved, moved_value
                break
        else:
            return order, moves, True
    return order, max_moves, False


def _after_moves(shares: np.ndarray, order: np.ndarray) -> np.ndarray:
    """``[i, k]``: about the log-likelihood, a vote, after moving place i's item to place k; -inf at i = k."""
    from factorank.kernels.dispersion import likelihood_after_moves

    inside = np.ascontiguousarray(shares[np.ix_(order, order)])
    return likelihood_after_moves(inside, _table(1 << (len(order) - 1).bit_length()))


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
