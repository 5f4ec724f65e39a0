"""Consensus orders by other rules than Kemeny's. Items that a rule cannot tell apart keep their order."""

import numpy as np

METHODS = ("kemeny", "borda", "copeland", "schulze", "rrf")
"""Of :func:`factorank.consensus`."""
RRF_CONSTANT = 60
"""Of reciprocal rank fusion, as its authors chose it (Cormack, Clarke and Büttcher, 2009)."""


def scores_of(method: str, ranks: np.ndarray, weights: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """What a method sorts by, from places ``(rows, n)`` (-1: left out), weights and pairwise counts."""
    scores = {"borda": borda, "copeland": copeland, "schulze": schulze}
    return scores[method](counts) if method in scores else reciprocal_ranks(ranks, weights)


def borda(counts: np.ndarray) -> np.ndarray:
    """The items below each one less those above it, over all votes."""
    return (counts - counts.T).sum(1)


def copeland(counts: np.ndarray) -> np.ndarray:
    """The items that each one beats less those that beat it."""
    return np.sign(counts - counts.T).sum(1)


def schulze(counts: np.ndarray) -> np.ndarray:
    """The items that each one beats by the strength of paths, less those that beat it (Schulze, 2011).

    >>> schulze(np.array([[0, 3, 1], [2, 0, 4], [4, 1, 0]]))
    array([-2.,  2.,  0.])
    """
    strength = np.where(counts > counts.T, counts, 0.0)
    for via in range(len(counts)):
        strength = np.maximum(strength, np.minimum(strength[:, via, None], strength[None, via, :]))
    np.fill_diagonal(strength, 0.0)
    return np.sign(strength - strength.T).sum(1)


def reciprocal_ranks(ranks: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """The sum over the votes of 1 / (60 + place), places counted from 1; nothing for an item left out."""
    shares = np.where(ranks >= 0, 1.0 / (RRF_CONSTANT + 1 + ranks), 0.0)
    return weights @ shares
