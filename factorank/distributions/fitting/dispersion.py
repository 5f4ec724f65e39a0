r"""The moment equation of a dispersion.

A truncated geometric variable on 0..m-1 with :math:`P(v) ∝ φ^{v}`, :math:`φ = e^{-θ}`, has mean
:math:`1/(e^{θ}-1) - m/(e^{mθ}-1)`, falling from (m-1)/2 at θ = 0 to 0. A likelihood of such variables is
largest where the means agree with the data.
"""

import numpy as np


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
