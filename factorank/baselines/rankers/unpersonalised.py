"""Rankers that are the same for every user: chance, popularity, mean rating."""

from typing import ClassVar

import torch
from torch import Tensor

from factorank.baselines.rankers.baseline import BaselineRanker, Grid
from factorank.data.ratings import Ratings


class UniformRIM(BaselineRanker):
    """The paper's uniform repeated insertion: all orders that agree with the observed one are equally likely.

    The scores are a draw from it: random places, shared out among the observed items in their order. The
    order of the unobserved items is chance.
    """

    name = "uniform-rim"
    reads = "order"

    def learn(self, train: Ratings) -> None:
        pass

    def _scores(self, items: Tensor, r: int, observed: Tensor, generator: torch.Generator | None) -> Tensor:
        scores = torch.rand(items.shape, device=items.device, generator=generator)
        best_first = scores[:, :r].sort(-1, descending=True).values
        scores[:, :r] = torch.zeros_like(best_first).scatter_(1, observed, best_first)
        return scores


class Popularity(BaselineRanker):
    """The paper's baseline: items by the number of their ratings."""

    name = "popularity"
    reads = "nothing"

    def learn(self, train: Ratings) -> None:
        self.counts = torch.bincount(train.items, minlength=train.item_count).float()

    def _scores(self, items: Tensor, r: int, observed: Tensor, generator: torch.Generator | None) -> Tensor:
        return self.counts.to(items.device)[items.clamp(min=0)]


class MeanRating(BaselineRanker):
    r"""Items by their mean relevance, shrunk to that of all items as if each had ``prior`` ratings more.

    The score of an item is :math:`(\sum_u r_{ui} + c\mu) / (n_i + c)`, with :math:`\mu` the mean of all.
    With the ``target`` "gain" the means are those of :math:`2^{rel} - 1`, which NDCG adds up.
    """

    name = "mean-rating"
    reads = "nothing"
    learned: ClassVar[Grid] = {"prior": (0.0, 1.0, 3.0, 10.0, 30.0, 100.0), "target": ("relevance", "gain")}

    def learn(self, train: Ratings, prior: float = 10.0, target: str = "relevance") -> None:
        self.means = mean_relevance(train, prior, target)

    def _scores(self, items: Tensor, r: int, observed: Tensor, generator: torch.Generator | None) -> Tensor:
        return self.means.to(items.device)[items.clamp(min=0)]


def mean_relevance(ratings: Ratings, prior: float, target: str = "relevance") -> Tensor:
    """The mean relevance, or gain, of each item, shrunk to that of all ratings: ``(items,)``, in float32."""
    relevance = ratings.relevance(ratings.values).double()
    relevance = torch.exp2(relevance) - 1 if target == "gain" else relevance
    mean = relevance.mean()
    sums = torch.zeros(ratings.item_count, dtype=torch.float64, device=ratings.device)
    sums.index_add_(0, ratings.items.long(), relevance)
    counts = torch.bincount(ratings.items, minlength=ratings.item_count)
    shrunk = (sums + prior * mean) / (counts + prior).clamp(min=1e-9)
    # With no prior an item that nobody rated is as good as the mean.
    return torch.where(counts + prior > 0, shrunk, mean).float()
