"""What is asked of a ranker, :class:`Query`, and what it answers, :class:`Reranking`."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple, get_args

import torch
from torch import Tensor

from factorank.errors import FactorankError

By = Literal["gain", "place", "mode", "sample"]
ITEMS_DRAWN, MOST_DRAWS = 16_384, 1024
"""With ``samples=None``: the items that are drawn for a list, over all its draws, and the most draws. The
noise of few draws costs NDCG. Observed items are not drawn."""
REFERENCES = 4
"""The references that an answer averages over, unless told otherwise."""
COLUMNS = {"order": -1, "place": math.nan, "low": -1, "high": -1, "top": 0.0, "observed": False}
"""The tensors of an answer, and what they hold past the end of a list."""


@dataclass(frozen=True)
class Query:
    """The options of :meth:`factorank.Ranker.rerank`: how lists are ranked, and what an answer states.

    >>> Query(k=3).by
    'gain'
    """

    k: int = 10
    """An answer states the probability of being among the first k."""
    by: By = "gain"
    """What sorts the answer: "gain", the expected gain (see :mod:`factorank.rerank.expected_gain`), or
    "place", the mean place; or the answer is the "mode" of the law, or a "sample" of it."""
    nfe: int | None = None
    """Network evaluations of a draw: 1 unless given, n for autoregressive models."""
    references: int = REFERENCES
    """Random references to average over; more is better and slower."""
    samples: int | None = 64
    """Draws over all references that estimate the probabilities where they are not exact; they are exact at
    one evaluation. None: the fewer items are unobserved, the more."""
    level: float = 0.8
    """The probability of the interval for the place."""
    most: int = 1
    """How many items of one group may be among the first k, where items have groups."""

    def __post_init__(self) -> None:
        if self.by not in get_args(By):
            raise FactorankError(
                f"an answer is {{parameter}} {', '.join(get_args(By))}, not {self.by!r}", parameter="by"
            )
        for name in ("k", "references", "samples", "most"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise FactorankError(f"{{parameter}} is at least 1, not {value}", parameter=name)
        if not 0 < self.level < 1:
            raise FactorankError(f"the level of an interval is between 0 and 1, not {self.level}")

    def draws(self, n: int, r: int = 0) -> int:
        """How many orders of n items, r of them observed, are drawn over all references.

        >>> adaptive = Query(samples=None)
        >>> adaptive.draws(50), adaptive.draws(50, 25), adaptive.draws(20, 15), Query().draws(20)
        (327, 655, 1024, 64)
        """
        if self.samples is not None:
            return self.samples
        return min(max(ITEMS_DRAWN // max(n - r, 1), 1), MOST_DRAWS)


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
    def items(self) -> list[Any]:
        """The names of the items, best first: a list for one user, a list of lists for many."""
        if self.order.ndim == 1:
            return [self.names[0][i] for i in self.order.tolist() if i >= 0]
        return [answer.items for answer in self]

    @property
    def table(self) -> dict[str, list[Any]]:
        """The answer as columns, for ``pandas.DataFrame(answer.table)`` or ``polars.DataFrame``: the number
        of the list, the rank from 1 on, and what :class:`RankedItem` holds."""
        lists = [self] if self.order.ndim == 1 else list(self)
        columns: dict[str, list[Any]] = {name: [] for name in ("list", "rank", *RankedItem._fields)}
        for number, answer in enumerate(lists):
            for rank, ranked in enumerate(answer, start=1):
                for name, value in zip(columns, (number, rank, *ranked), strict=True):
                    columns[name].append(value)
        return columns

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
        whole = [torch.cat(column)[:, :length].cpu() for column in zip(*parts, strict=True)]
        columns: dict[str, Any] = {
            name: column.masked_fill(whole[0] < 0, end)
            for (name, end), column in zip(COLUMNS.items(), whole, strict=True)
        }
        return cls(**columns, k=query.k, level=query.level)


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


def mean_place(places: Tensor) -> Tensor:
    """The mean place ``(rows, n)``, from 0 on."""
    # Not a matrix product, which autocast would take to bfloat16: places would come in steps.
    return (places * torch.arange(places.shape[-1], device=places.device, dtype=places.dtype)).sum(-1)


def interval(places: Tensor, level: float) -> tuple[Tensor, Tensor]:
    """The lowest and highest place, ``(rows, n)`` each, of the middle ``level`` of the probability.

    >>> interval(torch.tensor([[0.02, 0.9, 0.04, 0.04]]), 0.9)
    (tensor([1]), tensor([2]))
    """
    below = places.cumsum(-1)
    tail, rounding = (1 - level) / 2, 1e-5
    low = (below <= tail + rounding).sum(-1)
    high = (below < 1 - tail - rounding).sum(-1)
    return low, high.clamp(max=places.shape[-1] - 1)
