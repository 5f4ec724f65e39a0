"""The law of a whole order given the relative order of some of its items."""

import math
from collections.abc import Sequence
from typing import Any, Self

import torch
from torch import Tensor
from torch.types import _size

from factorank.distributions.base import LARGEST_ENUMERATED, PermutationDistribution
from factorank.distributions.factorized import FactorizedDistribution
from factorank.distributions.grim import GRIM, draw
from factorank.distributions.plackett_luce import (
    PlackettLuce,
    chain_log_prob,
    log_exponential_,
    order_of_clocks,
)
from factorank.distributions.tensors import map_uniform
from factorank.distributions.uniform import Uniform
from factorank.errors import DistributionError
from factorank.permutations import inverse

MAX_STATES = 500_000
"""The number of states, over all steps, up to which the dynamic programme is run unless told otherwise."""


def condition(
    law: PermutationDistribution, observed: Sequence[int] | Tensor, *, max_states: int | None = None
) -> PermutationDistribution:
    """``law`` given that the items ``observed`` stand in this order, best first, wherever they stand.

    Uniform and Plackett-Luce: exact at any size. Mallows, generalized Mallows and RIM: exact, by dynamic
    programming over the places of the observed items, up to ``max_states`` states. GRIM, whose state is the
    whole history, and laws of your own: exact by enumeration up to n = 8. Beyond, where the law inserts items
    one by one, an :class:`AMPConditioned`, an approximation that says so.
    """
    chain = check_observed(observed, law.n).to(law.device)
    limit = MAX_STATES if max_states is None else max_states
    if len(chain) < 2:
        return law
    if len(chain) == law.n:
        return ConditionedOnAll(law, chain)
    if isinstance(law, Uniform):
        return ConditionedUniform(law, chain)
    if isinstance(law, PlackettLuce):
        return ConditionedPlackettLuce(law, chain)
    if isinstance(law, FactorizedDistribution):
        from factorank.distributions.conditioning.chain import ConditionedFactorized, states_needed

        if states_needed(law, chain, limit) <= limit:
            return ConditionedFactorized(law, chain)
    elif law.n <= LARGEST_ENUMERATED and math.factorial(law.n) <= limit:
        return ConditionedByEnumeration(law, chain)
    if isinstance(law, (FactorizedDistribution, GRIM)):
        from factorank.distributions.conditioning.approximate import AMPConditioned

        return AMPConditioned(law, chain)
    raise DistributionError(
        f"{type(law).__name__} is conditioned by enumeration, which is offered for n <= {LARGEST_ENUMERATED},"
        f" not n = {law.n}"
    )


def check_observed(observed: Sequence[int] | Tensor, n: int) -> Tensor:
    """The observed items as int64 ``(r,)``, or an error that names the one at fault."""
    items = observed if isinstance(observed, Tensor) else torch.as_tensor(observed)
    if items.ndim != 1 or (items.numel() and (items.is_floating_point() or items.dtype == torch.bool)):
        raise DistributionError(
            f"observed lists items, best first, as integers (r,),"
            f" not {items.dtype} of shape {tuple(items.shape)}"
        )
    first: dict[int, int] = {}
    for place, item in enumerate(items.tolist()):
        if not 0 <= item < n:
            raise DistributionError(
                f"observed holds items 0..{n - 1}, but at position {place} there is {item}"
            )
        if item in first:
            raise DistributionError(
                f"observed holds item {item} twice, at positions {first[item]} and {place}"
            )
        first[item] = place
    return items.to(torch.int64)


class ImpossibleObservation(DistributionError):
    """The law gives the observed order probability zero."""


class Conditioned(PermutationDistribution):
    r"""A law given the relative order of some items.

    :math:`P(X \mid observed) = P(X) / P(observed)` for the orders that agree with the observation, zero for
    others.
    """

    law: PermutationDistribution
    """The law before the observation."""
    observed: Tensor
    """The observed items, best first, ``(r,)``."""

    def __init__(self, law: PermutationDistribution, observed: Tensor, log_evidence: Tensor | None) -> None:
        self.law, self.observed = law, observed
        self._log_evidence = None if log_evidence is None else log_evidence.expand(law.batch_shape)
        super().__init__(law.batch_shape, law.n, law._validate_args)
        if log_evidence is not None and (impossible := ~(self.log_evidence > -math.inf)).any():
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
                "the probability of the observation is not known exactly;"
                " importance(proposals).log_evidence estimates its logarithm"
            )
        return self._log_evidence

    def agrees(self, order: Tensor) -> Tensor:
        """Whether each order has the observed items in the observed order: bool ``(*sample, *batch)``."""
        places = inverse(order, check=False)[..., self.observed]
        return (places[..., 1:] > places[..., :-1]).all(-1)

    def expand(self, batch_shape: _size, _instance: Self | None = None) -> Self:
        new = super().expand(batch_shape, _instance)
        new.law = self.law.expand(batch_shape)
        if self._log_evidence is not None:
            new._log_evidence = self._log_evidence.expand(batch_shape)
        return new

    @property
    def device(self) -> torch.device:
        return self.law.device

    def _parameters(self) -> dict[str, Any]:
        return {"law": self.law, "observed": self.observed}

    def _log_prob(self, order: Tensor) -> Tensor:
        return torch.where(self.agrees(order), self.law._log_prob(order) - self.log_evidence, -math.inf)

    def _listed(self, what: str) -> Tensor:
        orders = super()._listed(what)
        return orders[self.agrees(orders)]

    def _chained(self, order: Tensor) -> Tensor:
        """The order with the observed items, at the places they hold, put into the observed order."""
        held = torch.zeros(self.n, dtype=torch.bool, device=order.device)
        held[self.observed] = True
        here = held[order]
        return torch.where(here, self.observed[(here.cumsum(-1) - 1).clamp(min=0)], order)


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
            # Gaps below the resolution of float64 leave ties, which the sort may turn round.
            out.copy_(self._chained(order_of_clocks(log_times)))

        return map_uniform(ring, (*shape, *logits.shape), logits.ndim, self.device, generator)

    @property
    def mode(self) -> Tensor:
        """A most likely order that agrees with the observation; exact at any size.

        The others stand by falling score, since swapping two of them into that order makes what is left
        lighter at every step. How they are merged with the observed ones is found by dynamic programming over
        (observed placed, others placed), which minimises the summed logarithms of what is left.
        """
        with torch.no_grad():
            logits = self.law.logits.double()
            free = torch.ones(self.n, dtype=torch.bool, device=self.device)
            free[self.observed] = False
            others = free.nonzero().squeeze(-1).expand(*self.batch_shape, -1)
            scores = logits.gather(-1, others)
            others = others.gather(-1, scores.argsort(dim=-1, descending=True, stable=True))
            return _merge(self.observed.expand(*self.batch_shape, -1), others, logits)

    def _mean_ranks(self) -> Tensor:
        """Exact for every n: sums over pairs of items the probability that one is before the other."""
        logits, chain = self.law.logits, self.observed
        free = torch.ones(self.n, dtype=torch.bool, device=self.device)
        free[chain] = False
        others = logits[..., free]
        # Item j is after the k-th observed one if it is after the k+1 gaps: each passes it by independently.
        rates = logits[..., chain].flip(-1).logcumsumexp(-1).flip(-1)
        passed = torch.nn.functional.logsigmoid(rates[..., None] - others[..., None, :]).cumsum(-2).exp()
        before_chain = torch.sigmoid(others[..., None, :] - others[..., :, None]).sum(-1) - 0.5
        ranks = torch.zeros_like(logits)
        ranks[..., free] = before_chain + passed.sum(-2)
        ranks[..., chain] = (1 - passed).sum(-1) + torch.arange(len(chain), device=self.device)
        return ranks


def _merge(one: Tensor, other: Tensor, logits: Tensor) -> Tensor:
    """Merge two lists of items ``(*batch, r)``, ``(*batch, m)`` into the most likely Plackett-Luce order."""
    r, m = one.shape[-1], other.shape[-1]
    pad = torch.nn.functional.pad
    left = [
        pad(logits.gather(-1, items).flip(-1).logcumsumexp(-1).flip(-1), (0, 1), value=-math.inf)
        for items in (one, other)
    ]
    # cost[a, b]: the least sum of log(weight left) from the state with a and b items placed on; the states
    # with a + b = t are those with t items placed, and are handled together.
    here = torch.logaddexp(left[0][..., :, None], left[1][..., None, :])  # (*batch, r + 1, m + 1)
    cost = torch.full(here.shape, math.inf, dtype=here.dtype, device=here.device)
    cost[..., r, m] = 0.0
    take = torch.zeros(here.shape, dtype=torch.bool, device=here.device)
    for t in reversed(range(r + m)):
        a = torch.arange(max(0, t - m), min(r, t) + 1, device=here.device)
        b = t - a
        first = torch.where(a < r, cost[..., (a + 1).clamp(max=r), b], math.inf)
        second = torch.where(b < m, cost[..., a, (b + 1).clamp(max=m)], math.inf)
        take[..., a, b] = first <= second
        cost[..., a, b] = here[..., a, b] + torch.minimum(first, second)
    a = torch.zeros(one.shape[:-1], dtype=torch.int64, device=here.device)
    order = []
    for t in range(r + m):
        b = t - a
        chosen = take.flatten(-2).gather(-1, (a * (m + 1) + b)[..., None]).squeeze(-1)
        from_one = one.gather(-1, a.clamp(max=r - 1)[..., None]).squeeze(-1)
        from_other = other.gather(-1, b.clamp(max=m - 1)[..., None]).squeeze(-1)
        order.append(torch.where(chosen, from_one, from_other))
        a = a + chosen
    return torch.stack(order, -1)


class ConditionedOnAll(Conditioned):
    """All items were observed: one order has probability one."""

    def __init__(self, law: PermutationDistribution, observed: Tensor) -> None:
        super().__init__(law, observed, law.log_prob(observed))

    def _sample(self, shape: torch.Size, generator: torch.Generator | None) -> Tensor:
        return self.observed.expand(*shape, *self.batch_shape, self.n)

    @property
    def mode(self) -> Tensor:
        return self.observed.expand(*self.batch_shape, self.n)

    def _entropy(self) -> Tensor:
        return torch.zeros_like(self.log_evidence)

    def _marginals(self) -> Tensor:
        stands = torch.nn.functional.one_hot(inverse(self.observed, check=False), self.n)
        return stands.to(self.log_evidence.dtype).expand(*self.batch_shape, self.n, self.n)


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
        return self._orders[draw(log_probs.expand(*shape, *self.batch_shape, -1), generator)]

    def expand(self, batch_shape: _size, _instance: Self | None = None) -> Self:
        new = super().expand(batch_shape, _instance)
        new._log_probs = self._log_probs.movedim(0, -1).expand(*batch_shape, -1).movedim(-1, 0)
        return new
