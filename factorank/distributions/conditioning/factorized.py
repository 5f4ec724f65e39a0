"""Factorized laws given the order of some items: exact by dynamic programming, up to a number of states."""

import torch
from torch import Tensor

from factorank.codes import code
from factorank.distributions.conditioning.approximate import AMPConditioned
from factorank.distributions.conditioning.conditioned import Conditioned
from factorank.distributions.conditioning.programmes import InsertionProgramme, LehmerProgramme
from factorank.distributions.conditioning.rules import Effort, conditioning_rule
from factorank.distributions.factorized import FactorizedDistribution
from factorank.permutations import inverse


class ConditionedFactorized(Conditioned):
    """A Mallows, generalized Mallows or RIM law given the order of some items; exact.

    The dynamic programme is run once for each row of the batch.
    """

    _batched = (*Conditioned._batched, "_rows")
    law: FactorizedDistribution

    def __init__(self, law: FactorizedDistribution, observed: Tensor) -> None:
        self._code = "insertion" if "insertion" in law.code_names else "lehmer"
        self.law, self.observed = law, observed
        tables = self._tables()
        self._programmes = [
            programme.run(table)
            for programme, table in zip(_programmes(law, observed, best=False), tables, strict=True)
        ]
        self._rows = torch.arange(len(tables), device=law.device).view(law.batch_shape)
        evidence = [programme.log_evidence for programme in self._programmes]
        log_evidence = torch.stack(evidence) if evidence else tables.new_zeros(0)
        super().__init__(law, observed, log_evidence.to(tables.dtype).view(law.batch_shape))

    def _tables(self) -> Tensor:
        """The digits' log-probabilities of each row of the batch, ``(rows, n, n)``."""
        n, batch = self.law.n, self.law.batch_shape
        return self.law._digits(self._code).expand(*batch, n, n).reshape(batch.numel(), n, n)

    @property
    def mode(self) -> Tensor:
        """A most likely order that agrees with the observation; exact, by the same dynamic programme."""
        programmes = _programmes(self.law, self.observed, best=True)
        digits = torch.empty((len(programmes), self.n), dtype=torch.int64, device=self.device)
        for row, (programme, table) in enumerate(zip(programmes, self._tables().detach(), strict=True)):
            digits[row] = programme.run(table).sample(1, None)
        return self._order(digits.view(*self.batch_shape, self.n))

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
    programmes = _programmes(law, observed, best=False)
    return max((programme.states(limit) for programme in programmes), default=0)


def _programmes(
    law: FactorizedDistribution, observed: Tensor, best: bool
) -> list[InsertionProgramme | LehmerProgramme]:
    """For each row of the batch, whose observed items are named by their place in the reference."""
    kind = InsertionProgramme if "insertion" in law.code_names else LehmerProgramme
    chains = inverse(law._reference, check=False)[..., observed].reshape(-1, len(observed))
    return [kind(chain, law.n, best) for chain in chains.tolist()]


@conditioning_rule(FactorizedDistribution)
def _condition_factorized(law: FactorizedDistribution, observed: Tensor, effort: Effort) -> Conditioned:
    feasible = states_needed(law, observed, effort.max_states) <= effort.max_states
    return ConditionedFactorized(law, observed) if feasible else AMPConditioned(law, observed)
