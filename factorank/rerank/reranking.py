"""The answer of a ranker."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor


class RankedItem(NamedTuple):
    """An item of an answer; places count from 0."""

    item: Any
    place: float
    """The mean place."""
    low: int
    high: int
    """The interval that holds its place with the level asked for."""
    top: float
    """The probability of being among the first k."""
    observed: bool


@dataclass(eq=False, repr=False)
class Reranking:
    """Ranked lists of one user, or of many: tensors ``(*batch, m)``, in the order of the answer, best first.

    ``items`` are the names as they were given, ``(m,)`` for one user and a list of those for many. Iterating
    over the answer for one user gives :class:`RankedItem`; over that for many, answers for one.
    """

    order: Tensor
    """Which item of the list stands there, int64; -1 past the end. Observed items that the list left out
    come after it."""
    place: Tensor
    """The mean place under the law, from 0 on; NaN past the end."""
    low: Tensor
    high: Tensor
    """The middle ``level`` of the probability of the place lies from ``low`` to ``high``."""
    top: Tensor
    """The probability of being among the first ``k``."""
    observed: Tensor
    """Whether the item's preference was given, bool."""
    k: int
    level: float
    names: Sequence[Sequence[Any]] = ()
    """The items of each list as they were given."""

    @property
    def batch_shape(self) -> torch.Size:
        return self.order.shape[:-1]

    @property
    def items(self) -> list[Any]:
        """The names of the items, best first: a list for one user, a list of lists for many."""
        if self.order.ndim == 1:
            return [self.names[0][i] for i in self.order.tolist() if i >= 0]
        return [answer.items for answer in self]

    def __len__(self) -> int:
        return len(self.order) if self.order.ndim > 1 else int((self.order >= 0).sum())

    def __getitem__(self, index: int) -> Any:
        if self.order.ndim == 1:
            return list(self)[index]
        return Reranking(
            self.order[index],
            self.place[index],
            self.low[index],
            self.high[index],
            self.top[index],
            self.observed[index],
            self.k,
            self.level,
            [self.names[index]],
        )

    def __iter__(self) -> Iterator[Any]:
        if self.order.ndim > 1:
            yield from (self[index] for index in range(len(self.order)))
            return
        columns = (self.place, self.low, self.high, self.top, self.observed)
        for name, *values in zip(self.items, *(column.tolist() for column in columns), strict=False):
            yield RankedItem(name, *values)

    def __repr__(self) -> str:
        if self.order.ndim > 1:
            return f"Reranking(lists={len(self.order)}, k={self.k})"
        return f"Reranking({', '.join(map(repr, self.items[:5]))}{', …' * (len(self) > 5)})"
