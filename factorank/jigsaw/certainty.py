"""The probability of a solution by assignment: that of its permutation among all permutations."""

import numpy as np
from torch import Tensor

NEGLIGIBLE = 1e-12
"""Permutations whose probability is below this share of the likeliest one's are left out."""


def among_permutations(log_probs: Tensor, order: Tensor, *, most: int = 20_000) -> float:
    r"""The probability of the likeliest order ``(n,)``, given that independent values make a permutation.

    With log-probabilities ``(n, n)``, place by value, it is :math:`\prod_i P_{i,X_i}` divided by the
    permanent of P. The sum behind the permanent goes place by place over the sets of taken values, the surest
    places first. It is exact up to negligible terms as long as there are at most ``most`` such sets. Beyond,
    the likeliest sets are kept and the result is an upper bound. With more than 62 doubtful places it is the
    product alone, a lower bound.

    >>> import torch
    >>> third = torch.full((3, 3), 1 / 3).log()
    >>> round(among_permutations(third, torch.tensor([0, 1, 2])), 6)
    0.166667
    """
    ratio = _beside_the_order(log_probs[:, order].double().cpu().numpy())
    possible = ratio > NEGLIGIBLE
    rows, columns = _doubtful(possible)
    if len(rows) > 62:
        return float(log_probs.gather(1, order[:, None]).double().sum().exp())
    ratio, possible = ratio[np.ix_(rows, columns)], possible[np.ix_(rows, columns)]
    sets, weights = np.zeros(1, np.int64), np.ones(1)
    for row in np.argsort(possible.sum(1), kind="stable"):
        values = possible[row].nonzero()[0]
        bits = np.int64(1) << values
        free = (sets[:, None] & bits) == 0
        heavier = (weights[:, None] * ratio[row, values])[free]
        sets, where = np.unique((sets[:, None] | bits)[free], return_inverse=True)
        weights = np.bincount(where, heavier).astype(float)
        if len(sets) > most:
            kept = np.argpartition(weights, -most)[-most:]
            sets, weights = sets[kept], weights[kept]
    return 1 / max(float(weights.sum()), 1.0)


def _beside_the_order(log_probs: np.ndarray) -> np.ndarray:
    """Ratios ``(n, n)``, at most 1, whose product over a permutation is its probability relative to the
    diagonal, the likeliest one.

    Prices of the values bring them to at most 1. They are the longest paths of exchanges; no cycle of
    exchanges gains anything, because the diagonal is the likeliest.
    """
    gain = log_probs - log_probs.diagonal()[:, None]
    price, before = np.zeros(len(gain)), np.full(len(gain), -1.0)
    for _ in range(len(gain)):
        if np.array_equal(price, before):
            break
        price, before = np.maximum(price, (price[:, None] + gain).max(0, initial=0.0)), price
    ratio: np.ndarray = np.exp(np.minimum(gain + price[:, None] - price, 0.0))
    return ratio


def _doubtful(possible: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The rows and columns that remain after rows with a single possible column are settled repeatedly."""
    rows, columns = (np.ones(size, dtype=bool) for size in possible.shape)
    while (sure := rows & ((possible & columns).sum(1) == 1)).any():
        rows &= ~sure
        columns &= ~possible[sure].any(0)
    return rows.nonzero()[0], columns.nonzero()[0]
