"""Any law on few items given the order of some, from a list of the orders that agree."""

import math
from typing import Self

import torch
from torch import Tensor
from torch.types import _size

from factorank.distributions.base import PermutationDistribution
from factorank.distributions.conditioning.conditioned import Conditioned
from factorank.distributions.conditioning.rules import Effort
from factorank.distributions.drawing import draw_index


class ConditionedByEnumeration(Conditioned):
    """A law on few items given the order of some; exact, from a list of all orders that agree."""

    def __init__(self, law: PermutationDistribution, observed: Tensor) -> None:
        orders, log_probs = law._enumerated("condition")
        self.law, self.observed = law, observed
        kept = self.agrees(orders)
        self._orders, self._log_probs = orders[kept], log_probs[kept]
        super().__init__(law, observed, self._log_probs.logsumexp(0))

    def _sample(self, shape: torch.Size, generator: torch.Generator | None) -> Tensor:
        log_probs = self._log_probs.movedim(0, -1) - self.log_evidence[..., None]
        return self._orders[draw_index(log_probs.expand(*shape, *self.batch_shape, -1), generator)]

    def expand(self, batch_shape: _size, _instance: Self | None = None) -> Self:
        new = super().expand(batch_shape, _instance)
        new._log_probs = self._log_probs.movedim(0, -1).expand(*batch_shape, -1).movedim(-1, 0)
        return new


def enumerable(law: PermutationDistribution, effort: Effort) -> bool:
    """Whether the orders are few enough to be listed, and ``log_prob`` is exact."""
    return law.enumerable and math.factorial(law.n) <= effort.max_states
