"""Matrix factorisation with biases, by alternating least squares; a new user is folded in from r ratings."""

from typing import ClassVar

import torch
from torch import Tensor

from factorank.baselines.rankers.baseline import BaselineRanker, Grid
from factorank.data.ratings import Ratings
from factorank.data.ratings.columns import sparse_matrix

ROUNDS = 10
LEAST_NOISE = 1e-3
"""Of the ratings: where all are equal there is none, and a regression would have no solution."""
DENSE = 1 << 28
"""Users times items up to which the matrix of the ratings is dense; beyond, it is sparse."""


class MatrixFactorisation(BaselineRanker):
    r"""Relevance :math:`\mu + b_u + b_i + p_u \cdot q_i`, fitted by alternating least squares.

    The squared error plus ``penalty`` times the squared numbers of each user and item is minimised in turns:
    given the items, each user is a ridge regression, and the other way round. The user of a list is folded
    in: a regression on the r observed relevances again, but shrunk to the mean of all users by their
    covariance (the posterior mean under a Gaussian prior, with the squared residual as the noise), ``fold``
    times as strongly. A plain ridge, for which all directions are equally likely, was worse than the mean
    rating at r = 1.

    Hu, Koren and Volinsky, "Collaborative filtering for implicit feedback datasets", 2008 (for the
    alternation); Koren, Bell and Volinsky, "Matrix factorization techniques for recommender systems", 2009.
    """

    name = "matrix-factorisation"
    reads = "ratings"
    learned: ClassVar[Grid] = {"rank": (8, 16), "penalty": (3.0, 10.0, 30.0)}
    scored: ClassVar[Grid] = {"fold": (1.0, 2.0, 4.0)}

    def learn(self, train: Ratings, rank: int = 8, penalty: float = 6.0, seed: int = 0) -> None:
        relevance = train.relevance(train.values)
        self.mean = float(relevance.mean())
        users, items = train.users, train.items.long()
        shape = (len(train), train.item_count)
        rated = _matrix(users, items, torch.ones_like(relevance), shape)
        values = _matrix(users, items, relevance - self.mean, shape)
        transposed = rated.t(), values.t()
        generator = torch.Generator().manual_seed(seed)
        # Each side is (bias, factors).
        item = torch.randn((train.item_count, rank + 1), generator=generator).to(train.device) * 0.1
        item[:, 0] = 0
        for _ in range(ROUNDS):
            user = regress(rated, values, item, penalty)
            item = regress(*transposed, user, penalty)
        self.item = item
        predicted = self.mean + user[users, 0] + item[items, 0] + (user[users, 1:] * item[items, 1:]).sum(1)
        self.noise = max(float((relevance - predicted).square().mean()), LEAST_NOISE)
        self.user_mean = user.mean(0)
        centred = (user - self.user_mean).double()
        spread = centred.T @ centred / len(user) + 1e-6 * torch.eye(rank + 1, device=user.device)
        self.user_precision = spread.inverse().float()

    def _scores(self, items: Tensor, r: int, observed: Tensor, generator: torch.Generator | None) -> Tensor:
        listed = self.item.to(items.device)[items.clamp(min=0)]
        user = self.fold_in(listed[:, :r], observed.to(listed.dtype))
        return listed[..., 0] + (listed[..., 1:] @ user[:, 1:, None]).squeeze(-1)

    def fold_in(self, rated: Tensor, relevance: Tensor) -> Tensor:
        """Users (bias, factors) ``(batch, 1 + rank)`` from (bias, factors) of the items they rated
        ``(batch, r, 1 + rank)`` and the relevances of these ``(batch, r)``."""
        design = torch.cat([torch.ones_like(rated[..., :1]), rated[..., 1:]], -1)
        residual = relevance - self.mean - rated[..., 0]
        prior = self.user_precision.to(rated.device) * (self.settings["fold"] * self.noise)
        gram = design.mT @ design + prior
        right = (design.mT @ residual[..., None]).squeeze(-1) + prior @ self.user_mean.to(rated.device)
        return _solve(gram, right)


def regress(rated: Tensor, values: Tensor, other: Tensor, penalty: float) -> Tensor:
    """(bias, factors) of each row, ``(rows, 1 + rank)``, by ridge regression on those of the columns.

    ``rated`` ``(rows, columns)`` is 1 where there is a rating, and ``values`` holds the ratings. Sums over
    the ratings of a row are products of these with a table that holds the summands of each column.
    """
    width = other.shape[1]
    design = torch.cat([torch.ones_like(other[:, :1]), other[:, 1:]], 1)
    outer = (design[:, :, None] * design[:, None, :]).flatten(1)
    sums = rated @ torch.cat([outer, other[:, :1] * design], 1)
    gram = sums[:, : width * width].reshape(-1, width, width)
    gram.diagonal(dim1=-2, dim2=-1).add_(penalty)
    return _solve(gram, values @ design - sums[:, width * width :])


def _matrix(rows: Tensor, columns: Tensor, values: Tensor, shape: tuple[int, int]) -> Tensor:
    if shape[0] * shape[1] <= DENSE:
        table = torch.zeros(shape, device=values.device)
        table[rows, columns] = values
        return table
    return sparse_matrix(rows, columns, values, shape)


def _solve(gram: Tensor, right: Tensor) -> Tensor:
    return torch.cholesky_solve(right[..., None], torch.linalg.cholesky(gram)).squeeze(-1)
