"""Any law given the order of some items, by rejection: the last resort, where nothing exact is feasible."""

import math

import torch
from torch import Tensor

from factorank.distributions.base import PermutationDistribution
from factorank.distributions.conditioning.conditioned import Conditioned, ConditionedByEnumeration
from factorank.distributions.conditioning.rules import (
    LEAST_ACCEPTED,
    MAX_DRAWS,
    Effort,
    RareObservation,
    conditioning_rule,
)
from factorank.distributions.drawing import count_places
from factorank.distributions.parameters import permutation
from factorank.errors import DistributionError
from factorank.permutations import is_permutation

ENOUGH_ACCEPTED = 4096
"""The number of draws that agree at which the estimate stops: its relative error is below 1/64 then."""
FIRST_ROUND = 1024
"""The number of draws of the first round; each further round doubles the total."""
_CELLS = 2**24
"""The number of items, over the draws of a round and the batch, that are held at once."""
_PATIENCE = 64
"""Sampling gives up after this many times the expected number of draws."""


class ConditionedByRejection(Conditioned):
    r"""A law given the order of some items, by keeping the draws that agree with it.

    ``sample`` is exact: it draws from the law until enough draws agree. ``log_evidence`` is the logarithm of
    the share of the draws that agree. It is an estimate, with standard error
    ``log_evidence_error``. ``log_prob`` subtracts it, so that ``exact`` is False; gradients are not tracked.
    ``marginals`` and ``mean_ranks`` are means over the ``effective_sample_size`` draws that agreed.

    Draws come in rounds, until 4,096 agree in each row of the batch or there are ``samples``.
    :class:`RareObservation` is raised if fewer than 32 agree in some row. Draws that are no permutations, as
    some laws have, do not agree.

    >>> import factorank as fr
    >>> law = fr.PlackettLuce(torch.zeros(10)).condition([3, 1]).condition([1, 7], samples=100_000)
    >>> law.exact, bool((law.log_evidence - math.log(1 / 3)).abs() < 5 * law.log_evidence_error)
    (False, True)
    """

    exact = False
    _batched = (*Conditioned._batched, "log_evidence_error", "effective_sample_size", "_estimated_marginals")
    log_evidence_error: Tensor
    """The standard error of ``log_evidence``, ``(*batch,)``."""
    effective_sample_size: Tensor
    """The number of draws that agreed, ``(*batch,)``."""

    def __init__(
        self,
        law: PermutationDistribution,
        observed: Tensor,
        *,
        samples: int = MAX_DRAWS,
        generator: torch.Generator | None = None,
    ) -> None:
        self.law, self.observed = law, observed
        draws, accepted, counts = self._estimate(samples, generator)
        share = accepted / draws
        self.effective_sample_size = accepted
        self.log_evidence_error = ((1 - share) / accepted).sqrt()
        self._estimated_marginals = counts / accepted[..., None, None]
        super().__init__(law, observed, share.log())

    def _estimate(self, samples: int, generator: torch.Generator | None) -> tuple[int, Tensor, Tensor]:
        """The number of draws, of those that agree ``(*batch,)``, and of these by item and place."""
        law, n = self.law, self.law.n
        dtype, device = torch.get_default_dtype(), law.device
        accepted = torch.zeros(law.batch_shape, dtype=dtype, device=device)
        counts = torch.zeros((*law.batch_shape, n, n), dtype=dtype, device=device)
        draws = 0
        while draws < samples and (draws == 0 or bool((accepted < ENOUGH_ACCEPTED).any())):
            step = min(max(draws, FIRST_ROUND), samples - draws, self._most_draws())
            orders = law.sample((step,), generator=generator)
            agreed = self._agreed(orders)
            accepted += agreed.sum(0)
            # Draws that do not agree weigh nothing; they may be no permutations, which have no inverse.
            orders = torch.where(agreed[..., None], orders, torch.arange(n, device=device))
            counts += count_places(orders, agreed.to(dtype))
            draws += step
        rare = accepted < LEAST_ACCEPTED
        if bool(rare.any()):
            row = [int(i) for i in rare.nonzero()[0]]
            where = f" in row {row}" if row else ""
            raise RareObservation(
                f"the observed order {self.observed.tolist()} agrees with {int(accepted[tuple(row)])} of"
                f" {draws:,} draws of {type(law).__name__}{where}; conditioning by rejection takes at least"
                f" {LEAST_ACCEPTED}, and {{parameter}} sets the largest number of draws",
                parameter="samples",
            )
        return draws, accepted, counts

    def _most_draws(self) -> int:
        """The largest number of draws that are held at once."""
        return max(_CELLS // max(self.law.batch_shape.numel() * self.law.n, 1), 1)

    def _agreed(self, orders: Tensor) -> Tensor:
        agreed = self.agrees(orders)
        return agreed if self.law.support is permutation else agreed & is_permutation(orders)

    @torch.no_grad()
    def _log_prob(self, order: Tensor) -> Tensor:
        return super()._log_prob(order)

    def _sample(self, shape: torch.Size, generator: torch.Generator | None) -> Tensor:
        count, rows = shape.numel(), self.batch_shape.numel()
        result = torch.empty((count, rows, self.n), dtype=torch.int64, device=self.device)
        filled = torch.zeros(rows, dtype=torch.int64, device=self.device)
        row_numbers = torch.arange(rows, device=self.device)
        least_share = float(self.log_evidence.min().exp()) if rows else 1.0
        left = math.ceil(_PATIENCE * (count / least_share + FIRST_ROUND))
        while rows and (missing := count - int(filled.min())) > 0:
            if left <= 0:
                raise DistributionError(
                    f"{missing} of {count} draws that agree with {self.observed.tolist()} are missing after"
                    f" {_PATIENCE} times the expected number of draws"
                )
            step = min(math.ceil(1.1 * missing / least_share) + 16, self._most_draws(), left)
            left -= step
            orders = self.law.sample((step,), generator=generator)
            agreed = self._agreed(orders).view(step, rows)
            spot = filled + agreed.cumsum(0) - 1
            kept = agreed & (spot < count)
            result[spot[kept], row_numbers.expand(step, rows)[kept]] = orders.view(step, rows, self.n)[kept]
            filled = (filled + agreed.sum(0)).clamp(max=count)
        return result.view(*shape, *self.batch_shape, self.n)

    @property
    def mode(self) -> Tensor:
        """A likely order: the most likely of 1,024 draws.

        Where the law offers no ``log_prob`` the items stand by mean rank, the observed ones in their order.
        """
        if not self.law.exact:
            return self._chained(self.mean_ranks().argsort(dim=-1, stable=True))
        orders = self.sample((1024,), generator=torch.Generator(self.device).manual_seed(0))
        best = self.log_prob(orders).argmax(0)
        return orders.gather(0, best[None, ..., None].expand(1, *orders.shape[1:])).squeeze(0)

    def _marginals(self) -> Tensor:
        return self._estimated_marginals


@conditioning_rule(PermutationDistribution)
def _condition_any(
    law: PermutationDistribution, observed: Tensor, effort: Effort
) -> ConditionedByEnumeration | ConditionedByRejection:
    if effort.lists(law):
        return ConditionedByEnumeration(law, observed)
    generator = effort.seeded(law.device)
    return ConditionedByRejection(law, observed, samples=effort.samples, generator=generator)
