"""What every baseline ranker is: scores for the items of a list, given some of a user's preferences."""

import copy
import itertools
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Self

import torch
from torch import Tensor

from factorank.data.ratings import Ratings, order_of
from factorank.errors import FactorankError
from factorank.metrics import ndcg

Reads = Literal["nothing", "order", "ratings"]
TARGETS = ("relevance", "gain")
"""What rankers that predict a number of each item may predict; lists are sorted by it."""


class RankerError(FactorankError):
    """A ranker cannot be fitted, or scored, as asked."""


class BaselineRanker(ABC):
    """A baseline: fitted to users, tuned on others, it scores the items of lists of further users.

    A list is items ``(batch, n)`` of the catalogue, of which the first r are observed. What a ranker is told
    of them is named by ``reads``: "nothing"; "order", their places 0..r-1, best first, as the models of this
    library are told; or "ratings", their relevances, which is more.
    """

    name: ClassVar[str]
    """As in results: "popularity", "ease", …"""
    reads: ClassVar[Reads]
    learned: ClassVar[Mapping[str, Sequence[Any]]] = {}
    """Values that are tried of each setting of :meth:`learn`."""
    scored: ClassVar[Mapping[str, Sequence[Any]]] = {}
    """Values that are tried of each setting that only :meth:`scores` reads."""
    settings: dict[str, Any]
    """The settings chosen."""
    tried: list[tuple[dict[str, Any], float]]
    """All settings tried and the mean NDCG that each reached on the validation lists."""

    def fit(
        self,
        train: Ratings,
        validation: Ratings,
        *,
        n: int = 50,
        observed: Sequence[int] | None = None,
        k: int = 10,
        lists_per_user: int = 3,
        seed: int = 0,
    ) -> Self:
        """Learn from the users of ``train``; settings are those with the best NDCG@k of the unobserved items
        on lists of n ratings of the ``validation`` users, in mean over the numbers observed
        (:func:`usual` unless given).
        """
        observed = usual(n) if observed is None else observed
        best, state, self.tried = -1.0, {}, []
        lists = RatedLists.of(validation, n, lists_per_user, seed)
        for outer in _grid(self.learned):
            self.learn(train, **outer)
            for inner in _grid(self.scored):
                self.settings = outer | inner
                value = sum(float(lists.ndcg(self, r, k).mean()) for r in observed) / len(observed)
                self.tried.append((self.settings, value))
                if value > best:
                    best, state = value, dict(vars(self))
        vars(self).update(state)
        return self

    def relearned(self, train: Ratings) -> Self:
        """A ranker with the settings that were chosen, learned from other users."""
        new = copy.copy(self)
        new.learn(train, **{name: self.settings[name] for name in self.learned})
        return new

    @abstractmethod
    def learn(self, train: Ratings) -> None:
        """Learn from the users of ``train``; settings are further arguments, with defaults."""

    @abstractmethod
    def scores(
        self,
        items: Tensor,
        r: int = 0,
        told: Tensor | None = None,
        *,
        generator: torch.Generator | None = None,
    ) -> Tensor:
        """Scores ``(batch, n)``, higher for better, of lists ``(batch, n)`` whose first r items are observed.

        ``told`` holds the relevances of the observed items: ``(batch, r)``, or more columns, which are not
        looked at. A ranker that reads "order" makes an order of them, ties at random; it may also be told the
        order itself, as integers ``(batch, r)``. A score is of interest beside those of the same list only;
        those of the observed items may be what the ranker would say had it not been told
        (:func:`whole_order` puts them right).
        """

    @property
    def reads_ratings(self) -> bool:
        """Whether it is told more of the observed items than their order."""
        return self.reads == "ratings"

    def _check(
        self, items: Tensor, r: int, told: Tensor | None, generator: torch.Generator | None = None
    ) -> Tensor:
        """What this ranker may know: an order int64 ``(batch, r)``, or relevances, or nothing (r = 0)."""
        if not hasattr(self, "settings"):
            raise RankerError(f"the ranker {self.name} is not fitted; call fit(train, validation)")
        if items.ndim != 2 or not 0 <= r <= items.shape[1]:
            raise RankerError(f"lists are (batch, n) with 0 <= r <= n, not {tuple(items.shape)} with r = {r}")
        if self.reads == "nothing" or r == 0:
            dtype = torch.int64 if self.reads == "order" else torch.float32
            return torch.zeros((len(items), 0), dtype=dtype, device=items.device)
        if told is None:
            raise RankerError(f"{self.name} is told the {self.reads} of the first r = {r} items")
        whole = not told.is_floating_point()
        if told.ndim != 2 or len(told) != len(items) or told.shape[1] < r or (whole and told.shape[1] > r):
            raise RankerError(f"told is (batch, r) = {(len(items), r)}, not {tuple(told.shape)}")
        if self.reads == "ratings":
            if whole:
                raise RankerError(f"{self.name} reads ratings; it was told an order, {told.dtype}")
            return told[:, :r].to(items.device)
        return told.long().to(items.device) if whole else order_of(told[:, :r].to(items.device), generator)


@dataclass
class RatedLists:
    """RatedLists to judge rankers by: items and relevances ``(batch, n)``; the first r count as observed."""

    items: Tensor
    relevance: Tensor
    seed: int = 0

    @classmethod
    def of(cls, ratings: Ratings, n: int, per_user: int = 1, seed: int = 0) -> "RatedLists":
        """``per_user`` lists of each user with n ratings or more."""
        users = ratings.users_with(n).repeat(per_user)
        if not len(users):
            raise RankerError(f"none of the {len(ratings)} validation users has {n} ratings")
        generator = torch.Generator(ratings.device).manual_seed(seed)
        return cls(*ratings.lists(n, users, generator), seed)

    def some(self, count: int) -> "RatedLists":
        """At most ``count`` of the lists, at random."""
        chosen = torch.randperm(len(self.items), generator=torch.Generator().manual_seed(self.seed))[:count]
        chosen = chosen.to(self.items.device)
        return RatedLists(self.items[chosen], self.relevance[chosen], self.seed)

    def ndcg(self, ranker: BaselineRanker, r: int, k: int = 10) -> Tensor:
        """NDCG@k of the unobserved items of each list, ``(batch,)``; equal scores in random order."""
        generator = torch.Generator(self.items.device).manual_seed(self.seed)
        scores = ranker.scores(self.items, r, self.relevance, generator=generator)[:, r:]
        order = order_of(scores - scores.amin(-1, keepdim=True), generator)
        return ndcg(order, self.relevance[:, r:], k)


def wanted(relevance: Tensor, target: str) -> Tensor:
    """Relevances as they are, or their gains, which NDCG adds up.

    >>> wanted(torch.tensor([1.0, 5.0]), "gain")
    tensor([ 1., 31.])
    """
    return relevance if target == "relevance" else torch.exp2(relevance) - 1


def usual(n: int) -> list[int]:
    """Numbers of observed items that stand for all: one, a tenth, a fifth and half of the list.

    >>> usual(50), usual(10)
    ([1, 5, 10, 25], [1, 2, 5])
    """
    return sorted({1, max(1, n // 10), max(1, n // 5), max(1, n // 2)} - {n})


def whole_order(scores: Tensor, order: Tensor) -> Tensor:
    """The order ``(batch, n)`` of whole lists by their scores ``(batch, n)``, with the first r items as
    observed, ``order (batch, r)``: the places that the scores give to these are shared out in that order.

    >>> whole_order(torch.tensor([[3.0, 1.0, 2.0, 4.0]]), torch.tensor([[1, 0]]))  # 1 before 0
    tensor([[3, 1, 2, 0]])
    """
    r = order.shape[1]
    own = scores[:, :r].sort(-1, descending=True).values
    put = torch.cat([torch.empty_like(own).scatter_(1, order, own), scores[:, r:]], 1)
    # Of observed items with equal scores the better stands first, and observed ones before others.
    turn = torch.arange(scores.shape[1], device=scores.device).expand_as(scores).clone()
    turn[:, :r] = torch.zeros_like(order).scatter_(1, order, turn[:, :r].clone())
    first = turn.argsort(-1)
    return first.gather(1, put.gather(1, first).argsort(dim=-1, descending=True, stable=True))


def _grid(values: Mapping[str, Sequence[Any]]) -> list[dict[str, Any]]:
    return [dict(zip(values, chosen, strict=True)) for chosen in itertools.product(*values.values())]
