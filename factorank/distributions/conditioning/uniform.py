"""The uniform law given the order of some items."""

import math

import torch
from torch import Tensor

from factorank.distributions.conditioning.conditioned import Conditioned
from factorank.distributions.conditioning.rules import Effort, conditioning_rule
from factorank.distributions.uniform import Uniform


class ConditionedUniform(Conditioned):
    """Uniform over the orders that agree with the observation; exact."""

    def __init__(self, law: Uniform, observed: Tensor) -> None:
        super().__init__(law, observed, law._zero - math.lgamma(len(observed) + 1))

    def _sample(self, shape: torch.Size, generator: torch.Generator | None) -> Tensor:
        return self._chained(self.law.sample(shape, generator=generator))

    def _entropy(self) -> Tensor:
        return self.law.entropy() + self.log_evidence

    @property
    def mode(self) -> Tensor:
        return self._chained(self.law.mode)


@conditioning_rule(Uniform)
def _condition_uniform(law: Uniform, observed: Tensor, effort: Effort) -> ConditionedUniform:
    return ConditionedUniform(law, observed)
