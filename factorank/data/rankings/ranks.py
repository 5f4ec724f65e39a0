"""Ranks: levels from 0, equal for tied items, -1 for unranked ones; a row for each ranking ``(rows, n)``."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad

from factorank.errors import RankingsError


class ParsedRankings(NamedTuple):
    """What a file of rankings holds, as plain lists."""

    items: list[str]
    ranks: list[list[int]]
    counts: list[int]
    places: list[str]
    """Where each row stands, for messages: ``votes.soc:17``."""
    metadata: Mapping[str, str] = {}


def levels_of(ranks: Sequence[int]) -> list[list[int]]:
    """Groups of tied items, best first, from a row of ranks."""
    levels: list[list[int]] = [[] for _ in range(max(ranks, default=-1) + 1)]
    for item, rank in enumerate(ranks):
        if rank >= 0:
            levels[rank].append(item)
    return levels


def check_ranks(ranks: Tensor) -> None:
    """Every row uses the levels 0..k without a gap and ranks at least one item."""
    n = ranks.shape[1]
    levels = torch.zeros((len(ranks), n + 1), dtype=torch.bool)
    levels.scatter_(1, torch.where((ranks < 0) | (ranks >= n), n, ranks), True)
    for fault, word in (
        (((ranks < -1) | (ranks >= n)).any(1), f"a rank outside -1..{n - 1}"),
        ((ranks < 0).all(1), "no ranked item"),
        ((levels[:, 1:n] & ~levels[:, : max(n - 1, 0)]).any(1), "a gap in its ranks"),
    ):
        if fault.any():
            row = int(fault.int().argmax())
            raise RankingsError(
                f"holds {word}: {ranks[row].tolist()}; ranks are 0, 1, … and -1 for unranked", row=row
            )


def tied_rows(ranks: Tensor) -> Tensor:
    """Which rows hold a tie: they have fewer levels than ranked items."""
    return pad(ranks, (0, 1), value=-1).amax(1) + 1 < (ranks >= 0).sum(1)


def ranks_from_orders(orders: Tensor, n: int) -> Tensor:
    """Ranks ``(rows, n)`` from orders ``(rows, k)`` of the items 0..n-1, padded with -1."""
    wide = orders.to("cpu", torch.int64)
    outside = ((wide < -1) | (wide >= n)).any(1)
    gap = ((wide[:, 1:] >= 0) & (wide[:, :-1] < 0)).any(1)
    ranks = torch.full((len(wide), n + 1), -1)
    listed = (wide >= 0) & (wide < n)
    ranks.scatter_(1, wide.where(listed, n), torch.arange(wide.shape[1]).expand(wide.shape))
    twice = (ranks[:, :n] >= 0).sum(1) < listed.sum(1)
    words = f"an item that is none of 0..{n - 1}", "an item after padding", "an item twice"
    for bad, what in zip((outside, gap, twice), words, strict=True):
        if bad.any():
            raise RankingsError(f"row {int(bad.int().argmax())} of the orders holds {what}")
    return ranks[:, :n]
