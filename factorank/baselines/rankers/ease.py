"""EASE: an item-item model in closed form, on centred ratings."""

from typing import ClassVar

import torch
from torch import Tensor

from factorank.baselines.rankers.baseline import BaselineRanker, Grid
from factorank.baselines.rankers.unpersonalised import mean_relevance
from factorank.data.ratings import Ratings

PRIOR = 5.0
"""How many ratings at the mean each item, and each user, is counted to have had before."""
CELLS = 1 << 24
"""Cells of the dense table of users by items that is held at a time."""


class EASE(BaselineRanker):
    r"""Item-item weights B with zero diagonal that best predict each centred rating from the user's others:

    .. math:: \min_B \|X - XB\|^2 + \lambda \|B\|^2, \quad \operatorname{diag} B = 0:
        \quad B = I - P \operatorname{diag}(P)^{-1}, \quad P = (X^T X + \lambda I)^{-1}.

    X holds relevance minus the item's mean minus the user's mean of the rest (both shrunk to 0), and 0 where
    nothing was rated. The score of an item is its mean plus ``weight`` times the prediction of B from the r
    observed ratings. The weight, 1 in the original, compensates for having fewer of them than in training.

    Steck, "Embarrassingly shallow autoencoders for sparse data", 2019.
    """

    name = "ease"
    reads = "ratings"
    learned: ClassVar[Grid] = {"penalty": (30.0, 100.0, 300.0, 1e3, 3e3, 1e4, 3e4, 1e5, 3e5)}
    scored: ClassVar[Grid] = {"weight": (1.0, 2.0, 4.0, 8.0, 16.0, 32.0)}

    def learn(self, train: Ratings, penalty: float = 1000.0) -> None:
        self.means = mean_relevance(train, PRIOR)
        items = train.items.long()
        residual = train.relevance(train.values) - self.means[items]
        bias = torch.zeros(len(train), device=train.device).index_add_(0, train.users, residual)
        residual = residual - (bias / (train.lengths + PRIOR))[train.users]
        gram = torch.zeros((train.item_count, train.item_count), dtype=torch.float64, device=train.device)
        rows = max(1, CELLS // train.item_count)
        for first in range(0, len(train), rows):  # dense, but only some users at a time
            begin, end = int(train.starts[first]), int(train.starts[min(first + rows, len(train))])
            table = torch.zeros((min(rows, len(train) - first), train.item_count), device=train.device)
            table[train.users[begin:end] - first, items[begin:end]] = residual[begin:end]
            gram += table.T @ table
        unit = torch.eye(len(gram), dtype=gram.dtype, device=gram.device)
        inverse = torch.linalg.inv(gram + penalty * unit)
        self.weights = (unit - inverse / inverse.diagonal()).float()

    def _scores(self, items: Tensor, r: int, observed: Tensor, generator: torch.Generator | None) -> Tensor:
        items = items.clamp(min=0)
        means = self.means.to(items.device)[items]
        residual = observed.to(means.dtype) - means[:, :r]
        residual = residual - residual.sum(-1, keepdim=True) / (r + PRIOR)
        weights = self.weights.to(items.device)[items[:, :r, None], items[:, None, :]]  # (batch, r, n)
        return means + self.settings["weight"] * (residual[:, None] @ weights).squeeze(1)
