"""Baselines of recommendation: scores of all items for users, from the items that they have rated."""

from typing import ClassVar, Self

import torch
from torch import Tensor

from factorank.data.ratings import Ratings

CELLS = 1 << 24
"""Cells of a dense table of users by items that is held at a time."""


class Recommender:
    """Learns from who rated what; the ratings themselves do not matter."""

    name: ClassVar[str]

    def fit(self, ratings: Ratings) -> Self:
        """Learn from ratings."""
        raise NotImplementedError

    def scores(self, history: Tensor) -> Tensor:
        """Scores ``(rows, items)`` for users with the items ``history (rows, h)``, -1 pads."""
        raise NotImplementedError


class MostRated(Recommender):
    """The same for everybody: items by the number of their ratings."""

    name = "popularity"

    def fit(self, ratings: Ratings) -> Self:
        self.counts = torch.bincount(ratings.items, minlength=ratings.item_count).float()
        return self

    def scores(self, history: Tensor) -> Tensor:
        return self.counts.expand(len(history), -1).clone()


class ItemWeights(Recommender):
    """EASE on what was rated: ones where there is a rating, zeros elsewhere.

    Steck, "Embarrassingly shallow autoencoders for sparse data", 2019.
    """

    name = "ease"

    def __init__(self, penalty: float = 400.0) -> None:
        self.penalty = penalty

    def fit(self, ratings: Ratings) -> Self:
        gram = torch.zeros(ratings.item_count, ratings.item_count, dtype=torch.float64)
        users = max(1, CELLS // ratings.item_count)
        for first in range(0, len(ratings), users):
            last = min(first + users, len(ratings))
            rows = slice(int(ratings.starts[first]), int(ratings.starts[last]))
            table = torch.zeros(last - first, ratings.item_count)
            table[ratings.users[rows] - first, ratings.items[rows].long()] = 1.0
            gram += table.T @ table
        gram.diagonal().add_(self.penalty)
        inverse = torch.linalg.inv(gram)
        weights = -inverse / inverse.diagonal()
        weights.fill_diagonal_(0)
        self.weights = weights.float()
        return self

    def scores(self, history: Tensor) -> Tensor:
        return indicators(history, len(self.weights)) @ self.weights


class ImplicitFactors(Recommender):
    """Factors of users and items by alternating least squares, where a rating counts ``weight`` times more
    than none.

    Hu, Koren and Volinsky, "Collaborative filtering for implicit feedback datasets", 2008.
    """

    name = "als"

    def __init__(self, rank: int = 64, weight: float = 10.0, penalty: float = 30.0, rounds: int = 8) -> None:
        self.rank, self.weight, self.penalty, self.rounds = rank, weight, penalty, rounds

    def fit(self, ratings: Ratings) -> Self:
        generator = torch.Generator().manual_seed(0)
        users, items = ratings.users, ratings.items.long()
        self.item = torch.randn((ratings.item_count, self.rank), generator=generator) * 0.1
        by_item = items.argsort(stable=True)
        for _ in range(self.rounds):
            user = self._solve(self.item, users, items, len(ratings))
            self.item = self._solve(user, items[by_item], users[by_item], ratings.item_count)
        return self

    def scores(self, history: Tensor) -> Tensor:
        rows, columns = (history >= 0).nonzero(as_tuple=True)
        user = self._solve(self.item, rows, history[rows, columns], len(history))
        return user @ self.item.T

    def _solve(self, other: Tensor, rows: Tensor, columns: Tensor, count: int) -> Tensor:
        """Factors ``(count, rank)``, a ridge regression for each row on the factors of its columns; rows are
        sorted."""
        unit = torch.eye(self.rank)
        shared = other.T @ other + self.penalty * unit
        solved = []
        bounds = torch.searchsorted(rows, torch.arange(count + 1)).tolist()
        for row in range(count):
            own = other[columns[bounds[row] : bounds[row + 1]]]
            gram = shared + self.weight * own.T @ own
            solved.append(torch.linalg.solve(gram, (1 + self.weight) * own.sum(0)))
        return torch.stack(solved) if solved else torch.zeros(0, self.rank)


def indicators(history: Tensor, items: int) -> Tensor:
    """Ones ``(rows, items)`` where the history ``(rows, h)``, -1 pads, holds the item."""
    table = torch.zeros(len(history), items + 1)
    return table.scatter_(1, torch.where(history < 0, items, history), 1.0)[:, :-1]
