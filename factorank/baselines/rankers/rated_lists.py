"""Lists of rated items that baseline rankers are tuned on."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from factorank.data.ratings import Ratings, order_of
from factorank.errors import RankerError
from factorank.metrics import ndcg

if TYPE_CHECKING:
    from factorank.baselines.rankers.baseline import BaselineRanker


@dataclass
class RatedLists:
    """Lists to judge rankers by: items and relevances ``(batch, n)``; the first r count as observed."""

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

    def ndcg(self, ranker: "BaselineRanker", r: int, k: int = 10) -> Tensor:
        """NDCG@k of the unobserved items of each list, ``(batch,)``; equal scores in random order."""
        generator = torch.Generator(self.items.device).manual_seed(self.seed)
        scores = ranker.scores(self.items, r, self.relevance, generator=generator)[:, r:]
        order = order_of(scores - scores.amin(-1, keepdim=True), generator)
        return ndcg(order, self.relevance[:, r:], k)
