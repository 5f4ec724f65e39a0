"""Tensors of ranks ``(rows, n)``: levels from 0, equal for tied items, -1 for unranked ones."""

import torch
from torch import Tensor

from factorank.errors import RankingsError


def check_ranks(ranks: Tensor) -> None:
    """Every row uses the levels 0..k without a gap and ranks at least one item."""
    n = ranks.shape[1]
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
                f"holds {word}: {ranks[row].tolist()}; ranks are 0, 1, … and -1 for unranked", row=row
            )


def tied_rows(ranks: Tensor) -> Tensor:
    """Which rows hold a tie: they have fewer levels than ranked items."""
    return (
        ranks.amax(1) + 1 < (ranks >= 0).sum(1)
        if ranks.shape[1]
        else torch.zeros(len(ranks), dtype=torch.bool)
    )


def ranks_from_orders(orders: Tensor, n: int) -> Tensor:
    """Ranks ``(rows, n)`` from orders ``(rows, k)`` of the items 0..n-1, padded with -1."""
    wide = orders.to("cpu", torch.int64)
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
    return ranks


def orders_from_ranks(ranks: Tensor) -> Tensor:
    """Orders ``(rows, n)`` of the ranked items, then -1, from ranks without ties."""
    n = ranks.shape[1]
    orders = torch.full((len(ranks), n + 1), -1)
    orders.scatter_(1, ranks.where(ranks >= 0, n), torch.arange(n).expand(ranks.shape))
    return orders[:, :n].contiguous()


def ranks_from_scores(scores: Tensor) -> Tensor:
    """Ranks ``(rows, n)`` by score, highest first; equal scores tie, NaN is unranked."""
    unranked = scores.isnan() if scores.is_floating_point() else torch.zeros_like(scores, dtype=torch.bool)
    below = scores.to(torch.float64).where(~unranked, -torch.inf)
    ordered, order = below.sort(dim=1, descending=True, stable=True)
    levels = torch.zeros(scores.shape, dtype=torch.int64)
    levels[:, 1:] = (ordered[:, 1:] != ordered[:, :-1]).cumsum(1)
    return torch.empty_like(levels).scatter_(1, order, levels).masked_fill(unranked, -1)
