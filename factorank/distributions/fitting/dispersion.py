r"""Dispersions by their moment equation, and the reference of generalized Mallows.

A truncated geometric variable on 0..m-1 with :math:`P(v) ∝ φ^{v}`, :math:`φ = e^{-θ}`, has mean
:math:`1/(e^{θ}-1) - m/(e^{mθ}-1)`, falling from (m-1)/2 at θ = 0 to 0. A likelihood of such variables is
largest where the means agree with the data. ``shares[a, b]`` is the share of the votes that put a above b.
"""

from functools import lru_cache

import numpy as np

from factorank.distributions.fitting.kemeny import move


def solve(
    means: np.ndarray, sizes: np.ndarray, scales: np.ndarray | None = None, times: np.ndarray | None = None
) -> np.ndarray:
    """The φ in [0, 1] whose mean is the one in the data, for each entry of ``means`` ``(m,)``, by bisection.

    Each mean is the scaled sum of k variables with ``sizes`` ``(m, k)`` and ``scales`` ``(k,)``, each counted
    ``times`` ``(k,)``: variable j has the dispersion φ^scales[j]. A mean of 0 gives φ = 0; one at or above
    that of the uniform law gives 1, which is the maximum of the likelihood within [0, 1].

    >>> phi = solve(np.array([0.5, 1.0, 0.0]), np.full((3, 1), 3.0))
    >>> phi[1:]
    array([1., 0.])
    >>> bool(abs((phi[0] + 2 * phi[0] ** 2) / (1 + phi[0] + phi[0] ** 2) - 0.5) < 1e-12)
    True
    """
    from factorank.kernels.fitting import solve_dispersion

    sizes = np.ascontiguousarray(sizes, dtype=float)
    scales = np.ones(sizes.shape[1]) if scales is None else np.ascontiguousarray(scales, dtype=float)
    times = np.ones(sizes.shape[1]) if times is None else np.ascontiguousarray(times, dtype=float)
    return solve_dispersion(np.ascontiguousarray(means, dtype=float), sizes, scales, times)


def log_normaliser(theta: np.ndarray, size: np.ndarray) -> np.ndarray:
    """log Σ_{v<m} e^{-θv}; log m at θ = 0. Shapes broadcast."""
    theta, size = np.broadcast_arrays(np.asarray(theta, dtype=float), np.asarray(size, dtype=float))
    zero = theta == 0
    safe = np.where(zero, 1.0, theta)
    return np.where(zero, np.log(size), np.log(-np.expm1(-size * safe)) - np.log(-np.expm1(-safe)))


def fit_mallows_phi(
    disagreement: float, digits: np.ndarray, places: np.ndarray | None = None
) -> tuple[float, float]:
    """The dispersion of a Mallows law around an order, and the log-likelihood at it.

    ``disagreement`` is the weight of the pairs that the votes order differently, each counted with the weight
    of its place. ``digits[j]`` is the weight of the votes that tell the digit of size n - j (see
    :func:`digit_weights`): for complete votes, the weight of all.
    """
    n = len(digits)
    places = np.ones(n) if places is None else places
    sizes = np.arange(n, 0, -1.0)
    phi = float(solve(np.array([disagreement]), sizes[None], places, digits)[0])
    return phi, mallows_likelihood(phi, disagreement, digits, places)


def mallows_likelihood(
    phi: float, disagreement: float, digits: np.ndarray, places: np.ndarray | None = None
) -> float:
    """The log-likelihood of votes under a Mallows law, by what :func:`fit_mallows_phi` knows of them."""
    sizes, places = np.arange(len(digits), 0, -1.0), np.ones(len(digits)) if places is None else places
    if phi == 0:  # the places without weight are uniform
        flat = places == 0
        return -float((digits * np.log(sizes))[flat].sum()) if disagreement == 0 else -np.inf
    theta = -np.log(phi)
    return -float(theta * disagreement + (digits * log_normaliser(theta * places, sizes)).sum())


def digit_weights(ranks: np.ndarray, weights: np.ndarray) -> np.ndarray:
    r"""``[j]``: the weight of the votes that tell the digit of size n - j, from places ``(rows, n)`` with
    ties.

    The orders that agree with a vote differ within its levels of tied items alone. So its probability under a
    Mallows law is :math:`φ^d \prod_g Z_g / Z_n`, with d the pairs of other levels that are out of order and a
    factor :math:`Z_g = \prod_{m ≤ g} (1 + φ + … + φ^{m-1})` for a level of g items. What is left of
    :math:`Z_n` are the digits told.
    """
    return digits_told(ranks).T @ weights


def digits_told(ranks: np.ndarray) -> np.ndarray:
    """``[v, j]``: how often vote v tells the digit of size n - j; a level of ties of this size or more hides
    one. It may be negative, since several levels hide a small digit."""
    rows, n = ranks.shape
    levels = np.zeros((rows, n), dtype=np.int64)
    np.add.at(levels, (np.arange(rows)[:, None], ranks), 1)
    return 1.0 - np.stack([(levels >= size).sum(1) for size in range(n, 0, -1)], 1)


def best_phis(shares: np.ndarray, order: np.ndarray) -> np.ndarray:
    """The dispersions of maximum likelihood around an order."""
    phis = solve(_means(shares, order), np.arange(1.0, len(order) + 1)[:, None])
    phis[:1] = 1.0  # the first item has a single slot; any value will do
    return phis


def phi_errors(phis: np.ndarray, total: float) -> np.ndarray:
    """The standard error of each φ, item i of the reference having i + 1 slots; NaN at 0 and 1."""
    from factorank.kernels.references import geometric_variance

    errors = np.full(len(phis), np.nan)
    for place, phi in enumerate(phis):
        if place and 0 < phi < 1:
            errors[place] = phi / np.sqrt(total * geometric_variance(-np.log(phi), place + 1.0))
    return errors


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
