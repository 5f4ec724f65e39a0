"""The lists that rankers are measured on: some ratings of users that were not trained on."""

from dataclasses import dataclass, field

import torch
from torch import Tensor

from factorank.data.ratings import Ratings, order_of
from factorank.errors import FactorankError
from factorank.rerank.lists import Lists
from factorank.rerank.ranker import Ranker
from factorank.training.random_streams import stream_seed


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
    user_scores: dict[str, Tensor] = field(default_factory=dict)
    """NDCG of the unobserved items for each user, float32 ``(users,)``, as scored last, by ``n/r/k``."""

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
    return EvaluationLists(items, relevance, order_of(relevance, generator), users)
