"""Permutations of a single cycle: all of them, and a random split into training and held-out ones."""

import math

import torch
from torch import Tensor

from factorank.codes import FisherYates
from factorank.errors import PermutationError

LARGEST = 11
"""The largest n whose (n-1)! cyclic permutations are listed: 3.6 million rows."""


def all_cyclic(n: int) -> Tensor:
    """Every cyclic permutation of n items, ``((n-1)!, n)`` int64, in the order of their Fisher-Yates draws.

    Sattolo's algorithm draws from 1..n-1-i at place i; here every combination of draws occurs once.

    >>> all_cyclic(3)
    tensor([[1, 2, 0],
            [2, 0, 1]])
    """
    if not 1 <= n <= LARGEST:
        raise PermutationError(f"all cyclic permutations can be listed for n from 1 to {LARGEST}, not {n}")
    index = torch.arange(math.factorial(n - 1))
    draws = torch.zeros((len(index), n), dtype=torch.int64)
    for i in reversed(range(n - 1)):
        draws[:, i] = index % (n - 1 - i) + 1
        index = index // (n - 1 - i)
    return FisherYates().decode(draws, check=False)


def cyclic_split(n: int, share: float, seed: int) -> tuple[Tensor, Tensor]:
    """A random share of all cyclic permutations to train on, and the rest.

    >>> train, rest = cyclic_split(5, share=0.25, seed=0)
    >>> train.shape, rest.shape
    (torch.Size([6, 5]), torch.Size([18, 5]))
    """
    orders = all_cyclic(n)
    shuffled = orders[torch.randperm(len(orders), generator=torch.Generator().manual_seed(seed))]
    count = max(1, round(share * len(orders)))
    return shuffled[:count], shuffled[count:]
