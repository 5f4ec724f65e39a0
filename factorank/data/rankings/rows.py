"""Rankings collected row by row in little memory: equal rows are merged before the table of ranks is made."""

from collections.abc import Collection, Mapping, Sequence

import numpy as np
import torch
from numpy.typing import ArrayLike

from factorank.data.rankings.checks import check_name, check_size, check_total, cleaned_name, fail, shown
from factorank.data.rankings.rankings import Rankings
from factorank.errors import RankingsWarning, warn


class RankingRows:
    """The rankings of a file, as a reader meets them.

    A row holds the numbers of its ranked items and their levels, from 0 and equal for ties. Items are
    numbered by :meth:`item` in the order of first appearance. What the file says that cannot be kept as it
    is, names with control characters and rankings of no voter, is remembered and said in one warning.

    Args:
        source: the file, for messages.
        merge: makes equal rankings one row; else there is a row for each of the file.
        items: the names of all items, where these are known beforehand.
    """

    def __init__(self, source: str, merge: bool, items: Sequence[str] | None = None) -> None:
        self.source, self.merge = source, merge
        self.number: dict[str, int] = {name: item for item, name in enumerate(items or ())}
        self.closed = items is not None
        self.places: list[str] = []
        self.counts: list[int] = []
        self._rows: list[tuple[np.ndarray, np.ndarray]] = []
        self._row_of: dict[bytes, int] = {}
        self._number_of: dict[str, int] = {}
        self._text_of: dict[str, str] = {}
        self._cleaned: dict[str, tuple[str, str]] = {}
        self._empty: list[str] = []

    def __len__(self) -> int:
        return len(self._rows)

    def item(self, text: str, where: str) -> int:
        """The number of the item that a file calls ``text``."""
        if text in self._number_of:  # nearly all texts repeat an earlier one
            return self._number_of[text]
        name = self.cleaned(text, where, ())
        if self.closed and name not in self.number:
            names = list(self.number)
            more = f" and {len(names) - 8} more" if len(names) > 8 else ""
            fail(where, f"there is no item {shown(name)}; there are {', '.join(names[:8])}{more}")
        if (other := self._text_of.setdefault(name, text)) != text:
            fail(where, f"the names {shown(other)} and {shown(text)} differ by control characters only")
        return self._number_of.setdefault(text, self.number.setdefault(name, len(self.number)))

    def cleaned(self, text: str, where: str, taken: Collection[str]) -> str:
        """The name of an item without control characters, none of those taken."""
        name = cleaned_name(text, taken)
        if name != text.strip():
            if not name:
                fail(where, f"the item name {shown(text)} holds nothing but control characters")
            self._cleaned.setdefault(text, (where, name))
        return check_name(name, where)

    def add(self, where: str, items: ArrayLike, levels: ArrayLike, count: int = 1) -> int:
        """Add a ranking; the number of the row that is equal to it, which is a new one if there is none.

        A ranking of no voter is left out: -1.
        """
        if count == 0:
            self._empty.append(where)
            return -1
        row = np.array(items, np.int32), np.array(levels, np.int32)
        order = np.lexsort(row)
        row = row[0][order], row[1][order]
        key = row[0].tobytes() + row[1].tobytes()
        same = self._row_of.setdefault(key, len(self._rows))
        if same < len(self._rows) and self.merge:
            self.counts[same] += count
            return same
        self._rows.append(row)
        self.places.append(where)
        self.counts.append(count)
        return same

    def rankings(
        self, names: Sequence[str] | None = None, metadata: Mapping[str, str] | None = None, read_as: str = ""
    ) -> Rankings:
        """All rankings; the columns are ``names``, by default the items in the order of appearance."""
        names = list(self.number) if names is None else names
        if not self._rows:
            fail(self.source, "there is no ranking in the file")
        check_total(self.counts, self.source)
        check_size(len(self._rows), len(names), self.source)
        column = np.empty(len(self.number), np.int64)
        column[[self.number[name] for name in names]] = np.arange(len(names))
        ranks = np.full((len(self._rows), len(names)), -1, np.int64)
        for row, (items, levels) in zip(ranks, self._rows, strict=True):
            row[column[items]] = levels
        self._warn()
        counts = torch.tensor(self.counts, dtype=torch.int64)
        return Rankings(names, torch.from_numpy(ranks), counts, metadata or {}, read_as)

    def _warn(self) -> None:
        if self._cleaned:
            (text, (where, name)), *more = self._cleaned.items()
            names = f"{shown(text)} is now {shown(name)}" + (f", and {len(more)} more" if more else "")
            warn(f"{where}: control characters in names cleaned: {names}", RankingsWarning)
        if self._empty:
            rows = "a ranking" if len(self._empty) == 1 else f"{len(self._empty)} rankings"
            warn(f"{self._empty[0]}: {rows} with a count of 0 left out", RankingsWarning)
