"""Items by the names that users have for them: ids, titles, features of new items, a file of ratings."""

import csv
import difflib
import io
import math
import os
from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from factorank.errors import FactorankError, RatingsError
from factorank.reading import read_text

Item = Hashable
"""An item as a user names it: an id, as text or number, or a title."""
FARTHEST = 1e12
"""So many widths from the centre a feature of a new item may lie; the network overflows far beyond."""


class Catalogue:
    """The items of a ranker: their ids, their titles if there are any, the names of their features.

    An id is looked up as it is, then as text or number, then as a title. ``scales`` are the centre and the
    width of each feature: the model reads a number as (number - centre) / width.

    >>> catalogue = Catalogue([10, 20], ["Toy Story", "Heat"], ["year"], [(1980.0, 20.0)])
    >>> [catalogue.index(name) for name in (10, "20", "Heat")]
    [0, 1, 1]
    >>> catalogue.feature_row("Alien", {"year": 1990})
    [0.5]
    """

    def __init__(
        self,
        ids: Sequence[Any],
        titles: Sequence[str] | None = None,
        features: Sequence[str] = (),
        scales: Sequence[tuple[float, float]] | None = None,
    ) -> None:
        for name, words in (("titles", titles), ("features", features)):
            if isinstance(words, str):
                raise FactorankError(f"{{parameter}} is a list of names, not {words!r}", parameter=name)
        self.ids, self.titles, self.features = list(ids), None if titles is None else list(titles), features
        self.scales = [(0.0, 1.0)] * len(features) if scales is None else list(scales)
        self._index: dict[Any, int] = {name: index for index, name in enumerate(self.ids)}
        for index, name in enumerate(self.ids):
            self._index.setdefault(str(name), index)
        counts = Counter(self.titles or ())
        # A title that is the id of an item stands for that item, so that every id names one.
        self._ambiguous = {title for title, n in counts.items() if n > 1 and title not in self._index}
        for index, title in enumerate(self.titles or ()):
            self._index.setdefault(title, index)

    def __len__(self) -> int:
        return len(self.ids)

    def index(self, item: Item) -> int | None:
        """The index of an item, None if the catalogue does not hold it."""
        return self._find(item)

    def _find(self, item: Item) -> int | None:
        """:meth:`index` without the check of its argument, which would take most of a request's time."""
        index = self._index.get(item)
        if index is None and isinstance(item, Tensor | np.generic):
            index = self._index.get(item.item())
        if index is not None and self._ambiguous and item in self._ambiguous:
            raise FactorankError(f"several items are called {item!r}; name it by its id")
        return index

    @cached_property
    def sorted_ids(self) -> tuple[Tensor, Tensor] | None:
        """The ids in ascending order and the index of each, or None if they are not all whole numbers."""
        if not self.ids or not all(isinstance(name, int) and abs(name) < 2**62 for name in self.ids):
            return None
        return tuple(torch.tensor(self.ids, dtype=torch.int64).sort())  # type: ignore[return-value]

    def near(self, item: Item, most: int = 3) -> list[str]:
        """Titles, or ids of text, that are spelt like an item that the catalogue does not hold.

        >>> Catalogue([10, 20], ["Toy Story (1995)", "Heat (1995)"]).near("heat")
        ['Heat (1995)']
        """
        lower = {name.lower(): name for name in map(str, self.titles or self.ids)}
        text = str(item).lower().strip()
        if not text or text.isdigit():
            return []
        # "Heat" begins "Heat (1995)", which is nearer than a longer title that has it inside.
        within = sorted((not name.startswith(text), len(name), name) for name in lower if text in name)
        near = [name for *_, name in within[:most]] or difflib.get_close_matches(text, lower, most)
        return [lower[name] for name in near]

    def names(self, items: Sequence[Item]) -> list[str]:
        """What to call items in text: their titles, or else the names that the caller used."""
        names = []
        for item in items:
            index = self._find(item)
            names.append(str(item) if index is None or self.titles is None else self.titles[index])
        return names

    def feature_row(self, item: Item, features: Mapping[str, float] | Sequence[float]) -> list[float]:
        """The features of a new item in the order and the units of the model's; NaN where a mapping leaves
        them out."""
        known = ", ".join(self.features)
        if isinstance(features, Mapping):
            if unknown := [name for name in features if name not in self.features]:
                raise FactorankError(f"{item!r} comes with {unknown[0]!r}; the features are {known}")
            features = [features.get(name, np.nan) for name in self.features]
        if (count := len(features)) != (wanted := len(self.features)):
            raise FactorankError(f"{item!r} comes with {count} features; there are {wanted}: {known}")
        named = zip(self.features, features, self.scales, strict=True)
        return [_standardised(item, name, value, *units) for name, value, units in named]


def _standardised(item: Item, name: str, value: Any, centre: float, width: float) -> float:
    """A feature of a new item in the units of the model; NaN, or None, where it is not known."""
    try:
        number = math.nan if value is None else (float(value) - centre) / width
    except (TypeError, ValueError, OverflowError):
        number = math.inf
    if abs(number) > FARTHEST:
        raise FactorankError(
            f"{item!r} comes with {name} {value!r}; a feature is a number of the size of the table's, or NaN"
            " where it is not known"
        )
    return number


def read_user(path: str | os.PathLike[str]) -> list[str] | dict[str, float]:
    """The ratings of a CSV with the columns ``item`` and ``rating`` (NaN where that is empty), or the order,
    best first, of one with a column ``item`` alone.

    An item on two lines is refused, as is a rating that is no number.
    """
    with io.StringIO(read_text(path, error=RatingsError)) as file:
        lines = csv.DictReader(file)
        try:
            return _read_lines(path, lines)
        except csv.Error as error:  # such as a quote that does not end
            raise RatingsError(f"{path}:{lines.line_num + 1}: no row of a CSV: {error}") from None


def _read_lines(path: str | os.PathLike[str], lines: "csv.DictReader[str]") -> list[str] | dict[str, float]:
    columns = [str(name).strip().lower() for name in lines.fieldnames or ()]
    if "item" not in columns:
        raise RatingsError(f"{path}:1: expected the columns item and rating, or item alone")
    lines.fieldnames = columns
    ratings: dict[str, float] = {}
    for line in lines:
        where, item = f"{path}:{lines.line_num}:", (line["item"] or "").strip()
        if None in line or None in line.values():
            raise RatingsError(f"{where} the line does not have {len(columns)} cells as the first one has")
        if not item:
            raise RatingsError(f"{where} there is no item")
        if item in ratings:
            raise RatingsError(f"{where} {item!r} was on an earlier line already")
        text = (line.get("rating") or "").strip()
        try:
            ratings[item] = float(text) if text else math.nan
        except ValueError:
            raise RatingsError(f"{where} {item!r} is rated {text!r}, which is no number") from None
        if math.isinf(ratings[item]):
            raise RatingsError(f"{where} {item!r} is rated {text!r}")
    return ratings if "rating" in columns else list(ratings)
