"""Distances between rankings, each given as an order (items from best to worst).

All take two orders ``(*batch, n)`` whose batch shapes broadcast, and return int64 ``(*batch,)``. All depend
on the rankings alone, not on how the items are numbered.
"""

import torch
from torch import Tensor

from factorank.kernels.codes import longest_increasing
from factorank.permutations import (
    as_rows,
    check_permutation,
    compose,
    cycle_count,
    inverse,
    same_length,
    transformed,
)


def kendall(order: Tensor, other: Tensor, *, check: bool = True) -> Tensor:
    """Kendall's tau distance: how many pairs of items the two rankings order differently.

    >>> kendall(torch.tensor([0, 1, 2, 3]), torch.tensor([[0, 1, 2, 3], [1, 0, 2, 3], [3, 2, 1, 0]]))
    tensor([0, 1, 6])
    """
    return transformed(_relative(order, other, check), "encode-lehmer").sum(-1)


def cayley(order: Tensor, other: Tensor, *, check: bool = True) -> Tensor:
    """Cayley's distance: the least number of swaps of two items that turns one ranking into the other.

    >>> cayley(torch.tensor([0, 1, 2, 3]), torch.tensor([3, 2, 1, 0]))
    tensor(2)
    """
    relative = _relative(order, other, check)
    return relative.shape[-1] - cycle_count(relative, check=False)


def ulam(order: Tensor, other: Tensor, *, check: bool = True) -> Tensor:
    """Ulam's distance: the least number of items to take out and put elsewhere; n minus the longest common
    subsequence.

    >>> ulam(torch.tensor([0, 1, 2, 3]), torch.tensor([3, 0, 1, 2]))
    tensor(1)
    """
    relative = _relative(order, other, check)
    if relative.numel() == 0:
        return relative.new_zeros(relative.shape[:-1])
    return relative.shape[-1] - longest_increasing(as_rows(relative)).view(relative.shape[:-1])


def hamming(order: Tensor, other: Tensor, *, check: bool = True) -> Tensor:
    """Hamming's distance: how many places hold different items.

    >>> hamming(torch.tensor([0, 1, 2, 3]), torch.tensor([1, 0, 2, 3]))
    tensor(2)
    """
    order, other = _pair(order, other, check)
    return (order != other).sum(-1)


def footrule(order: Tensor, other: Tensor, *, check: bool = True) -> Tensor:
    """Spearman's footrule: the places that the items move, added up.

    >>> footrule(torch.tensor([0, 1, 2, 3]), torch.tensor([3, 0, 1, 2]))
    tensor(6)
    """
    return _moves(order, other, check).abs().sum(-1)


def rho(order: Tensor, other: Tensor, *, check: bool = True) -> Tensor:
    """Spearman's rho as a distance: the squares of the places that the items move, added up.

    The rank correlation coefficient is ``1 - 6 * rho / (n³ - n)``; the square root of rho is a metric.

    >>> rho(torch.tensor([0, 1, 2, 3]), torch.tensor([3, 0, 1, 2]))
    tensor(12)
    """
    return _moves(order, other, check).square().sum(-1)


def _pair(order: Tensor, other: Tensor, check: bool) -> tuple[Tensor, Tensor]:
    if check:
        check_permutation(order, "distances take")
        check_permutation(other, "distances take")
    order, other = same_length(order, other, "a distance")
    return order.to(torch.int64), other.to(torch.int64)


def _relative(order: Tensor, other: Tensor, check: bool) -> Tensor:
    """``order`` with each item named by its place in ``other``: the identity if the two are equal."""
    order, other = _pair(order, other, check)
    return compose(inverse(other, check=False), order, check=False)


def _moves(order: Tensor, other: Tensor, check: bool) -> Tensor:
    order, other = _pair(order, other, check)
    return inverse(order, check=False) - inverse(other, check=False)
