"""The base class of baseline rankers: scores for the items of a list, given some of a user's preferences."""

import itertools
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Self

import torch
from torch import Tensor

from factorank.data.ratings import Ratings, order_of
from factorank.errors import RankerError
from factorank.metrics import ndcg

Grid = Mapping[str, Sequence[Any]]
"""The values of each setting that are tried."""


class BaselineRanker(ABC):
    """A baseline: fitted to users, tuned on others, it scores the items of lists of further users.

    A list is items ``(batch, n)`` of the catalogue, of which the first r are observed. ``reads`` names what a
    ranker reads of them: "nothing"; "order", their places 0..r-1, best first, as the models of this library
    do; or "ratings", their relevances, which is more.
    """

    name: ClassVar[str]
    """As in results: "popularity", "ease", …"""
    reads: ClassVar[Literal["nothing", "order", "ratings"]]
    learned: ClassVar[Grid] = {}
    """Settings of :meth:`learn`."""
    scored: ClassVar[Grid] = {}
    """Settings that only :meth:`scores` reads."""
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
        seed: int = 0,
    ) -> Self:
        """Learn from the users of ``train`` with the settings that are best on those of ``validation``.

        The best settings have the highest NDCG@k of the unobserved items on lists of n ratings, in mean over
        the numbers ``observed`` (:func:`usual_counts` unless given).
        """
        counts = usual_counts(n) if observed is None else observed
        best, state, self.tried = -1.0, {}, []
        lists = RatedLists.of(validation, n, seed=seed)
        for outer in _grid(self.learned):
            self.learn(train, **outer)
            for inner in _grid(self.scored):
                self.settings = outer | inner
                value = sum(float(lists.ndcg(self, r, k).mean()) for r in counts) / len(counts)
                self.tried.append((self.settings, value))
                if value > best:
                    best, state = value, dict(vars(self))
        vars(self).update(state)
        return self

    def scores(
        self,
        items: Tensor,
        r: int = 0,
        observed: Tensor | None = None,
        *,
        generator: torch.Generator | None = None,
    ) -> Tensor:
        """Scores ``(batch, n)``, higher for better, of lists ``(batch, n)`` whose first r items are observed.

        ``observed`` holds the relevances of the observed items: ``(batch, r)``, or more columns, which are
        ignored. A ranker that reads "order" makes an order of them, ties at random; it also takes the order
        itself, as integers ``(batch, r)``. Scores compare the items of one list only. Those of the observed
        items may be predictions that ignore the observations.
        """
        if not hasattr(self, "settings"):
            raise RankerError(f"the ranker {self.name} is not fitted; call fit(train, validation)")
        if items.ndim != 2 or not 0 <= r <= items.shape[1]:
            raise RankerError(f"lists are (batch, n) with 0 <= r <= n, not {tuple(items.shape)} with r = {r}")
        if self.reads == "nothing" or r == 0:
            dtype = torch.int64 if self.reads == "order" else torch.float32
            none = torch.zeros((len(items), 0), dtype=dtype, device=items.device)
            return self._scores(items, r, none, generator)
        if observed is None:
            raise RankerError(f"{self.name} reads the {self.reads} of the first r = {r} items as observed=")
        shape, is_order = tuple(observed.shape), not observed.is_floating_point()
        if len(shape) != 2 or shape[0] != len(items) or shape[1] < r or (is_order and shape[1] > r):
            raise RankerError(f"observed is (batch, r) = {(len(items), r)}, not {shape}")
        if is_order and self.reads == "ratings":
            raise RankerError(f"{self.name} reads ratings; observed is an order, {observed.dtype}")
        observed = observed[:, :r].to(items.device)
        if self.reads == "order":
            observed = observed.long() if is_order else order_of(observed, generator)
        return self._scores(items, r, observed, generator)

    @abstractmethod
    def learn(self, train: Ratings) -> None:
        """Learn from the users of ``train``; settings are further arguments, with defaults."""

    @abstractmethod
    def _scores(self, items: Tensor, r: int, observed: Tensor, generator: torch.Generator | None) -> Tensor:
        """:meth:`scores` with observations in the form that the ranker reads: an order int64 ``(batch, r)``,
        relevances ``(batch, r)``, or ``(batch, 0)`` if it reads nothing."""


@dataclass
class RatedLists:
    """Lists to judge rankers by: items and relevances ``(batch, n)``; the first r count as observed."""

    items: Tensor
    relevance: Tensor
    seed: int = 0

    @classmethod
    def of(cls, ratings: Ratings, n: int, per_user: int = 3, seed: int = 0) -> "RatedLists":
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


def usual_counts(n: int) -> list[int]:
    """Numbers of observed items that stand for all: from one to all but five of the list.

    >>> usual_counts(50), usual_counts(10)
    ([1, 5, 10, 25, 45], [1, 2, 5])
    """
    return sorted({max(1, r) for r in (1, n // 10, n // 5, n // 2, n - 5) if r <= n - 5}) or [1]


def _grid(values: Grid) -> list[dict[str, Any]]:
    return [dict(zip(values, chosen, strict=True)) for chosen in itertools.product(*values.values())]
