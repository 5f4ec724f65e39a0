"""Reranking: the answer of a ranker."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from factorank.rerank.place_probabilities import interval, mean_place
from factorank.rerank.query import Query

COLUMNS = ("order", "place", "low", "high", "top", "observed")
"""The tensors of an answer."""


class RankedItem(NamedTuple):
    """An item of an answer; places count from 0."""

    item: Any
    place: float
    """The mean place."""
    low: int
    high: int
    """The interval that holds its place with the probability ``level``."""
    top: float
    """The probability of being among the first k."""
    observed: bool


@dataclass(eq=False, repr=False)
class Reranking:
    """Ranked lists of one user, or of many: tensors ``(*batch, m)``, in the order of the answer, best first.

    Iterating over the answer for one user gives :class:`RankedItem`; over that for many, answers for one.
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
    """Whether the item was observed, bool."""
    k: int
    level: float
    names: Sequence[Sequence[Any]] = ()
    """The items of each list by the names that the caller used."""

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
        columns = {name: getattr(self, name)[index] for name in COLUMNS}
        return replace(self, **columns, names=[self.names[index]])

    def __iter__(self) -> Iterator[Any]:
        if self.order.ndim > 1:
            yield from (self[index] for index in range(len(self.order)))
            return
        columns = [getattr(self, name).tolist() for name in COLUMNS if name != "order"]
        for name, *values in zip(self.items, *columns, strict=False):
            yield RankedItem(name, *values)

    def __repr__(self) -> str:
        if self.order.ndim > 1:
            return f"Reranking(lists={len(self.order)}, k={self.k})"
        return f"Reranking({', '.join(map(repr, self.items[:5]))}{', …' * (len(self) > 5)})"

    @classmethod
    def joined(cls, parts: Sequence[tuple[Tensor, ...]], length: int, query: Query) -> "Reranking":
        """The answer of parts that :func:`state` made, with lists of up to ``length`` items, on the CPU."""
        if not parts:
            empty = torch.zeros((0, length), dtype=torch.int64)
            parts = [(empty, empty.float(), empty, empty, empty.float(), empty.bool())]
        order, place, low, high, top, observed = (
            torch.cat(column)[:, :length].cpu() for column in zip(*parts, strict=True)
        )
        ended = order < 0
        return cls(
            order,
            place.masked_fill(ended, torch.nan),
            low.masked_fill(ended, -1),
            high.masked_fill(ended, -1),
            top.masked_fill(ended, 0.0),
            observed & ~ended,
            query.k,
            query.level,
        )


def state(order: Tensor, places: Tensor, observed: Tensor, query: Query) -> tuple[Tensor, ...]:
    """What an answer states of orders ``(rows, n)``: the columns of :class:`Reranking`, ``(rows, n)`` each.

    ``places (rows, n, n)`` are the place probabilities of the list's items, ``observed (rows, n)`` says which
    of them are observed.
    """
    low, high = interval(places, query.level)
    top = places[..., : query.k].sum(-1).clamp(max=1.0)
    columns = (mean_place(places), low, high, top, observed)
    index = order.clamp(min=0)
    return (order, *(column.gather(-1, index) for column in columns))
