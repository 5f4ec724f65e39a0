"""Laws given the relative order of some items: the base class, and the cases that need little.

These are: all items were observed, the uniform law, and any law on few items.
"""

import math
from typing import Any, ClassVar

import torch
from torch import Tensor

from factorank.distributions.base import PermutationDistribution
from factorank.distributions.conditioning.rules import ImpossibleObservation, conditioning_rule
from factorank.distributions.drawing import draw_index
from factorank.distributions.uniform import Uniform
from factorank.errors import DistributionError
from factorank.permutations import cannot_check, inverse


class Conditioned(PermutationDistribution):
    r"""A law given the relative order of some items.

    :math:`P(X \mid observed) = P(X) / P(observed)` for the orders that agree with the observation, zero for
    others.
    """

    _batched: ClassVar[tuple[str, ...]] = ("law", "_log_evidence")
    law: PermutationDistribution
    """The law before the observation."""
    observed: Tensor
    """The observed items, best first, ``(r,)``."""

    def __init__(self, law: PermutationDistribution, observed: Tensor, log_evidence: Tensor | None) -> None:
        self.law, self.observed = law, observed
        self._log_evidence = None if log_evidence is None else log_evidence.expand(law.batch_shape)
        super().__init__(law.batch_shape, law.n, law._validate_args)
        if log_evidence is None or cannot_check(log_evidence):
            return
        if (impossible := ~(self.log_evidence > -math.inf)).any():
            row = [int(i) for i in impossible.nonzero()[0]]
            where = f" in row {row}" if row else ""
            raise ImpossibleObservation(
                f"the observed order {observed.tolist()} has probability zero under {law!r}{where}"
            )

    @property
    def log_evidence(self) -> Tensor:
        """The log-probability of the observed order under ``law``, ``(*batch,)``."""
        if self._log_evidence is None:
            raise DistributionError(
                "the probability of the observation is not known exactly; estimate_log_evidence estimates"
                " its logarithm"
            )
        return self._log_evidence

    def estimate_log_evidence(self, generator: torch.Generator) -> Tensor:
        """``log_evidence``, estimated where it is not known, ``(*batch,)``."""
        return self.log_evidence

    def agrees(self, order: Tensor) -> Tensor:
        """Whether each order has the observed items in the observed order: bool ``(*sample, *batch)``."""
        return agrees(order, self.observed)

    def _parameters(self) -> dict[str, Any]:
        return {"law": self.law, "observed": self.observed}

    def _log_prob(self, order: Tensor) -> Tensor:
        return torch.where(self.agrees(order), self.law._log_prob(order) - self.log_evidence, -math.inf)

    def _listed(self, what: str) -> Tensor:
        orders = super()._listed(what)
        return orders[self.agrees(orders)]

    @property
    def _free(self) -> Tensor:
        """Which items were not observed, bool ``(n,)``."""
        free = torch.ones(self.n, dtype=torch.bool, device=self.device)
        return free.index_fill_(0, self.observed, False)

    def _chained(self, order: Tensor) -> Tensor:
        """The order with the observed items, at the places they hold, put into the observed order."""
        here = ~self._free[order]
        return torch.where(here, self.observed[(here.cumsum(-1) - 1).clamp(min=0)], order)


def agrees(order: Tensor, observed: Tensor) -> Tensor:
    """Whether each order ``(*batch, n)`` has the items ``observed`` in this relative order: ``(*batch,)``."""
    places = inverse(order, check=False)[..., observed]
    return (places[..., 1:] > places[..., :-1]).all(-1)


class ConditionedOnAll(Conditioned):
    """All items were observed: one order has probability one."""

    def __init__(self, law: PermutationDistribution, observed: Tensor) -> None:
        super().__init__(law, observed, law.log_prob(observed) if law.exact else None)

    def _log_prob(self, order: Tensor) -> Tensor:
        dtype = None if self._log_evidence is None else self._log_evidence.dtype
        zero = torch.zeros((), dtype=dtype, device=self.device)
        shape = torch.broadcast_shapes(order.shape[:-1], self.batch_shape)
        return torch.where(self.agrees(order), zero, -math.inf).expand(shape)

    def _sample(self, shape: torch.Size, generator: torch.Generator | None) -> Tensor:
        return self.observed.expand(*shape, *self.batch_shape, self.n)

    @property
    def mode(self) -> Tensor:
        return self.observed.expand(*self.batch_shape, self.n)

    def _entropy(self) -> Tensor:
        return torch.zeros_like(self._certain())

    def _marginals(self) -> Tensor:
        stands = torch.nn.functional.one_hot(inverse(self.observed, check=False), self.n)
        return stands.to(self._certain().dtype).expand(*self.batch_shape, self.n, self.n)


conditioning_rule()(
    lambda law, observed, effort: ConditionedOnAll(law, observed) if len(observed) == law.n else None
)


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


conditioning_rule(Uniform)(lambda law, observed, effort: ConditionedUniform(law, observed))


class ConditionedByEnumeration(Conditioned):
    """A law on few items given the order of some; exact, from a list of all orders that agree."""

    _batched = (*Conditioned._batched, "_log_probs")

    def __init__(self, law: PermutationDistribution, observed: Tensor) -> None:
        orders, log_probs = law._enumerated("condition")
        self.law, self.observed = law, observed
        kept = self.agrees(orders)
        self._orders, self._log_probs = orders[kept], log_probs[kept].movedim(0, -1)
        super().__init__(law, observed, self._log_probs.logsumexp(-1))

    def _sample(self, shape: torch.Size, generator: torch.Generator | None) -> Tensor:
        log_probs = self._log_probs - self.log_evidence[..., None]
        return self._orders[draw_index(log_probs.expand(*shape, *self.batch_shape, -1), generator)]
