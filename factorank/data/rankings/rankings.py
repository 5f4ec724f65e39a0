"""Rankings of named items by voters: complete or not, with ties or without, and the files that hold them."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from factorank.data.rankings import preflib, tables
from factorank.data.rankings import rows as cells
from factorank.data.rankings.checks import Parts, check_names, check_total, fail, read_text
from factorank.errors import RankingsError
from factorank.files import write_whole
from factorank.permutations import check_integer

_MOST_VOTERS = 10**8  # a split or a random breaking of ties has a row for each voter


@dataclass(frozen=True, eq=False, repr=False)
class Rankings:
    """Rankings of the same named items, a row for each, with the number of voters who share it.

    ``ranks[r, j]`` is the place of item j in row r, from 0: tied items have the same number, the next item
    the next number, and -1 says that the item is not ranked. For a complete strict ranking it is the inverse
    of the order.

    >>> votes = Rankings(["ann", "bob", "cat"], torch.tensor([[0, 1, 2], [1, 0, -1]]), torch.tensor([3, 1]))
    >>> votes
    Rankings(3 items, 2 rows, 4 voters, strict)
    >>> votes.to_padded_orders()
    tensor([[ 0,  1,  2],
            [ 1,  0, -1]])
    >>> votes.orders()
    Traceback (most recent call last):
    ...
    factorank.errors.RankingsError: row 1 does not rank 'cat'; orders() is for complete rankings
    """

    items: Sequence[str]
    """Names of the n items."""
    ranks: Tensor
    """``(rows, n)`` int64."""
    counts: Tensor = None  # type: ignore[assignment]  # ones, unless given
    """How many voters share each row: ``(rows,)`` int64, at least 1; all 1 unless given."""
    metadata: Mapping[str, str] = field(default_factory=dict)
    """What a PrefLib file says besides: ``{"TITLE": …}``."""

    def __post_init__(self) -> None:
        check_integer(self.ranks, "Rankings takes ranks", RankingsError)
        items, ranks = tuple(check_names(self.items, "items")), self.ranks.to("cpu", torch.int64)
        if ranks.ndim != 2 or ranks.shape[1] != len(items):
            raise RankingsError(
                f"there are {len(items)} items, so ranks are (rows, {len(items)}), not {tuple(ranks.shape)}"
            )
        counts = torch.ones(len(ranks), dtype=torch.int64) if self.counts is None else self.counts
        check_integer(counts, "Rankings takes counts", RankingsError)
        counts = counts.to("cpu", torch.int64)
        if counts.shape != ranks.shape[:1]:
            raise RankingsError(
                f"there are {len(ranks)} rows, so counts are ({len(ranks)},), not {tuple(counts.shape)}"
            )
        if (counts < 1).any():
            row = int((counts < 1).int().argmax())
            raise RankingsError(f"row {row} has count {int(counts[row])}; a count is at least 1")
        check_total(counts.tolist(), "counts")
        _check_ranks(ranks, items)
        for name, value in (
            ("items", items),
            ("ranks", ranks),
            ("counts", counts),
            ("metadata", dict(self.metadata)),
        ):
            object.__setattr__(self, name, value)

    @classmethod
    def from_orders(
        cls, orders: Tensor, items: Sequence[str] | None = None, counts: Tensor | None = None
    ) -> "Rankings":
        """Rankings from orders ``(rows, k)`` of item numbers, best first, short ones padded with -1.

        The items are named 0, 1, … unless given, and there are k of them then.

        >>> Rankings.from_orders(torch.tensor([[2, 0, 1], [1, -1, -1]])).ranks
        tensor([[ 1,  2,  0],
                [-1,  0, -1]])
        """
        check_integer(orders, "Rankings.from_orders takes orders", RankingsError)
        if orders.ndim != 2:
            raise RankingsError(f"Rankings.from_orders takes orders (rows, k), not {tuple(orders.shape)}")
        names = [str(item) for item in range(orders.shape[1])] if items is None else items
        wide, n = orders.to("cpu", torch.int64), len(names)
        outside = (wide < -1) | (wide >= n)
        gap = (wide[:, 1:] >= 0) & (wide[:, :-1] < 0)
        for bad, what in (outside, f"an item that is none of 0..{n - 1}"), (gap, "an item after padding"):
            if bad.any():
                raise RankingsError(f"row {int(bad.any(1).int().argmax())} of the orders holds {what}")
        ranks = torch.full((len(wide), n + 1), -1)
        ranks.scatter_(1, wide.where(wide >= 0, n), torch.arange(wide.shape[1]).expand(wide.shape))
        ranks = ranks[:, :n]
        short = (ranks >= 0).sum(1) < (wide >= 0).sum(1)
        if short.any():
            raise RankingsError(f"row {int(short.int().argmax())} of the orders holds an item twice")
        return cls(names, ranks, counts)  # type: ignore[arg-type]

    @classmethod
    def from_scores(cls, scores: Tensor, items: Sequence[str] | None = None) -> "Rankings":
        """Rankings by score, highest first, from ratings ``(rows, n)``: equal scores tie, NaN is unranked.

        >>> Rankings.from_scores(torch.tensor([[1.0, 5.0, 1.0], [2.0, torch.nan, 3.0]])).ranks
        tensor([[ 1,  0,  1],
                [ 1, -1,  0]])
        """
        if not isinstance(scores, Tensor):
            raise RankingsError(
                f"Rankings.from_scores takes a tensor of scores (rows, n), not a {type(scores).__name__}"
            )
        if scores.ndim != 2:
            raise RankingsError(f"Rankings.from_scores takes scores (rows, n), not {tuple(scores.shape)}")
        unranked = (
            scores.isnan() if scores.is_floating_point() else torch.zeros_like(scores, dtype=torch.bool)
        )
        below = scores.to(torch.float64).where(~unranked, -torch.inf)
        ordered, order = below.sort(dim=1, descending=True, stable=True)
        levels = torch.zeros(scores.shape, dtype=torch.int64)
        levels[:, 1:] = (ordered[:, 1:] != ordered[:, :-1]).cumsum(1)
        ranks = torch.empty_like(levels).scatter_(1, order, levels).masked_fill(unranked, -1)
        names = [str(item) for item in range(scores.shape[1])] if items is None else items
        return cls(names, ranks)

    @property
    def n(self) -> int:
        """How many items there are."""
        return len(self.items)

    @property
    def voters(self) -> int:
        """How many voters there are: the sum of the counts."""
        return int(self.counts.sum())

    @property
    def weights(self) -> Tensor:
        """The counts as float64 ``(rows,)``, as the ``fit`` of a law takes them."""
        return self.counts.to(torch.float64)

    @property
    def complete(self) -> bool:
        """Whether every row ranks every item."""
        return bool((self.ranks >= 0).all())

    @property
    def strict(self) -> bool:
        """Whether no row has a tie."""
        return not bool(_tied(self.ranks).any())

    def orders(self) -> Tensor:
        """The rows as orders ``(rows, n)``, best first; an error unless all are complete and strict."""
        if not self.complete:
            row, item = (self.ranks < 0).nonzero()[0].tolist()
            raise RankingsError(
                f"row {row} does not rank {self.items[item]!r}; orders() is for complete rankings"
            )
        return self.to_padded_orders()

    def to_padded_orders(self) -> Tensor:
        """The rows as orders ``(rows, n)`` of the ranked items, best first, then -1; ties are an error."""
        tied = _tied(self.ranks)
        if tied.any():
            row = int(tied.int().argmax())
            ranks = self.ranks[row].tolist()
            first = next(item for item, rank in enumerate(ranks) if rank >= 0 and ranks.count(rank) > 1)
            second = ranks.index(ranks[first], first + 1)
            raise RankingsError(
                f"row {row} ties {self.items[first]!r} and {self.items[second]!r};"
                " break_ties(generator) puts tied items in a random order"
            )
        orders = torch.full((len(self), self.n + 1), -1)
        places = self.ranks.where(self.ranks >= 0, self.n)
        orders.scatter_(1, places, torch.arange(self.n).expand(self.ranks.shape))
        orders[:, self.n] = -1
        return orders[:, : self.n].contiguous()

    def break_ties(self, generator: torch.Generator | None = None) -> "Rankings":
        """The same rankings with tied items in a random order, drawn for each voter alone.

        >>> tied = Rankings(["a", "b"], torch.tensor([[0, 0]]), torch.tensor([1000]))
        >>> tied.break_ties(torch.Generator().manual_seed(0)).strict
        True
        """
        tied = _tied(self.ranks)
        copies = torch.where(tied, self.counts, 1)
        _check_voters(int(copies.sum()), "break ties")
        ranks = self.ranks.repeat_interleave(copies, 0)
        counts = torch.where(tied, 1, self.counts).repeat_interleave(copies)
        noise = torch.rand(ranks.shape, generator=generator, dtype=torch.float64)
        order = (ranks + noise).masked_fill(ranks < 0, torch.inf).argsort(1)
        places = torch.empty_like(order).scatter_(1, order, torch.arange(self.n).expand(order.shape))
        return Rankings(self.items, places.masked_fill(ranks < 0, -1), counts, self.metadata).distinct()

    def split(
        self, fraction: float, generator: torch.Generator | None = None
    ) -> tuple["Rankings", "Rankings"]:
        """Two parts by voter, drawn at random: all but a fraction, and that fraction (rounded).

        >>> votes = Rankings(["a", "b"], torch.tensor([[0, 1], [1, 0]]), torch.tensor([60, 40]))
        >>> train, held_out = votes.split(0.25, torch.Generator().manual_seed(0))
        >>> train.voters, held_out.voters
        (75, 25)
        """
        if not 0 < fraction < 1:
            raise RankingsError(f"the fraction held out lies between 0 and 1, not at {fraction}")
        _check_voters(self.voters, "split")
        held = round(fraction * self.voters)
        if not 0 < held < self.voters:
            raise RankingsError(f"a fraction of {fraction} of {self.voters} voters leaves one part empty")
        row_of_voter = torch.arange(len(self)).repeat_interleave(self.counts)
        chosen = row_of_voter[torch.randperm(self.voters, generator=generator)[:held]]
        there = torch.bincount(chosen, minlength=len(self))
        return self._with_counts(self.counts - there), self._with_counts(there)

    def distinct(self) -> "Rankings":
        """The same voters with equal rows made one, in the order of first appearance."""
        first: dict[tuple[int, ...], int] = {}
        number = [first.setdefault(tuple(row), len(first)) for row in self.ranks.tolist()]
        if len(first) == len(self):
            return self
        counts = torch.zeros(len(first), dtype=torch.int64).scatter_add_(0, torch.tensor(number), self.counts)
        return Rankings(self.items, torch.tensor(list(first)).view(-1, self.n), counts, self.metadata)

    def __len__(self) -> int:
        return len(self.ranks)

    def __eq__(self, other: object) -> bool:
        """Equal items, ranks and counts, row by row; the metadata does not matter."""
        if not isinstance(other, Rankings):
            return NotImplemented
        same = self.items == other.items and torch.equal(self.ranks, other.ranks)
        return same and torch.equal(self.counts, other.counts)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        kinds = [name for name, holds in (("complete", self.complete), ("strict", self.strict)) if holds]
        sizes = f"{self.n} items, {len(self)} rows, {self.voters} voters"
        return f"Rankings({', '.join([sizes, *kinds])})"

    def _with_counts(self, counts: Tensor) -> "Rankings":
        some = counts > 0
        return Rankings(self.items, self.ranks[some], counts[some], self.metadata)


def read_rankings(
    path: str | os.PathLike[str],
    format: str | None = None,
    *,
    items: Sequence[str] | None = None,
    first_rank: int = 1,
) -> Rankings:
    """Rankings from a PrefLib file (.soc, .soi, .toc, .toi), a CSV or a parquet table.

    The suffix says which; ``format`` says it where the suffix does not (``"soc"``, …), or which layout a
    table has, ``"orders"``, ``"ranks"`` or ``"long"`` (see :mod:`factorank.data.rankings.tables`), where the
    names of its columns leave it open. ``items`` names all items in order, for tables that may not mention
    every one; ``first_rank`` is the rank of the best item in tables of ranks. Whatever is not as it should be
    is a :class:`factorank.RankingsError` that begins with file and line.

    >>> import tempfile, pathlib
    >>> path = pathlib.Path(tempfile.mkdtemp(), "votes.csv")
    >>> _ = path.write_text("count,ann,bob,cat\\n3,1,2,3\\n1,2,1,\\n")
    >>> read_rankings(path)
    Rankings(3 items, 2 rows, 4 voters, strict)
    """
    return read_rows(path, format, items=items, first_rank=first_rank)[0].distinct()


def read_rows(
    path: str | os.PathLike[str],
    format: str | None = None,
    *,
    items: Sequence[str] | None = None,
    first_rank: int = 1,
) -> tuple[Rankings, list[str]]:
    """The same rankings, a row for each in the file though they be equal, and where each stands."""
    path, kind, layout = _format(path, format)
    if kind in preflib.TYPES:
        parts = preflib.parse(read_text(path), path, kind)
        if items is not None and list(items) != parts.items:
            fail(str(path), f"the items are {', '.join(parts.items)}, not {', '.join(items)}")
    else:
        table = cells.read_csv(path) if kind == "csv" else cells.read_parquet(path)
        parts = tables.parse(table, layout, items, first_rank)
    check_total(parts.counts, str(path))
    ranks = torch.tensor(parts.ranks, dtype=torch.int64).view(len(parts.ranks), len(parts.items))
    counts = torch.tensor(parts.counts, dtype=torch.int64)
    return Rankings(parts.items, ranks, counts, parts.metadata), parts.places


def write_rankings(rankings: Rankings, path: str | os.PathLike[str], format: str | None = None) -> None:
    """Write rankings to a PrefLib file (.soc, .soi, .toc, .toi), a CSV or a parquet table, by the suffix.

    A table has the layout ``format``, ``"ranks"`` unless given. The file is written whole or not at all, and
    what the format cannot hold is an error: reading it gives the same rankings back. (Except that a table
    of orders sorts the items unless the reader names them, and that a table of ranks of items that are named
    by numbers does not tell its layout, so that the reader has to.)

    >>> import tempfile, pathlib
    >>> path = pathlib.Path(tempfile.mkdtemp(), "votes.toi")
    >>> write_rankings(Rankings(["ann", "bob", "cat"], torch.tensor([[1, 0, 1]])), path)
    >>> path.read_text().splitlines()[-1]
    '1: 2,{1,3}'
    """
    path, kind, layout = _format(path, format)
    if len(rankings) == 0:
        fail(str(path), "there is no ranking to write")
    if kind in preflib.TYPES:
        write_whole(path, preflib.unparse(_parts(rankings.distinct()), path, kind))
        return
    columns, rows = tables.unparse(_parts(rankings), layout or "ranks", str(path))
    write_whole(
        path, cells.csv_text(columns, rows) if kind == "csv" else cells.parquet_bytes(columns, rows, path)
    )


def _format(path: str | os.PathLike[str], format: str | None) -> tuple[Path, str, str | None]:
    """The path, the kind of file, and the layout if ``format`` gives one."""
    path = Path(path)
    kind, layout = path.suffix.lower().lstrip("."), None
    if format in tables.LAYOUTS:
        layout = format
    elif format is not None:
        kind = format
    kinds = (*preflib.TYPES, "csv", "parquet")
    if kind not in kinds or (layout and kind in preflib.TYPES):
        asked = f"format={format!r}" if format else f"the suffix {path.suffix!r}"
        fail(
            str(path),
            f"{asked} is not a format of rankings; there are {', '.join(kinds)},"
            f" and for csv and parquet the layouts {', '.join(tables.LAYOUTS)}",
        )
    return path, kind, layout


def _parts(rankings: Rankings) -> Parts:
    items, metadata = list(rankings.items), rankings.metadata
    return Parts(items, rankings.ranks.tolist(), rankings.counts.tolist(), metadata=metadata)


def _tied(ranks: Tensor) -> Tensor:
    """Which rows hold a tie: fewer levels than ranked items."""
    return (
        ranks.amax(1) + 1 < (ranks >= 0).sum(1)
        if ranks.shape[1]
        else torch.zeros(len(ranks), dtype=torch.bool)
    )


def _check_ranks(ranks: Tensor, items: Sequence[Any]) -> None:
    """Every row uses the levels 0..k without a gap and ranks something."""
    n = len(items)
    faults = [((ranks < -1) | (ranks >= max(n, 1))).any(1)]
    levels = torch.zeros((len(ranks), n + 1), dtype=torch.bool)
    levels.scatter_(1, torch.where((ranks < 0) | (ranks >= n), n, ranks), True)
    faults.append((ranks < 0).all(1))
    faults.append(
        (levels[:, 1:n] & ~levels[:, : n - 1]).any(1) if n > 1 else torch.zeros(len(ranks), dtype=torch.bool)
    )
    words = f"a rank outside -1..{n - 1}", "no ranked item", "a gap in its ranks"
    for fault, word in zip(faults, words, strict=True):
        if fault.any():
            row = int(fault.int().argmax())
            raise RankingsError(
                f"row {row} holds {word}: {ranks[row].tolist()}; ranks are 0, 1, … and -1 for unranked"
            )


def _check_voters(voters: int, what: str) -> None:
    if voters > _MOST_VOTERS:
        raise RankingsError(f"cannot {what} {voters} voters one by one; at most {_MOST_VOTERS}")
