r"""Dispersions by their moment equation, and the reference of generalized Mallows.

A truncated geometric variable on 0..m-1 with :math:`P(v) ∝ φ^{v}`, :math:`φ = e^{-θ}`, has mean
:math:`1/(e^{θ}-1) - m/(e^{mθ}-1)`, falling from (m-1)/2 at θ = 0 to 0. A likelihood of such variables is
largest where the means agree with the data. ``shares[a, b]`` is the share of the votes that put a above b.
"""

from functools import lru_cache

import numpy as np

from factorank.distributions.fitting.consensus import move


def solve(means: np.ndarray, sizes: np.ndarray, scales: np.ndarray | None = None) -> np.ndarray:
    """The φ in [0, 1] whose mean is the one in the data, for each entry of ``means`` ``(m,)``, by bisection.

    Each mean is the scaled sum of k variables with ``sizes`` ``(m, k)`` and ``scales`` ``(k,)``: variable j
    has the dispersion φ^scales[j]. A mean of 0 gives φ = 0; one at or above that of the uniform law gives 1,
    which is the maximum of the likelihood within [0, 1].

    >>> phi = solve(np.array([0.5, 1.0, 0.0]), np.full((3, 1), 3.0))
    >>> phi[1:]
    array([1., 0.])
    >>> bool(abs((phi[0] + 2 * phi[0] ** 2) / (1 + phi[0] + phi[0] ** 2) - 0.5) < 1e-12)
    True
    """
    from factorank.kernels.fitting import solve_dispersion

    sizes = np.ascontiguousarray(sizes, dtype=float)
    scales = np.ones(sizes.shape[1]) if scales is None else np.ascontiguousarray(scales, dtype=float)
    return solve_dispersion(np.ascontiguousarray(means, dtype=float), sizes, scales)


def log_normaliser(theta: np.ndarray, size: np.ndarray) -> np.ndarray:
    """log Σ_{v<m} e^{-θv}; log m at θ = 0. Shapes broadcast."""
    theta, size = np.broadcast_arrays(np.asarray(theta, dtype=float), np.asarray(size, dtype=float))
    zero = theta == 0
    safe = np.where(zero, 1.0, theta)
    return np.where(zero, np.log(size), np.log(-np.expm1(-size * safe)) - np.log(-np.expm1(-safe)))


def fit_mallows_phi(
    disagreement: float, n: int, total: float, places: np.ndarray | None = None
) -> tuple[float, float]:
    """The dispersion of a Mallows law around an order, and the log-likelihood at it.

    ``disagreement`` is the weight of the pairs that the votes order differently, each counted with the weight
    of its place, and ``total`` is the weight of all votes.
    """
    places = np.ones(n) if places is None else places
    distance = disagreement / total
    sizes = np.arange(n, 0, -1.0)
    phi = float(solve(np.array([distance]), sizes[None], places)[0])
    if phi == 0:  # the places without weight are uniform
        return 0.0, 0.0 if (places[:-1] > 0).all() else -total * float(np.log(sizes[places == 0]).sum())
    theta = -np.log(phi)
    return phi, -total * float(theta * distance + log_normaliser(theta * places, sizes).sum())


def best_phis(shares: np.ndarray, order: np.ndarray) -> np.ndarray:
    """The dispersions of maximum likelihood around an order."""
    phis = solve(_means(shares, order), np.arange(1.0, len(order) + 1)[:, None])
    phis[:1] = 1.0  # the first item has a single slot; any value will do
    return phis


def log_likelihood(shares: np.ndarray, order: np.ndarray) -> float:
    """The log-likelihood of an order, a vote, at the best dispersions."""
    means, phis = _means(shares, order), best_phis(shares, order)
    spread = phis > 0  # φ = 0 stands for a mean of 0, which costs nothing
    theta = -np.log(phis[spread])
    sizes = np.arange(1.0, len(order) + 1)[spread]
    return -float((theta * means[spread] + log_normaliser(theta, sizes)).sum())


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
    phis = solve(means.reshape(-1), np.repeat(sizes, _GRID + 1, axis=0)).reshape(means.shape)
    phis[0] = 1.0
    theta = -np.log(np.where(phis > 0, phis, 1.0))
    return np.where(phis > 0, -theta * means - log_normaliser(theta, sizes), 0.0)
