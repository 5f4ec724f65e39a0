"""Factorized laws given the order of some items: exact by dynamic programming, up to a number of states."""

from typing import Self

import torch
from torch import Tensor
from torch.types import _size

from factorank.codes import code
from factorank.distributions.conditioning.approximate import AMPConditioned
from factorank.distributions.conditioning.conditioned import Conditioned
from factorank.distributions.conditioning.programmes.insertion import InsertionProgramme
from factorank.distributions.conditioning.programmes.lehmer import LehmerProgramme
from factorank.distributions.conditioning.programmes.programme import Programme
from factorank.distributions.conditioning.rules import Effort, conditioning_rule
from factorank.distributions.factorized import FactorizedDistribution
from factorank.permutations import inverse


class ConditionedFactorized(Conditioned):
    """A Mallows, generalized Mallows or RIM law given the order of some items; exact.

    The dynamic programme is run once for each row of the batch.
    """

    law: FactorizedDistribution

    def __init__(self, law: FactorizedDistribution, observed: Tensor) -> None:
        self._code = "insertion" if "insertion" in law.code_names else "lehmer"
        table = law._digits(self._code)
        tables = table.expand(*law.batch_shape, law.n, law.n).reshape(law.batch_shape.numel(), law.n, law.n)
        chains = _chains(law, observed)
        self._programmes = [
            _programme(law, chain).run(rows) for chain, rows in zip(chains, tables, strict=True)
        ]
        self._rows = torch.arange(len(self._programmes), device=law.device).view(law.batch_shape)
        evidence = [programme.log_evidence for programme in self._programmes]
        log_evidence = torch.stack(evidence) if evidence else table.new_zeros(0)
        super().__init__(law, observed, log_evidence.to(table.dtype).view(law.batch_shape))

    def expand(self, batch_shape: _size, _instance: Self | None = None) -> Self:
        new = super().expand(batch_shape, _instance)
        new._rows = self._rows.expand(batch_shape)
        return new

    @property
    def mode(self) -> Tensor:
        """A most likely order that agrees with the observation; exact, by the same dynamic programme."""
        chains = _chains(self.law, self.observed)
        tables = self.law._digits(self._code).detach().expand(*self.batch_shape, self.n, self.n)
        tables = tables.reshape(-1, self.n, self.n)
        best = [
            _programme(self.law, c, best=True).run(t).sample(1, None)
            for c, t in zip(chains, tables, strict=True)
        ]
        digits = (
            torch.stack(best).view(*self.batch_shape, self.n)
            if best
            else self._rows[..., None].expand(*self.batch_shape, self.n)
        )
        return self._order(digits)

    def _order(self, digits: Tensor) -> Tensor:
        return self.law._absolute(code(self._code).decode(digits, check=False))

    def _sample(self, shape: torch.Size, generator: torch.Generator | None) -> Tensor:
        digits = torch.empty((*shape, *self.batch_shape, self.n), dtype=torch.int64, device=self.device)
        rows = self._rows.expand(*shape, *self.batch_shape)
        for number, programme in enumerate(self._programmes):
            here = rows == number
            digits[here] = programme.sample(int(here.sum()), generator)
        return self._order(digits)


def states_needed(law: FactorizedDistribution, observed: Tensor, limit: int) -> int:
    """How many states the largest dynamic programme of the batch has, or a number above the limit."""
    return max((_programme(law, chain).states(limit) for chain in _chains(law, observed)), default=0)


def _chains(law: FactorizedDistribution, observed: Tensor) -> list[list[int]]:
    """For each row of the batch: the observed items by their place in the reference."""
    ranks = inverse(law._reference, check=False)[..., observed]
    return ranks.reshape(law.batch_shape.numel(), len(observed)).tolist()


def _programme(law: FactorizedDistribution, chain: list[int], best: bool = False) -> Programme:
    return (InsertionProgramme if "insertion" in law.code_names else LehmerProgramme)(chain, law.n, best)


@conditioning_rule(FactorizedDistribution)
def _condition_factorized(law: FactorizedDistribution, observed: Tensor, effort: Effort) -> Conditioned:
    feasible = states_needed(law, observed, effort.max_states) <= effort.max_states
    return ConditionedFactorized(law, observed) if feasible else AMPConditioned(law, observed)
