"""Generalized Mallows by maximum likelihood: one dispersion for each item of the reference.

``shares[a, b]`` is everywhere the share of the votes that put a above b.
"""

from functools import lru_cache

import numpy as np

from factorank.distributions.fitting import dispersion
from factorank.distributions.fitting.consensus import move


def best_phis(shares: np.ndarray, order: np.ndarray) -> np.ndarray:
    """The dispersions of maximum likelihood around an order."""
    phis = dispersion.solve(_means(shares, order), np.arange(1.0, len(order) + 1)[:, None])
    phis[:1] = 1.0  # the first item has a single slot; any value will do
    return phis


def log_likelihood(shares: np.ndarray, order: np.ndarray) -> float:
    """The log-likelihood of an order, a vote, at the best dispersions."""
    means, phis = _means(shares, order), best_phis(shares, order)
    spread = phis > 0  # φ = 0 stands for a mean of 0, which costs nothing
    theta = -np.log(phis[spread])
    sizes = np.arange(1.0, len(order) + 1)[spread]
    return -float((theta * means[spread] + dispersion.log_normaliser(theta, sizes)).sum())


def climb(shares: np.ndarray, order: np.ndarray, max_moves: int) -> tuple[np.ndarray, int, bool]:
    """The best move of one item while it raises the likelihood; order, moves, whether no move was left."""
    value = log_likelihood(shares, order)
    for moves in range(max_moves):
        estimates = _after_moves(shares, order)
        for place in np.argsort(-estimates, axis=None)[:3]:  # interpolated: try a few, exactly
            i, k = np.unravel_index(int(place), estimates.shape)
            moved = move(order, int(i), int(k))
            moved_value = log_likelihood(shares, moved)
            if moved_value > value + 1e-12:
                order, value = moved, moved_value
                break
        else:
            return order, moves, True
    return order, max_moves, False


def _means(shares: np.ndarray, order: np.ndarray) -> np.ndarray:
    """The mean of d_i: how many of the items ahead of i in the reference come after it in a vote."""
    return np.tril(shares[np.ix_(order, order)], -1).sum(1)


def _after_moves(shares: np.ndarray, order: np.ndarray) -> np.ndarray:
    """``[i, k]``: about the log-likelihood, a vote, after moving place i's item to place k; -inf at i = k."""
    from factorank.kernels.fitting import likelihood_after_moves

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
