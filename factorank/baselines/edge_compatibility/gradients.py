"""Mahalanobis gradient compatibility (MGC): how unusual the step across a border is for the piece before it.

Gallagher, "Jigsaw puzzles with pieces of unknown orientation", 2012. The changes of colour just inside the
border of a piece have a mean and a covariance. A neighbour fits if the change across the border is likely
under these. The distance is taken from both sides.
"""

import numpy as np

BESIDES = np.array(
    [[0, 0, 0], [1, 1, 1], [-1, -1, -1], [0, 0, 1], [0, 1, 0], [1, 0, 0], [-1, 0, 0], [0, -1, 0], [0, 0, -1]],
    dtype=float,
)
"""Changes that are added to those of every border, so that a flat one has a covariance as well."""


def border_distances(pieces: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Distances ``(n, n)`` of piece i with piece j to its right, and of piece i with piece j below it.

    ``pieces`` ``(n, height, width, 3)`` are bytes. No piece fits itself.

    >>> ramp = np.arange(24, dtype=np.uint8)[None, :, None] * np.ones((8, 1, 3), np.uint8)
    >>> across, _ = border_distances(np.stack([ramp[:, 8:16], ramp[:, 16:], ramp[:, :8]]))
    >>> across.argmin(1)  # piece 1 is the last; what would follow it is no better than anything
    array([1, 0, 0])
    """
    pixels = pieces.astype(float)
    return _across(pixels), _across(pixels.swapaxes(1, 2))


def relative_distances(distances: np.ndarray) -> np.ndarray:
    """Distances divided by the second best of their row or column, whichever is smaller.

    A ratio tells a distinct best fit from one of many.
    """
    if len(distances) < 3:
        return distances / np.min(distances)
    rows, columns = (np.partition(distances, 1, axis=axis).take(1, axis=axis) for axis in (1, 0))
    ratio: np.ndarray = (distances + 1e-6) / (np.minimum(rows[:, None], columns[None, :]) + 1e-6)
    return ratio


def _across(pixels: np.ndarray) -> np.ndarray:
    last, first = pixels[:, :, -1], pixels[:, :, 0]
    inward = pixels[:, :, -2] if pixels.shape[2] > 1 else last
    outward = pixels[:, :, 1] if pixels.shape[2] > 1 else first
    after = _mahalanobis(last, inward, first)
    before = _mahalanobis(first, outward, last)
    total: np.ndarray = after + before.T
    np.fill_diagonal(total, np.inf)
    return total


def _mahalanobis(edge: np.ndarray, inside: np.ndarray, others: np.ndarray) -> np.ndarray:
    """How unusual the steps from ``edge`` of piece i to ``others`` of piece j are, ``(n, n)``."""
    n = len(edge)
    distances = np.empty((n, n))
    for i in range(n):
        changes = edge[i] - inside[i]
        mean = changes.mean(0)
        covariance = np.cov(np.concatenate([changes, BESIDES]), rowvar=False)
        whitening = np.linalg.cholesky(np.linalg.inv(covariance))
        steps = (others - edge[i] - mean) @ whitening
        distances[i] = np.square(steps).sum((1, 2))
    return distances
