"""Plackett-Luce given the order of some items."""

import math

import torch
from torch import Tensor

from factorank.distributions.conditioning.conditioned import Conditioned
from factorank.distributions.conditioning.rules import conditioning_rule
from factorank.distributions.drawing import map_uniform
from factorank.distributions.plackett_luce import (
    PlackettLuce,
    chain_log_prob,
    log_exponential_,
    order_of_clocks,
)


class ConditionedPlackettLuce(Conditioned):
    r"""Plackett-Luce given the order of some items; exact at any size.

    Give every item an exponential clock of rate :math:`e^{s_i}`: the order in which they ring is
    Plackett-Luce. Given that the clocks of the observed items ring in the observed order, the gaps between
    them are independent exponentials, the k-th with the summed rate of the observed items from k on, and the
    other clocks are not affected. The probability of the observation is Plackett-Luce on the observed items.
    """

    law: PlackettLuce

    def __init__(self, law: PlackettLuce, observed: Tensor) -> None:
        super().__init__(law, observed, chain_log_prob(law.logits[..., observed]))

    def _sample(self, shape: torch.Size, generator: torch.Generator | None) -> Tensor:
        logits = self.law.logits.double()
        rates = logits[..., self.observed].flip(-1).logcumsumexp(-1).flip(-1)

        def ring(uniform: Tensor, out: Tensor) -> None:
            log_times = log_exponential_(uniform)
            chain = (log_times[..., self.observed] - rates).logcumsumexp(-1)
            log_times -= logits
            log_times[..., self.observed] = chain
            # Gaps below the resolution of float64 leave ties, which the sort may invert.
            out.copy_(self._chained(order_of_clocks(log_times)))

        return map_uniform(ring, (*shape, *logits.shape), logits.ndim, self.device, generator)

    @property
    def mode(self) -> Tensor:
        """A most likely order that agrees with the observation; exact at any size.

        The other items stand by falling score, since swapping two of them into that order lowers the weight
        that is left at every step. They are merged with the observed ones by dynamic programming over
        (observed placed, others placed), which minimises the summed logarithms of the weight that is left.
        """
        with torch.no_grad():
            logits = self.law.logits.double()
            others = self._free.nonzero().squeeze(-1).expand(*self.batch_shape, -1)
            scores = logits.gather(-1, others)
            others = others.gather(-1, scores.argsort(dim=-1, descending=True, stable=True))
            return _merge(self.observed.expand(*self.batch_shape, -1), others, logits)

    def _mean_ranks(self) -> Tensor:
        """Exact for every n: sums over pairs of items the probability that one is before the other."""
        logits, chain, free = self.law.logits, self.observed, self._free
        others = logits[..., free]
        # Item j is after the k-th observed one if it is after the k+1 gaps: each passes it by independently.
        rates = logits[..., chain].flip(-1).logcumsumexp(-1).flip(-1)
        passed = torch.nn.functional.logsigmoid(rates[..., None] - others[..., None, :]).cumsum(-2).exp()
        before_chain = torch.sigmoid(others[..., None, :] - others[..., :, None]).sum(-1) - 0.5
        ranks = torch.zeros_like(logits)
        ranks[..., free] = before_chain + passed.sum(-2)
        ranks[..., chain] = (1 - passed).sum(-1) + torch.arange(len(chain), device=self.device)
        return ranks


def _merge(first: Tensor, second: Tensor, logits: Tensor) -> Tensor:
    """Merge two lists of items ``(*batch, r)``, ``(*batch, m)`` into the most likely Plackett-Luce order."""
    r, m = first.shape[-1], second.shape[-1]
    pad = torch.nn.functional.pad
    left = [
        pad(logits.gather(-1, items).flip(-1).logcumsumexp(-1).flip(-1), (0, 1), value=-math.inf)
        for items in (first, second)
    ]
    # cost[a, b]: the least sum of log(weight left) from the state with a and b items placed on; the states
    # with a + b = t are those with t items placed, and are handled together.
    here = torch.logaddexp(left[0][..., :, None], left[1][..., None, :])  # (*batch, r + 1, m + 1)
    cost = torch.full(here.shape, math.inf, dtype=here.dtype, device=here.device)
    cost[..., r, m] = 0.0
    from_first = torch.zeros(here.shape, dtype=torch.bool, device=here.device)
    for t in reversed(range(r + m)):
        a = torch.arange(max(0, t - m), min(r, t) + 1, device=here.device)
        b = t - a
        cost_first = torch.where(a < r, cost[..., (a + 1).clamp(max=r), b], math.inf)
        cost_second = torch.where(b < m, cost[..., a, (b + 1).clamp(max=m)], math.inf)
        from_first[..., a, b] = cost_first <= cost_second
        cost[..., a, b] = here[..., a, b] + torch.minimum(cost_first, cost_second)
    a = torch.zeros(first.shape[:-1], dtype=torch.int64, device=here.device)
    order = []
    for t in range(r + m):
        b = t - a
        chosen = from_first.flatten(-2).gather(-1, (a * (m + 1) + b)[..., None]).squeeze(-1)
        next_first = first.gather(-1, a.clamp(max=r - 1)[..., None]).squeeze(-1)
        next_second = second.gather(-1, b.clamp(max=m - 1)[..., None]).squeeze(-1)
        order.append(torch.where(chosen, next_first, next_second))
        a = a + chosen
    return torch.stack(order, -1)


conditioning_rule(PlackettLuce)(lambda law, observed, effort: ConditionedPlackettLuce(law, observed))
