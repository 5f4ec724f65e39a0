"""Partial rankings: a strict partial order of the items for each voter."""

from collections.abc import Sequence
from typing import Any, NoReturn

import torch
from torch import Tensor

from factorank.distributions.fitting.checks import Unranked, padded_orders, ranks_of_padded
from factorank.distributions.fitting.graphs import closure
from factorank.errors import FactorankError
from factorank.permutations import check_integer, check_permutation, inverse, signed


class PartialOrderError(FactorankError):
    """Preferences that no ranking can agree with, or that make no sense."""


class PartialOrders:
    """One strict partial order of n items for each voter, transitively closed.

    ``above`` is bool ``(voters, n, n)``: entry ``[v, a, b]`` is true if voter v puts a above b, directly or
    through others. The constructor takes such a tensor of preferences, on any device, closes it, and refuses
    cycles. A byte a pair and voter is used: 1,000 voters on 100 items take 10 MB.

    >>> partial = PartialOrders.from_preferences(torch.tensor([[0, 2, 1], [0, 1, 0], [1, 0, 2]]), n=3)
    >>> partial
    PartialOrders(voters=2, n=3)
    >>> partial.above[0].int()  # voter 0: 2 over 1 and 1 over 0, hence 2 over 0
    tensor([[0, 0, 0],
            [1, 0, 0],
            [1, 1, 0]], dtype=torch.int32)
    """

    above: Tensor

    def __init__(self, above: Tensor, *, _closed: bool = False) -> None:
        if above.dtype != torch.bool or above.ndim != 3 or above.shape[1] != above.shape[2]:
            raise PartialOrderError(
                f"partial orders are a bool tensor (voters, n, n), not {above.dtype} {tuple(above.shape)}"
            )
        self.above = above if _closed else closure(above)
        if not _closed:
            looped = self.above.diagonal(dim1=1, dim2=2).any(1)
            if bool(looped.any()):
                _raise_cycle(above, self.above, int(looped.int().argmax()))

    @classmethod
    def from_orders(
        cls, orders: Tensor, *, unranked: Unranked = "below", items: int | None = None
    ) -> "PartialOrders":
        """From orders ``(*batch, k)`` that may end in -1, one voter a row.

        The items that a row leaves out are ``"below"`` all listed ones and in no order among themselves (a
        top-k list), or ``"incomparable"`` with all (a ranking of a subset). ``items`` is n where it is more
        than k.

        >>> PartialOrders.from_orders(torch.tensor([[2, 0, -1, -1]])).above[0].int()
        tensor([[0, 1, 0, 1],
                [0, 0, 0, 0],
                [1, 1, 0, 1],
                [0, 0, 0, 0]], dtype=torch.int32)
        """
        rows, _, n = padded_orders(orders, _checked(unranked), items)
        rank = torch.from_numpy(ranks_of_padded(rows, n, left_out=n)).to(orders.device)
        return cls(_above(rank, rank < n, unranked), _closed=True)

    @classmethod
    def from_ranks(cls, ranks: Tensor, *, unranked: Unranked = "incomparable") -> "PartialOrders":
        """From ranks ``(*batch, n)``: ``ranks[v, j]`` is the place of item j, 0 the best, -1 if unranked.

        Only the order of the numbers matters. Items of equal rank are tied, and incomparable.

        >>> PartialOrders.from_ranks(torch.tensor([[0, 1, 1]])).above[0].int()
        tensor([[0, 1, 1],
                [0, 0, 0],
                [0, 0, 0]], dtype=torch.int32)
        """
        check_integer(ranks, "PartialOrders takes ranks", PartialOrderError)
        ranks = signed(ranks, "PartialOrders takes")
        rows = ranks.reshape(-1, ranks.shape[-1]).to(torch.int64)
        if bool((rows < -1).any()):
            row, item = (rows < -1).nonzero()[0].tolist()
            raise PartialOrderError(
                f"ranks are 0 or more, or -1, but voter {row} gives item {item} {int(rows[row, item])}"
            )
        listed = rows >= 0
        rank = torch.where(listed, rows, torch.iinfo(torch.int64).max)
        return cls(_above(rank, listed, _checked(unranked)), _closed=True)

    @classmethod
    def from_preferences(
        cls, preferences: Tensor | Sequence[Any], n: int, *, voters: int | None = None
    ) -> "PartialOrders":
        """From triples (voter, winner, loser), ``(m, 3)``: the voter puts the winner above the loser.

        What follows from several preferences of a voter is added. A cycle is an error that names the voter
        and the items. ``voters`` is the number of voters, if some have no preferences; otherwise
        the largest index decides.
        """
        triples = torch.as_tensor(preferences)
        if triples.numel() == 0:
            triples = triples.to(torch.int64).reshape(0, 3)
        check_integer(triples, "PartialOrders takes preferences", PartialOrderError)
        triples = signed(triples, "PartialOrders takes")
        if triples.ndim != 2 or triples.shape[1] != 3:
            raise PartialOrderError(
                f"preferences are rows (voter, winner, loser), not {tuple(triples.shape)}"
            )
        triples = triples.to(torch.int64)
        count = (int(triples[:, 0].max()) + 1 if len(triples) else 0) if voters is None else voters
        limits = torch.tensor([count, n, n], device=triples.device)
        outside = (triples < 0) | (triples >= limits)
        if bool(outside.any()):
            row, column = outside.nonzero()[0].tolist()
            what = ("voter", "winner", "loser")[column]
            raise PartialOrderError(
                f"preference {row} has {what} {int(triples[row, column])}; allowed is"
                f" 0..{int(limits[column]) - 1}"
            )
        for row in (triples[:, 1] == triples[:, 2]).nonzero().flatten().tolist():
            voter, item, _ = triples[row].tolist()
            raise PartialOrderError(f"preference {row} of voter {voter} puts item {item} above itself")
        above = torch.zeros((count, n, n), dtype=torch.bool, device=triples.device)
        above[triples[:, 0], triples[:, 1], triples[:, 2]] = True
        return cls(above)

    @property
    def n(self) -> int:
        """The number of items."""
        return self.above.shape[-1]

    def __len__(self) -> int:
        return len(self.above)

    def __getitem__(self, voters: Any) -> "PartialOrders":
        """The same for some of the voters: a slice, a mask or a tensor of indices."""
        if isinstance(voters, int):
            voters = [voters]
        return PartialOrders(self.above[voters], _closed=True)

    def __repr__(self) -> str:
        return f"PartialOrders(voters={len(self)}, n={self.n})"

    def agrees(self, orders: Tensor) -> Tensor:
        """Whether each order ``(*sample, voters, n)`` agrees with its voter's: bool ``(*sample, voters)``.

        >>> partial = PartialOrders.from_orders(torch.tensor([[1, -1, -1]]))
        >>> partial.agrees(torch.tensor([[[1, 2, 0]], [[0, 1, 2]]]))
        tensor([[ True],
                [False]])
        """
        check_permutation(orders, "agrees takes")
        rank = inverse(orders.to(self.above.device, torch.int64), check=False)
        return ~(self.above & (rank[..., :, None] > rank[..., None, :])).any(-1).any(-1)


def _checked(unranked: Unranked) -> Unranked:
    if unranked not in ("below", "incomparable"):
        raise PartialOrderError(f"unranked is 'below' or 'incomparable', not {unranked!r}")
    return unranked


def _above(rank: Tensor, listed: Tensor, unranked: Unranked) -> Tensor:
    """Who is above whom ``(voters, n, n)`` by ranks ``(voters, n)``, those of unlisted items the largest."""
    above = rank[:, :, None] < rank[:, None, :]
    return above & listed[:, None, :] if unranked == "incomparable" else above


def _raise_cycle(above: Tensor, reach: Tensor, voter: int) -> NoReturn:
    """Name a shortest cycle of the voter's preferences."""
    start = int(reach[voter].diagonal().int().argmax())
    step: dict[int, int] = {}  # from each item met to the one before it
    queue = [start]
    while start not in step:
        item = queue.pop(0)
        following = [other for other in above[voter, item].nonzero().flatten().tolist() if other not in step]
        step |= dict.fromkeys(following, item)
        queue += following
    cycle = [start]
    while len(cycle) == 1 or cycle[-1] != start:
        cycle.append(step[cycle[-1]])
    raise PartialOrderError(
        f"the preferences of voter {voter} form a cycle: {' > '.join(map(str, cycle[::-1]))}"
    )
