"""What is measured of every method: lengths of lists, numbers of observed items, ranks k, and the lists."""

from dataclasses import dataclass

import torch
from torch import Tensor

from factorank.data.ratings import Ratings, order_of
from factorank.errors import FactorankError
from factorank.rerank.lists import Lists
from factorank.rerank.ranker import Ranker
from factorank.rerank.reranking import Query
from factorank.training.random_streams import stream_seed

KS = (1, 3, 5, 10)


@dataclass(frozen=True)
class Evaluation:
    """What is measured of every method."""

    ns: tuple[int, ...] = (10, 20, 50)
    """Lengths of the lists."""
    rs: tuple[int, ...] = ()
    """Numbers of observed items; a range from 0 to n - 2 unless given."""
    ks: tuple[int, ...] = KS
    """NDCG is that of the first k."""
    lists: int = 1000
    """How many lists at least, as many of each user."""
    query: Query = Query(samples=None)  # noqa: RUF009, it is frozen
    """How a ranker ranks them."""
    calibrate: bool = True
    """Whether the calibration of a ranker is measured as well."""
    seed: int = 0
    """Decides the lists and the references."""

    def sizes(self, ratings: Ratings, lengths: range | None = None) -> list[int]:
        """The lengths that users have ratings for, and that a model takes, if it takes those ``lengths``."""
        longest = int(ratings.lengths.max())
        sizes = [n for n in self.ns if n <= longest and (lengths is None or n in lengths)]
        if not sizes:
            raise FactorankError(
                f"none of the sizes n = {self.ns} can be measured: users have up to {longest} ratings"
                + ("" if lengths is None else f", the model takes {lengths.start}..{lengths.stop - 1}")
            )
        return sizes

    def observed_counts(self, n: int) -> list[int]:
        """The numbers of observed items of lists of n."""
        rs = [r for r in self.rs if 0 <= r <= n - 2] if self.rs else default_rs(n)
        if not rs:
            raise FactorankError(f"of n = {n} items 0 to {n - 2} can be observed, not r = {self.rs}")
        return rs


def default_rs(n: int) -> list[int]:
    """Numbers of observed items from 0 to n - 2: all up to n = 10, some beyond.

    >>> default_rs(20)
    [0, 1, 2, 3, 5, 8, 10, 15, 18]
    """
    if n <= 10:
        return list(range(max(n - 1, 1)))
    some = {0, 1, 2, 3, 5, 8, 10, 15, 20, 25, 30, 35, 40, 45, 60, 75, 90, n - 5, n - 2}
    return sorted(r for r in some if r <= n - 2)


@dataclass
class EvaluationLists:
    """Lists that all methods rank: the first r places of each are observed."""

    items: Tensor
    """int64 ``(lists, n)``, in random order."""
    relevance: Tensor
    """float32 ``(lists, n)``."""
    order: Tensor
    """int64 ``(lists, n)``: places in the list, best first; ties broken at random, once for all methods."""
    users: Tensor
    """The user of each list, int64 ``(lists,)``."""
    seed: int = 0
    """The seed that they were drawn by."""

    @property
    def n(self) -> int:
        return self.items.shape[-1]

    def observed(self, r: int) -> Tensor:
        """The first r places of the list, best first: int64 ``(lists, r)``."""
        return self.order[self.order < r].view(len(self.order), r)

    def for_ranker(self, ranker: Ranker, r: int) -> Lists:
        """The lists padded to the n of a ranker's model, with what it reads of the first r items."""
        observed = self.observed(r)
        return Lists(
            torch.nn.functional.pad(self.items, (0, ranker.model.n - self.n), value=-1),
            observed,
            relevance=self.relevance.gather(1, observed) if ranker.told == "ratings" else None,
        )


def draw_lists(ratings: Ratings, n: int, *, seed: int = 0, lists: int = 1000) -> EvaluationLists:
    """At least ``lists`` lists of n, as many of each user who has n ratings; the seed decides everything."""
    users = ratings.users_with(n).cpu()
    if not len(users):
        raise FactorankError(f"no user to test on has {n} ratings")
    users = users.repeat(-(-lists // len(users)))
    generator = torch.Generator().manual_seed(stream_seed(seed, "lists", n))
    items, relevance = ratings.to("cpu").lists(n, users, generator)
    return EvaluationLists(items, relevance, order_of(relevance, generator), users, seed)
