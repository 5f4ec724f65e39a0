"""Rankings of named items by voters: complete or not, with ties or without."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from factorank.data.rankings.checks import check_names, check_ranks, check_total, levels_of, tied_rows
from factorank.errors import RankingsError
from factorank.permutations import check_integer

MOST_VOTERS = 10**8
"""A split and a random breaking of ties hold a number for each voter."""


@dataclass(frozen=True, eq=False, repr=False)
class Rankings:
    """Rankings of the same named items, a row for each, with the number of voters who share it.

    ``ranks[r, j]`` is the place of item j in row r, from 0. Tied items have the same number, the next item
    has the next number, and an item that is not ranked has -1. The ranks of a complete strict ranking are the
    inverse of its order.

    >>> votes = Rankings(["ann", "bob", "cat"], torch.tensor([[0, 1, 2], [1, 0, -1]]), torch.tensor([3, 1]))
    >>> votes
    Rankings(3 items, 2 rows, 4 voters, strict)
    >>> votes.to_padded_orders()
    tensor([[ 0,  1,  2],
            [ 1,  0, -1]])
    """

    items: Sequence[str]
    """Names of the n items."""
    ranks: Tensor
    """``(rows, n)`` int64."""
    counts: Tensor = None  # type: ignore[assignment]  # None is replaced by ones
    """The number of voters who share each row: ``(rows,)`` int64, at least 1; by default all 1."""
    metadata: Mapping[str, str] = field(default_factory=dict)
    """Other lines of a PrefLib file: ``{"TITLE": …}``."""
    read_as: str = ""
    """What a reader understood of the file, in a line: "read as: one row a voter, columns are items, …"."""

    def __post_init__(self) -> None:
        check_integer(self.ranks, "Rankings takes ranks", RankingsError)
        items, ranks = tuple(check_names(self.items, "items")), self.ranks.to("cpu", torch.int64)
        n, shape = len(items), tuple(ranks.shape)
        if len(shape) != 2 or shape[1] != n:
            raise RankingsError(f"there are {n} items, so ranks are (rows, {n}), not {shape}")
        counts = torch.ones(len(ranks), dtype=torch.int64) if self.counts is None else self.counts
        check_integer(counts, "Rankings takes counts", RankingsError)
        counts = counts.to("cpu", torch.int64)
        if tuple(counts.shape) != shape[:1]:
            raise RankingsError(f"each row has a count, so counts are {shape[:1]}, not {tuple(counts.shape)}")
        if (counts < 1).any():
            row = int((counts < 1).int().argmax())
            raise RankingsError(f"has count {int(counts[row])}; a count is at least 1", row=row)
        check_total(counts.tolist(), "counts")
        check_ranks(ranks)
        vars(self).update(items=items, ranks=ranks, counts=counts, metadata=dict(self.metadata))

    @classmethod
    def from_orders(
        cls, orders: Tensor, items: Sequence[str] | None = None, counts: Tensor | None = None
    ) -> "Rankings":
        """Rankings from orders ``(rows, k)`` of item numbers, best first, short ones padded with -1.

        Without ``items`` there are k items, named 0, 1, ….

        >>> Rankings.from_orders(torch.tensor([[2, 0, 1], [1, -1, -1]])).ranks
        tensor([[ 1,  2,  0],
                [-1,  0, -1]])
        """
        check_integer(orders, "Rankings.from_orders takes orders", RankingsError)
        if orders.ndim != 2:
            raise RankingsError(f"Rankings.from_orders takes orders (rows, k), not {tuple(orders.shape)}")
        orders, names = orders.to("cpu", torch.int64), _names(items, orders.shape[1])
        n = len(names)
        listed = (orders >= 0) & (orders < n)
        ranks = torch.full((len(orders), n + 1), -1)  # the last column takes the padding
        ranks.scatter_(1, orders.where(listed, n), torch.arange(orders.shape[1]).expand_as(orders))
        ranks = ranks[:, :n]
        for fault, what in (
            ((~listed & (orders != -1)).any(1), f"an item that is none of 0..{n - 1}"),
            ((listed[:, 1:] & ~listed[:, :-1]).any(1), "an item after padding"),
            ((ranks >= 0).sum(1) < listed.sum(1), "an item twice"),
        ):
            if fault.any():
                raise RankingsError(f"row {int(fault.int().argmax())} of the orders holds {what}")
        return cls(names, ranks, counts)  # type: ignore[arg-type]

    @classmethod
    def from_scores(cls, scores: Tensor, items: Sequence[str] | None = None) -> "Rankings":
        """Rankings by score, highest first, from ratings ``(rows, n)``: equal scores tie, NaN is unranked.

        >>> Rankings.from_scores(torch.tensor([[1.0, 5.0, 1.0], [2.0, torch.nan, 3.0]])).ranks
        tensor([[ 1,  0,  1],
                [ 1, -1,  0]])
        """
        if not isinstance(scores, Tensor) or scores.ndim != 2:
            got = tuple(scores.shape) if isinstance(scores, Tensor) else f"a {type(scores).__name__}"
            raise RankingsError(f"Rankings.from_scores takes a tensor of scores (rows, n), not {got}")
        below = scores.to(torch.float64).nan_to_num(nan=-torch.inf, posinf=torch.inf, neginf=-torch.inf)
        ordered, order = below.sort(dim=1, descending=True, stable=True)
        levels = torch.zeros(scores.shape, dtype=torch.int64)
        levels[:, 1:] = (ordered[:, 1:] != ordered[:, :-1]).cumsum(1)
        ranks = torch.empty_like(levels).scatter_(1, order, levels).masked_fill(scores.isnan(), -1)
        return cls(_names(items, scores.shape[1]), ranks)

    @property
    def n(self) -> int:
        """The number of items."""
        return len(self.items)

    @property
    def voters(self) -> int:
        """The number of voters: the sum of the counts."""
        return int(self.counts.sum())

    @property
    def weights(self) -> Tensor:
        """The counts as float64 ``(rows,)``: the weights that the ``fit`` of a law takes."""
        return self.counts.to(torch.float64)

    @property
    def complete(self) -> bool:
        """Whether every row ranks every item."""
        return bool((self.ranks >= 0).all())

    @property
    def strict(self) -> bool:
        """Whether no row has a tie."""
        return not bool(tied_rows(self.ranks).any())

    def orders(self) -> Tensor:
        """The orders ``(voters, n)``, best first, a row for each voter; they must be complete and strict.

        A row that several voters share is repeated, so that its count cannot be lost.
        :meth:`to_padded_orders` has each row once; its weights are :attr:`weights`.

        >>> Rankings(["a", "b"], torch.tensor([[1, 0]]), torch.tensor([2])).orders()
        tensor([[1, 0],
                [1, 0]])
        """
        self.check_complete("; orders() is for complete rankings")
        _check_voters(self.voters, "list")
        return self.to_padded_orders().repeat_interleave(self.counts, 0)

    def to_padded_orders(self) -> Tensor:
        """The rows as orders ``(rows, n)`` of the ranked items, best first, then -1; they must be strict."""
        tied = tied_rows(self.ranks)
        if tied.any():
            row = int(tied.int().argmax())
            first, second, *_ = next(level for level in levels_of(self.ranks[row].tolist()) if len(level) > 1)
            names = f"{self.items[first]!r} and {self.items[second]!r}"
            advice = "{parameter} puts tied items in a random order"
            raise RankingsError(f"ties {names}; {advice}", parameter="break_ties", row=row)
        unranked = self.ranks < 0
        orders = self.ranks.masked_fill(unranked, self.n).argsort(1)
        return orders.masked_fill(unranked.sort(1).values, -1)

    def check_complete(self, advice: str, parameter: str | None = None) -> None:
        """Refuse rankings that leave items out, with an error that ends in ``advice``."""
        if not self.complete:
            row, item = (self.ranks < 0).nonzero()[0].tolist()
            raise RankingsError(f"does not rank {self.items[item]!r}{advice}", parameter=parameter, row=row)

    def with_items(
        self, items: Sequence[str], *, sources: tuple[object, object] = ("the rankings", "the other items")
    ) -> "Rankings":
        """The same rankings with the items numbered as in ``items``, which are the same names.

        An error calls the items of the rankings and ``items`` by their two ``sources``.

        >>> Rankings(["a", "b", "c"], torch.tensor([[0, 1, 2]])).with_items(["c", "a", "b"]).ranks
        tensor([[2, 0, 1]])
        """
        number = {name: column for column, name in enumerate(self.items)}
        if odd := sorted(set(number) - set(items)) or sorted(set(items) - set(number)):
            mine, others = sources
            only = f"{odd[0]!r} is in {mine if odd[0] in number else others} only"
            raise RankingsError(f"the items of {mine} are not those of {others}: {only}")
        return replace(self, items=items, ranks=self.ranks[:, [number[name] for name in items]])

    def break_ties(self, generator: torch.Generator | None = None) -> "Rankings":
        """The same rankings with tied items in a random order, drawn anew for each voter.

        >>> tied = Rankings(["a", "b"], torch.tensor([[0, 0]]), torch.tensor([1000]))
        >>> tied.break_ties(torch.Generator().manual_seed(0)).strict
        True
        """
        tied = tied_rows(self.ranks)
        copies = torch.where(tied, self.counts, 1)
        _check_voters(int(copies.sum()), "break ties")
        ranks = self.ranks.repeat_interleave(copies, 0)
        counts = torch.where(tied, 1, self.counts).repeat_interleave(copies)
        noise = torch.rand(ranks.shape, generator=generator, dtype=torch.float64)
        order = (ranks + noise).masked_fill(ranks < 0, torch.inf).argsort(1)
        places = torch.empty_like(order).scatter_(1, order, torch.arange(self.n).expand(order.shape))
        return replace(self, ranks=places.masked_fill(ranks < 0, -1), counts=counts).distinct()

    def split(
        self, held_out: float, generator: torch.Generator | None = None
    ) -> tuple["Rankings", "Rankings"]:
        """Two random parts of the voters: all but the fraction held out, and that fraction (rounded).

        >>> votes = Rankings(["a", "b"], torch.tensor([[0, 1], [1, 0]]), torch.tensor([60, 40]))
        >>> train, held_out = votes.split(0.25, torch.Generator().manual_seed(0))
        >>> train.voters, held_out.voters
        (75, 25)
        """
        voters = self.voters
        if not 0 < held_out < 1:
            fault = f"the fraction held out lies between 0 and 1, not at {held_out}"
            raise RankingsError(fault, parameter="held_out")
        _check_voters(voters, "split")
        held = round(held_out * voters)
        if not 0 < held < voters:
            fault = f"a fraction of {held_out} of {voters} voters leaves one part empty"
            raise RankingsError(fault, parameter="held_out")
        row_of_voter = torch.arange(len(self)).repeat_interleave(self.counts)
        chosen = row_of_voter[torch.randperm(voters, generator=generator)[:held]]
        there = torch.bincount(chosen, minlength=len(self))
        return self._with_counts(self.counts - there), self._with_counts(there)

    def resample(self, generator: torch.Generator | None = None) -> "Rankings":
        """As many voters, drawn with replacement.

        >>> votes = Rankings(["a", "b"], torch.tensor([[0, 1], [1, 0]]), torch.tensor([60, 40]))
        >>> votes.resample(torch.Generator().manual_seed(0)).voters
        100
        """
        drawn = torch.multinomial(self.weights, self.voters, replacement=True, generator=generator)
        return self._with_counts(torch.bincount(drawn, minlength=len(self)))

    def distinct(self) -> "Rankings":
        """The same voters with equal rows merged, in the order of first appearance."""
        if self.n == 0 or len(self) == 0:
            return self
        data, size = self.ranks.contiguous().numpy().tobytes(), self.n * 8
        first: dict[bytes, int] = {}
        number = [first.setdefault(data[at : at + size], len(first)) for at in range(0, len(data), size)]
        if len(first) == len(self):
            return self
        row_of = torch.tensor(number)
        counts = torch.zeros(len(first), dtype=torch.int64).scatter_add_(0, row_of, self.counts)
        kept = torch.zeros(len(first), dtype=torch.int64)
        kept[row_of.flip(0)] = torch.arange(len(self) - 1, -1, -1)  # the first of equal rows is written last
        return replace(self, ranks=self.ranks[kept], counts=counts)

    def __len__(self) -> int:
        return len(self.ranks)

    def __eq__(self, other: object) -> bool:
        """Whether items, ranks and counts are equal, row by row; the metadata is not compared."""
        if not isinstance(other, Rankings):
            return NotImplemented
        same = self.items == other.items and torch.equal(self.ranks, other.ranks)
        return same and torch.equal(self.counts, other.counts)

    def __repr__(self) -> str:
        kinds = [name for name, holds in (("complete", self.complete), ("strict", self.strict)) if holds]
        sizes = f"{self.n} items, {len(self)} rows, {self.voters} voters"
        return f"Rankings({', '.join([sizes, *kinds])})"

    def _with_counts(self, counts: Tensor) -> "Rankings":
        some = counts > 0
        return replace(self, ranks=self.ranks[some], counts=counts[some])


def _names(items: Sequence[str] | None, n: int) -> Sequence[str]:
    return [str(item) for item in range(n)] if items is None else items


def _check_voters(voters: int, what: str) -> None:
    if voters > MOST_VOTERS:
        raise RankingsError(f"cannot {what} {voters} voters one by one; at most {MOST_VOTERS}")
