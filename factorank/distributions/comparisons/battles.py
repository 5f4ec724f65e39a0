"""Comparisons as data: checked, and added up where they are alike."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from factorank.distributions.fitting.checks import number_table
from factorank.distributions.fitting.errors import FitError

FIRST, SECOND, TIE = 0, 1, 2
NO_WEIGHTS = np.empty(0)
"""Each comparison counts once."""
LARGEST_TABLE = 4_000_000
"""The number of cells (pairs of items) up to which counts are added up in a dense table."""


@dataclass(frozen=True)
class Battles:
    """Counts ``(rows, 3)`` of wins of the first item, of the second, and ties: by pair, covariates and group.

    Rows without covariates and groups are one for each pair of items that met, ``first < second``.
    """

    first: np.ndarray
    second: np.ndarray
    counts: np.ndarray
    covariates: np.ndarray
    items: int
    group: np.ndarray | None = None
    """The group, such as the judge, that a row belongs to: 0, 1, …; None if each comparison is its own."""

    @property
    def total(self) -> float:
        """How many comparisons there are, or the sum of their weights."""
        return float(self.counts.sum())

    def beats(self) -> np.ndarray:
        """Bool ``(n, n)``: whether an item did not always lose against another, ties included."""
        edges = np.zeros((self.items, self.items), dtype=bool)
        tied = self.counts[:, TIE] > 0
        won, lost = tied | (self.counts[:, FIRST] > 0), tied | (self.counts[:, SECOND] > 0)
        edges[self.first[won], self.second[won]] = True
        edges[self.second[lost], self.first[lost]] = True
        return edges


def collect(
    pairs: Any,
    outcomes: Any,
    weights: Any = None,
    *,
    items: int | None = None,
    covariates: Any = None,
    groups: Any = None,
) -> Battles:
    """Comparisons added up where they are alike; each fault is an error that names the row.

    See :meth:`factorank.BradleyTerry.fit` for the arguments.
    """
    first, second, n = _checked_pairs(pairs, items)
    codes = outcome_codes(outcomes, len(first))
    counts = _checked_weights(weights, len(first))
    if covariates is None and groups is None:
        return _by_pair(first, second, codes, counts, n)
    values = np.zeros((len(first), 0)) if covariates is None else _checked_covariates(covariates, len(first))
    group = np.zeros(len(first), np.int64) if groups is None else _checked_groups(groups, len(first))
    unique, index = np.unique(np.column_stack([first, second, group, values]), axis=0, return_inverse=True)
    table = _counted(index.reshape(-1) * 3 + codes, counts, len(unique))
    first, second, group = unique[:, :3].astype(np.int64).T
    return Battles(first, second, table, unique[:, 3:], n, None if groups is None else group)


def _by_pair(first: np.ndarray, second: np.ndarray, codes: np.ndarray, counts: np.ndarray, n: int) -> Battles:
    from factorank.kernels.comparisons import add_up

    if n * n <= LARGEST_TABLE:
        table = np.zeros((n, n, 3))
        add_up(first, second, codes, counts, table)
        first, second = np.nonzero(table.sum(-1))
        counts = table[first, second]
    else:
        swap = first > second
        codes = np.where(swap & (codes != TIE), 1 - codes, codes)
        first, second = np.where(swap, second, first), np.where(swap, first, second)
        cells, index = np.unique(first.astype(np.int64) * n + second, return_inverse=True)
        counts = _counted(index * 3 + codes, counts, len(cells))
        met = counts.sum(-1) > 0
        first, second, counts = cells[met] // n, cells[met] % n, counts[met]
    return Battles(first, second, counts, np.zeros((len(first), 0)), n)


def _counted(cells: np.ndarray, counts: np.ndarray, rows: int) -> np.ndarray:
    """How much falls into each cell, ``(rows, 3)``."""
    weights = counts if len(counts) else None
    return np.bincount(cells, weights, 3 * rows).reshape(-1, 3).astype(np.float64)


def outcome_codes(outcomes: Any, rows: int) -> np.ndarray:
    """Outcomes as 0 (the first item wins), 1 (the second) and 2 (a tie), integers ``(rows,)``.

    Integers are these codes: the index of the winner in the pair, 2 for a tie. Floating-point numbers are
    the score of the first item: 1, 0, or 0.5 for a tie. Words are "model_a", "model_b" and "tie".

    >>> outcome_codes([1.0, 0.5, 0.0], 3), outcome_codes(["tie", "model_b"], 2)
    (array([0, 2, 1]), array([2, 1]))
    """
    values = _array(outcomes, "outcomes")
    if values.shape != (rows,):
        raise FitError(
            f"there is one outcome a comparison: {rows}, but outcomes have shape {values.shape}",
            parameter="outcomes",
        )
    if values.dtype.kind in "iu":
        codes = values if values.dtype in (np.int8, np.int64) else values.astype(np.int64)
        allowed = "0 (the first wins), 1 (the second wins) or 2 (a tie)"
        inside = not len(codes) or (codes.min() >= FIRST and codes.max() <= TIE)
        bad = np.zeros(0, bool) if inside else (codes < FIRST) | (codes > TIE)
    elif values.dtype.kind == "f":
        codes = np.where(values == 0.5, TIE, np.where(values == 1, FIRST, SECOND)).astype(np.int64)
        bad, allowed = ~np.isin(values, (0, 0.5, 1)), "the score of the first: 1.0, 0.0, or 0.5 for a tie"
    else:
        words = ("model_a", "model_b", "tie")
        codes = np.select([values == word for word in words], range(3), -1)
        bad, allowed = codes < 0, "'model_a', 'model_b' or 'tie'"
    if bad.any():
        row = int(bad.argmax())
        raise FitError(f"an outcome is {allowed}; row {row} holds {values[row]!r}", parameter="outcomes")
    return codes


def _checked_pairs(pairs: Any, items: int | None) -> tuple[np.ndarray, np.ndarray, int]:
    values = _array(pairs, "pairs")
    if values.ndim != 2 or values.shape[1] != 2 or values.dtype.kind not in "iu":
        raise FitError(
            f"pairs are integers (rows, 2), two items a row, not {values.dtype} of shape {values.shape}",
            parameter="pairs",
        )
    if not len(values):
        raise FitError("a fit needs at least one comparison", parameter="pairs")
    from factorank.kernels.comparisons import first_fault

    values = values if values.dtype in (np.int32, np.int64) else values.astype(np.int64)
    n = int(values.max()) + 1 if items is None else int(items)
    row = first_fault(values, n)
    if row >= 0:
        a, b = values[row].tolist()
        if not 0 <= a < n or not 0 <= b < n:
            outside = b if 0 <= a < n else a
            raise FitError(f"items are 0..{n - 1}, but row {row} holds {outside}", parameter="pairs")
        raise FitError(f"two different items are compared, but row {row} holds {a} twice", parameter="pairs")
    return values[:, 0], values[:, 1], n


def _checked_weights(weights: Any, rows: int) -> np.ndarray:
    if weights is None:
        return NO_WEIGHTS
    values = _array(weights, "weights")
    if values.shape != (rows,) or values.dtype.kind not in "iufb":
        raise FitError(
            f"there is one weight a comparison: {rows} numbers, not {values.dtype} of shape {values.shape}",
            parameter="weights",
        )
    values = values.astype(np.float64)
    bad = ~np.isfinite(values) | (values < 0)
    if bad.any():
        row = int(bad.argmax())
        raise FitError(
            f"weights are finite and at least 0, but row {row} holds {values[row]:g}", parameter="weights"
        )
    if not values.any():
        raise FitError("at least one weight must be above 0", parameter="weights")
    return values


def _checked_covariates(covariates: Any, rows: int) -> np.ndarray:
    values = _array(covariates, "covariates")
    return number_table(values[:, None] if values.ndim == 1 else values, rows, "covariates", "row")


def _checked_groups(groups: Any, rows: int) -> np.ndarray:
    values = _array(groups, "groups")
    if values.shape != (rows,):
        raise FitError(
            f"there is one group a comparison: {rows}, but groups have shape {values.shape}",
            parameter="groups",
        )
    return np.unique(values, return_inverse=True)[1].reshape(-1)


def _array(values: Sequence[Any] | np.ndarray | Tensor, name: str) -> np.ndarray:
    try:
        array = values.detach().cpu().numpy() if isinstance(values, torch.Tensor) else np.asarray(values)
    except (TypeError, ValueError) as error:
        raise FitError(f"{name} are no table of numbers: {error}", parameter=name) from None
    return array
