"""Monte-Carlo estimates with their standard errors, and counts of draws by item and place."""

import math
from typing import NamedTuple

import torch
from torch import Tensor


class Estimate(NamedTuple):
    """A Monte-Carlo estimate."""

    value: Tensor
    error: Tensor
    """The standard error, as of independent draws; those of learned laws are stratified, and closer."""
    samples: int


def mean_estimate(values: Tensor) -> Estimate:
    """The mean over the first dimension; of a single draw the error is not known and infinite."""
    count = values.shape[0]
    error = values.std(0) / count**0.5 if count > 1 else torch.full_like(values[0], math.inf)
    return Estimate(values.mean(0), error, count)


def count_places(orders: Tensor, weights: Tensor) -> Tensor:
    """The summed weights of the draws in which an item stands at a place: ``(*batch, item, place)``.

    Orders are ``(draws, *batch, n)``, weights ``(draws, *batch)`` or what broadcasts to it.
    """
    n = orders.shape[-1]
    cells = (orders * n + torch.arange(n, device=orders.device)).movedim(0, -2).flatten(-2)
    weights = weights.expand(orders.shape[:-1]).movedim(0, -1)[..., None].expand(*cells.shape[:-1], -1, n)
    counts = weights.new_zeros((*cells.shape[:-1], n * n))
    return counts.scatter_add_(-1, cells, weights.flatten(-2)).view(*cells.shape[:-1], n, n)
