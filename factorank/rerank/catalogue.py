"""Items by the names that users have for them: ids, titles, and features of new items."""

import difflib
from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from factorank.errors import FactorankError

Item = Hashable
"""An item as a user names it: an id, as text or number, or a title."""


class Catalogue:
    """The items of a ranker: their ids, their titles if there are any, the names of their features.

    An id is looked up as it is, then as text or number, then as a title.

    >>> catalogue = Catalogue([10, 20], ["Toy Story", "Heat"])
    >>> [catalogue.index(name) for name in (10, "20", "Heat")]
    [0, 1, 1]
    """

    def __init__(
        self, ids: Sequence[Any], titles: Sequence[str] | None = None, features: Sequence[str] = ()
    ) -> None:
        self.ids, self.titles, self.features = list(ids), None if titles is None else list(titles), features
        self._index: dict[Any, int] = {}
        for index, name in enumerate(self.ids):
            self._index[name] = index
        for index, name in enumerate(self.ids):
            self._index.setdefault(str(name), index)
        self._ambiguous = set()
        for index, title in enumerate(self.titles or ()):
            if self._index.setdefault(title, index) != index:
                self._ambiguous.add(title)

    def __len__(self) -> int:
        return len(self.ids)

    def index(self, item: Item) -> int | None:
        """The index of an item, None if the catalogue does not hold it."""
        if isinstance(item, Tensor | np.generic):
            item = item.item()
        index = self._index.get(item)
        if index is not None and item in self._ambiguous:
            raise FactorankError(f"several items are called {item!r}; name it by its id")
        return index

    def near(self, item: Item, most: int = 3) -> list[str]:
        """Titles, or ids of text, that are spelt like an item that the catalogue does not hold.

        >>> Catalogue([10, 20], ["Toy Story (1995)", "Heat (1995)"]).near("heat")
        ['Heat (1995)']
        """
        names = [str(name) for name in (self.titles or self.ids)]
        text = str(item).lower().strip()
        if not text or text.isdigit():
            return []
        within = sorted((name for name in names if text in name.lower()), key=lambda name: (len(name), name))
        if within:
            # "Heat" begins "Heat (1995)", which is nearer than a longer title that has it inside.
            return sorted(within, key=lambda name: not name.lower().startswith(text))[:most]
        lower = {name.lower(): name for name in names}
        return [lower[name] for name in difflib.get_close_matches(text, lower, most)]

    def names(self, items: Sequence[Item]) -> list[str]:
        """What to call items in text: their titles, or else the names that the caller used."""
        indices = [self.index(item) for item in items]
        return [
            str(item) if index is None or self.titles is None else self.titles[index]
            for item, index in zip(items, indices, strict=True)
        ]

    def feature_row(self, item: Item, features: Mapping[str, float] | Sequence[float]) -> list[float]:
        """The features of a new item in the order of the model's; NaN where a mapping leaves them out."""
        if isinstance(features, Mapping):
            if unknown := [name for name in features if name not in self.features]:
                raise FactorankError(
                    f"{item!r} comes with {unknown[0]!r}; the features are {', '.join(self.features)}"
                )
            return [float(features.get(name, np.nan)) for name in self.features]
        if len(features) != len(self.features):
            raise FactorankError(
                f"{item!r} comes with {len(features)} features; there are {len(self.features)}:"
                f" {', '.join(self.features)}"
            )
        return [float(value) for value in features]


def whole_numbers(values: Any) -> Tensor | None:
    """A tensor or array of integers as an int64 tensor on the CPU, None for anything else."""
    if isinstance(values, np.ndarray) and values.dtype.kind in "iu":
        return torch.from_numpy(values.astype(np.int64))
    if isinstance(values, Tensor) and not values.is_floating_point() and values.dtype != torch.bool:
        return values.to(torch.int64).cpu()
    return None
