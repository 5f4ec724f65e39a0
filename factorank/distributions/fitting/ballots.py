"""What a fit is given, in one form: the places of items in each row, and the weights of the rows."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from factorank.data.rankings.rankings import Rankings
from factorank.distributions.fitting.checks import (
    Unranked,
    check_unranked,
    complete_orders,
    padded_orders,
    ranks_of_padded,
    row_weights,
)
from factorank.distributions.fitting.errors import FitError
from factorank.distributions.partial_orders import PartialOrders
from factorank.permutations import check_integer, signed

Votes = Tensor | Rankings | PartialOrders
"""Orders ``(*batch, n)``, which may end in -1; rankings of named items; or partial orders."""


@dataclass(frozen=True)
class Ballots:
    """Checked rows of votes: places, weights, and where they came from."""

    ranks: np.ndarray
    """The place of each item ``(rows, n)``, int64, from 0 on. Tied items share a place, as do those at the
    bottom of a top list. -1 is an item of which nothing is known."""
    weights: np.ndarray
    """``(rows,)`` float64."""
    device: torch.device
    above: Tensor | None = None
    """Bool ``(rows, n, n)``, for partial orders that places cannot express; ``ranks`` is then all -1."""
    items: tuple[str, ...] = ()
    """The names of the items, where they are known."""

    @property
    def n(self) -> int:
        return self.ranks.shape[1]

    @property
    def total(self) -> float:
        """The number of voters: the sum of the weights."""
        return float(self.weights.sum())

    @cached_property
    def weak(self) -> bool:
        """Whether every row places every item, ties allowed."""
        return bool((self.ranks >= 0).all())

    @cached_property
    def complete(self) -> bool:
        """Whether every row places every item without a tie."""
        return self.weak and bool((self.ranks.max(1) == self.n - 1).all())

    @property
    def orders(self) -> np.ndarray:
        """The rows as orders ``(rows, n)``, best first, if they are complete."""
        return _inverse(self.ranks)

    def partial(self) -> PartialOrders:
        """The rows as partial orders."""
        if self.above is not None:
            return PartialOrders(self.above, _closed=True)
        return PartialOrders.from_ranks(torch.from_numpy(self.ranks), unranked="incomparable")

    def distinct(self) -> "Ballots":
        """The same votes with equal rows merged, and without rows of weight zero."""
        used = self.weights > 0
        if self.above is not None:
            return Ballots(
                self.ranks[used],
                self.weights[used],
                self.device,
                self.above[torch.from_numpy(used)],
                self.items,
            )
        rows, first = np.unique(self.ranks[used], axis=0, return_inverse=True)
        return Ballots(
            rows, np.bincount(first.reshape(-1), self.weights[used]), self.device, None, self.items
        )


def read_ballots(
    votes: Votes, weights: Tensor | None = None, unranked: Unranked | None = None, items: int | None = None
) -> Ballots:
    """Votes of any kind, checked.

    >>> read_ballots(torch.tensor([[2, 0, -1]]), unranked="below").ranks
    array([[1, 2, 0]])
    """
    if isinstance(votes, Rankings):
        return _from_rankings(votes, weights, unranked, items)
    if isinstance(votes, PartialOrders):
        return _from_partial(votes, weights, unranked, items)
    if unranked is None and items is not None:
        raise FitError("items= goes with unranked=, which says how the items left out are ranked")
    check_integer(votes, "a fit takes orders")
    votes = signed(votes, "a fit takes")
    if unranked is None and not bool((votes == -1).any()):
        ranks = _inverse(complete_orders(votes))
    else:
        rows, _, n = padded_orders(votes, unranked, items)
        ranks = ranks_of_padded(rows, n, left_out=-1).astype(np.int64)
        ranks = _with_bottom(ranks) if unranked == "below" else ranks
    return Ballots(ranks, row_weights(weights, tuple(votes.shape[:-1])), votes.device)


def _from_rankings(
    votes: Rankings, weights: Tensor | None, unranked: Unranked | None, items: int | None
) -> Ballots:
    if weights is not None or items is not None:
        raise FitError("rankings have counts and items of their own: weights= and items= are for orders")
    if unranked is None:
        advice = ": say {parameter='below'} if items left out come last, else {parameter='incomparable'}"
        votes.check_complete(advice, parameter="unranked")
    check_unranked(unranked)
    if len(votes) == 0 or votes.n == 0:
        raise FitError(f"a fit needs at least one voter and one item, not {votes}")
    ranks = votes.ranks.numpy()
    ranks = _with_bottom(ranks) if unranked == "below" else ranks
    return Ballots(ranks, votes.weights.numpy(), torch.device("cpu"), None, tuple(votes.items))


def _from_partial(
    votes: PartialOrders, weights: Tensor | None, unranked: Unranked | None, items: int | None
) -> Ballots:
    if unranked is not None or items is not None:
        raise FitError("partial orders say themselves how items compare: unranked= and items= are for orders")
    if len(votes) == 0 or votes.n == 0:
        raise FitError(f"a fit needs at least one voter and one item, not {votes}")
    above, row = votes.above.cpu().numpy(), row_weights(weights, (len(votes),))
    higher = above.sum(1)
    compared = np.asarray(above.any(1) | above.any(2) | (not above.any()))
    ranks = _dense(np.where(compared, higher, -1))
    said = (ranks[:, :, None] < ranks[:, None, :]) & compared[:, :, None] & compared[:, None, :]
    if (said == above).all():  # the items compared are in levels
        return Ballots(ranks, row, votes.above.device)
    return Ballots(np.full_like(ranks, -1), row, votes.above.device, votes.above.cpu())


def _inverse(rows: np.ndarray) -> np.ndarray:
    """Of permutations ``(rows, n)``."""
    result = np.empty_like(rows)
    np.put_along_axis(result, rows, np.arange(rows.shape[1])[None], axis=1)
    return result


def _with_bottom(ranks: np.ndarray) -> np.ndarray:
    """Items left out tied at the last place."""
    return np.where(ranks < 0, ranks.max(1, keepdims=True) + 1, ranks)


def _dense(ranks: np.ndarray) -> np.ndarray:
    """The same levels, numbered 0, 1, … in each row; -1 stays."""
    levels = np.zeros((len(ranks), ranks.shape[1] + 2), dtype=np.int64)
    np.put_along_axis(levels, ranks + 1, 1, axis=1)
    levels[:, 0] = 0
    numbers = np.cumsum(levels, axis=1) - 1
    return np.where(ranks < 0, -1, np.take_along_axis(numbers, ranks + 1, axis=1))
