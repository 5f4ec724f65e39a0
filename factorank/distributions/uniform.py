"""The uniform law over orders."""

import math

import torch
from torch import Tensor
from torch.types import _size

from factorank.distributions.base import PermutationDistribution
from factorank.errors import DistributionError
from factorank.permutations import random_permutations


class Uniform(PermutationDistribution):
    """Every order of n items has probability 1/n!.

    Args:
        n: the number of items.
        batch_shape: the batch shape; none unless given.
        device, dtype: of the samples, and of the log-probabilities.

    >>> law = Uniform(3)
    >>> law.log_prob(torch.tensor([2, 0, 1])).exp()
    tensor(0.1667)
    >>> law.sample((5,)).shape
    torch.Size([5, 3])
    """

    def __init__(
        self,
        n: int,
        *,
        batch_shape: _size = (),
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        validate_args: bool | None = None,
    ) -> None:
        if isinstance(n, bool) or not isinstance(n, int) or n < 0:
            raise DistributionError(f"Uniform takes a number of items of 0 or more, not {n!r}")
        if dtype is not None and not (dtype.is_floating_point and dtype.itemsize > 1):
            raise DistributionError(f"Uniform has log-probabilities of a floating dtype, not {dtype}")
        self._zero = torch.zeros((), dtype=dtype or torch.get_default_dtype(), device=device)
        super().__init__(batch_shape, n, validate_args)

    @property
    def dtype(self) -> torch.dtype:
        """That of the log-probabilities."""
        return self._zero.dtype

    def _parameters(self) -> dict[str, int]:
        return {"n": self.n}

    def _log_prob(self, order: Tensor) -> Tensor:
        shape = torch.broadcast_shapes(order.shape[:-1], self.batch_shape)
        return (self._zero - math.lgamma(self.n + 1)).expand(shape)

    def _sample(self, shape: torch.Size, generator: torch.Generator | None) -> Tensor:
        return random_permutations(self.n, shape + self.batch_shape, generator=generator, device=self.device)

    def _entropy(self) -> Tensor:
        return (self._zero + math.lgamma(self.n + 1)).expand(self.batch_shape)

    def _marginals(self) -> Tensor:
        return (self._zero + 1 / max(self.n, 1)).expand(*self.batch_shape, self.n, self.n)

    def _mean_ranks(self) -> Tensor:
        return (self._zero + (self.n - 1) / 2).expand(*self.batch_shape, self.n)

    @property
    def mode(self) -> Tensor:
        """The identity; every order is as likely."""
        return torch.arange(self.n, device=self.device).expand(*self.batch_shape, self.n)
