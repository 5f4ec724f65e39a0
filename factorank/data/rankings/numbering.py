"""Numbers in a table as levels: ranks however ties are numbered, and scores."""

import re
from collections.abc import Sequence

import numpy as np

from factorank.data.rankings.checks import fail, shown

MISSING = frozenset({"", "na", "n/a", "nan", "null", "none", "-", "–", "—"})
"""Cells that say that there is nothing, in small letters."""
_NUMBER = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:e[+-]?[0-9]{1,3})?", re.ASCII | re.IGNORECASE)


def missing(cell: str) -> bool:
    """Whether a cell says that there is nothing."""
    return len(cell) <= 4 and cell.lower() in MISSING


class Numbers(dict[str, float]):
    """The number that each cell holds; NaN for a missing one, infinity for one that is no number.

    Cells repeat: each different one is looked at once.
    """

    def __init__(self, decimal_comma: bool) -> None:
        super().__init__()
        self.decimal_comma = decimal_comma

    def __missing__(self, cell: str) -> float:
        text = cell.replace(",", ".", 1) if self.decimal_comma else cell
        if missing(cell):
            value = np.nan
        else:
            value = float(text) if len(text) <= 40 and _NUMBER.fullmatch(text) else np.inf
        self[cell] = value
        return value

    def of(self, cells: Sequence[str]) -> np.ndarray:
        """The numbers of a row."""
        return np.fromiter(map(self.__getitem__, cells), np.float64, len(cells))


def rank_levels(
    cells: Sequence[str], values: np.ndarray, first: int, where: str, names: Sequence[str]
) -> np.ndarray:
    """The levels, from 0, of items that have these ranks; ``cells`` are what the file says of ``names``.

    Tied items share a number. It is the next one (1, 2, 2, 3), one more than the items before them (1, 2, 2,
    4), or the mean of the places that they share (1, 2.5, 2.5, 4). Anything else is a gap.
    """
    if not len(values):
        fail(where, "no item is ranked")
    ordered = np.sort(values)
    if ordered[0] == first and (ordered == np.arange(first, first + len(values))).all():
        return values - first  # without ties, as most are
    used, level, size = np.unique(values, return_inverse=True, return_counts=True)
    before = np.cumsum(size) - size
    ways = np.arange(len(used)), before, before + (size - 1) / 2
    if any(np.array_equal(used, first + way) for way in ways):
        return level
    _refuse_ranks(cells, values, first, where, names)
    raise AssertionError


def score_levels(cells: Sequence[str], values: np.ndarray, where: str, names: Sequence[str]) -> np.ndarray:
    """The levels, from 0, of items that have these scores: the highest is best, equal ones are tied."""
    if not len(values):
        fail(where, "no item has a score")
    if len(wrong := np.flatnonzero(~np.isfinite(values))):
        fail(where, f"the score of {shown(names[wrong[0]])} is {shown(cells[wrong[0]])}, not a number")
    return np.unique(-values, return_inverse=True)[1]


def _refuse_ranks(
    cells: Sequence[str], values: np.ndarray, first: int, where: str, names: Sequence[str]
) -> None:
    """Say what is wrong with ranks that are none."""
    for i, (cell, value) in enumerate(zip(cells, values, strict=True)):
        item = shown(names[i])
        if value == 0 and first == 1:
            advice = "ranks begin with 1 (or say {parameter=0})"
            fail(where, f"the rank of {item} is 0; {advice}", parameter="first_rank")
        if not np.isfinite(value) or value < first:
            fail(where, f"the rank of {item} is {shown(cell)}, not a whole number from {first}")
    scores = "; if the largest number is best, say {parameter='scores'}"
    best = int(values.argmin())
    used = np.unique(values)
    broken = used[used != np.floor(used)]
    if len(broken):
        fault = f"the rank {broken[0]:g} is not the mean of the places that tied items share"
        fail(where, fault + scores, parameter="format")
    if values[best] != first:
        begin = f"the ranks begin with {values[best]:g} ({names[best]}); the best item has rank {first}"
        fail(where, begin + scores, parameter="format")
    gap = int(np.flatnonzero(used != first + np.arange(len(used)))[0])
    absent = f"rank {first + gap} is missing, but {names[int((values == used[gap]).argmax())]} has rank"
    fail(where, f"{absent} {used[gap]:g}{scores}", parameter="format")
