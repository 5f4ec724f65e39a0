"""Laws that pick one item after the other, each by which items are picked already and which was the last.

Such a law is a Markov chain on pairs (set of picked items, last of them). Up to :data:`LARGEST_LISTED` items
its table is small enough for exact answers by dynamic programming over the sets: marginals, entropy, the most
likely order, and the law given the order of *any* items, which is a chain of the same kind.
"""

import math
from collections.abc import Callable
from typing import ClassVar

import torch
from torch import Tensor
from torch.distributions import constraints

from factorank.distributions import PermutationDistribution
from factorank.distributions.conditioning.rules import Effort, ImpossibleObservation, conditioning_rule
from factorank.distributions.drawing import draw_index

LARGEST_LISTED = 12
"""The largest n for which all sets are listed: 2^n sets, n last items and n next ones."""
Choices = Callable[[Tensor, Tensor], Tensor]
"""``choices(picked, last)``: log-probabilities ``(*batch, n)`` of the next item; ``last`` is n at first."""


class SelectionLaw(PermutationDistribution):
    """The law of orders whose items are picked one after the other.

    Args:
        choices: the law of the next item.
        n: the number of items.
        from_end: the last place is picked first.
        device: of the choices.
    """

    arg_constraints: ClassVar[dict[str, constraints.Constraint]] = {}
    has_rsample = False

    def __init__(self, choices: Choices, n: int, from_end: bool, device: torch.device | str = "cpu") -> None:
        self.choices, self.from_end = choices, from_end
        self.log_evidence = torch.zeros((), dtype=torch.float64, device=device)
        """Of what the law was conditioned on: 0 if on nothing."""
        self._chain: SetChain | None = None
        super().__init__((), n)

    @property
    def chain(self) -> "SetChain":
        """All choices in a table, for n up to :data:`LARGEST_LISTED`."""
        if self._chain is None:
            if self.n > LARGEST_LISTED:
                raise self.error(
                    f"a table of all sets of {self.n} items is too large; up to {LARGEST_LISTED} it is made"
                )
            self._chain = SetChain.of(self.choices, self.n, self.device)
        return self._chain

    @property
    def device(self) -> torch.device:
        return self.log_evidence.device

    @property
    def estimates(self) -> frozenset[str]:
        if self.n <= LARGEST_LISTED:
            return frozenset()
        return frozenset({"entropy", "marginals", "mean_ranks"})

    def estimate_log_evidence(self, generator: torch.Generator) -> Tensor:
        """As of :class:`factorank.distributions.conditioning.conditioned.Conditioned`."""
        return self.log_evidence

    @torch.no_grad()
    def _log_prob(self, order: Tensor) -> Tensor:
        picks = self._turned(order)
        there = torch.nn.functional.one_hot(picks, self.n)
        picked = (there.cumsum(-2) - there).bool()
        last = torch.nn.functional.pad(picks[..., :-1], (1, 0), value=self.n)
        return self._next(picked, last).gather(-1, picks[..., None]).squeeze(-1).sum(-1)

    def _next(self, picked: Tensor, last: Tensor) -> Tensor:
        if self._chain is None and self.n > LARGEST_LISTED:
            return self.choices(picked, last).double()
        return self.chain.choices(picked, last)

    def _sample(self, shape: torch.Size, generator: torch.Generator | None) -> Tensor:
        count = shape.numel()
        picked = torch.zeros((count, self.n), dtype=torch.bool, device=self.device)
        last = torch.full((count,), self.n, device=self.device)
        picks = torch.empty((count, self.n), dtype=torch.int64, device=self.device)
        for place in range(self.n):
            last = draw_index(self._next(picked, last), generator)
            picked = picked.scatter(-1, last[:, None], True)
            picks[:, place] = last
        return self._turned(picks).view(*shape, self.n)

    def _turned(self, order: Tensor) -> Tensor:
        return order.flip(-1) if self.from_end else order

    @property
    def mode(self) -> Tensor:
        """A most likely order; beyond :data:`LARGEST_LISTED` items the likeliest item at each place."""
        if self.n <= LARGEST_LISTED:
            return self._turned(self.chain.best())
        picked = torch.zeros(self.n, dtype=torch.bool, device=self.device)
        picks: list[int] = []
        with torch.no_grad():
            for _ in range(self.n):
                last = torch.tensor(picks[-1] if picks else self.n, device=self.device)
                picks.append(int(self.choices(picked, last).argmax()))
                picked[picks[-1]] = True
        return self._turned(torch.tensor(picks, device=self.device))

    def _entropy(self) -> Tensor:
        return self.chain.entropy()

    def _marginals(self) -> Tensor:
        return self._turned(self.chain.places())


class SetChain:
    """The chain as a table: log-probabilities ``(2^n, n + 1, n)`` by set, last item (n: none) and next item.

    A set is a number whose bit j says whether item j is in it.
    """

    def __init__(self, table: Tensor) -> None:
        self.table, self.n = table, table.shape[-1]
        sets = torch.arange(len(table), device=table.device)
        items = torch.arange(self.n, device=table.device)
        self.holds = (sets[:, None] >> items & 1).bool()
        """Which items are in each set, ``(2^n, n)``."""
        self.larger = sets[:, None] | (1 << items)
        """Each set with another item, ``(2^n, n)``."""
        size = self.holds.sum(-1)
        self.layers = [(size == k).nonzero().squeeze(-1) for k in range(self.n + 1)]
        """The sets of each size."""

    @classmethod
    @torch.no_grad()
    def of(cls, choices: Choices, n: int, device: torch.device) -> "SetChain":
        """The table of a law of the next item."""
        sets, items = torch.arange(2**n, device=device), torch.arange(n, device=device)
        holds = (sets[:, None] >> items & 1).bool()
        rows = []
        for last in range(n + 1):  # one last item at a time keeps the network's memory small
            log_probs = choices(holds[:-1], torch.full((2**n - 1,), last, device=device)).double()
            rows.append(torch.nn.functional.pad(log_probs, (0, 0, 0, 1)))
        return cls(torch.stack(rows, 1))

    def choices(self, picked: Tensor, last: Tensor) -> Tensor:
        """The rows of the table for these sets and last items, ``(*batch, n)``."""
        bits = 1 << torch.arange(self.n, device=picked.device)
        return self.table[(picked * bits).sum(-1), last]

    def conditioned(self, observed: Tensor) -> tuple["SetChain", Tensor]:
        """The chain given that items are picked in this relative order, and the log-probability of that."""
        allowed = ~self.holds
        for before, after in zip(observed.tolist(), observed.tolist()[1:], strict=False):
            allowed[:, after] &= self.holds[:, before]
        table = self.table.masked_fill(~allowed[:, None], -math.inf)
        # What remains agrees with probability exp(rest), by the set that is picked and its last item.
        rest = torch.zeros(table.shape[:2], dtype=table.dtype, device=table.device)
        items = torch.arange(self.n, device=table.device)
        for layer in reversed(self.layers[:-1]):
            onward = rest[self.larger[layer], items]  # (sets, next)
            table[layer] = table[layer] + onward[:, None]
            rest[layer] = table[layer].logsumexp(-1)
            table[layer] = table[layer] - rest[layer].clamp(min=-1e300)[..., None]
        return SetChain(table), rest[0, self.n]

    def reached(self) -> Tensor:
        """The probability that each set is picked with each item as the last: ``(2^n, n + 1)``."""
        here = torch.zeros(self.table.shape[:2], dtype=torch.float64, device=self.table.device)
        here[0, self.n] = 1
        for layer in self.layers[:-1]:
            flow = torch.einsum("sl,slj->sj", here[layer], self.table[layer].exp())
            for item in range(self.n):
                free = ~self.holds[layer, item]
                here[self.larger[layer, item][free], item] += flow[free, item]
        return here

    def places(self) -> Tensor:
        """The probability that an item is picked at each place, ``(item, place)``."""
        here = self.reached()
        flows = [torch.einsum("sl,slj->j", here[s], self.table[s].exp()) for s in self.layers[:-1]]
        return torch.stack(flows, -1)

    def entropy(self) -> Tensor:
        """The entropy of the order that is picked, in nats."""
        terms = torch.where(self.table > -math.inf, self.table.exp() * self.table, 0.0).sum(-1)
        terms[-1] = 0
        return -(self.reached() * terms).sum()

    def best(self) -> Tensor:
        """A most likely order of picking ``(n,)``."""
        value = torch.zeros(self.table.shape[:2], dtype=self.table.dtype, device=self.table.device)
        choice = torch.zeros(self.table.shape[:2], dtype=torch.int64, device=self.table.device)
        items = torch.arange(self.n, device=self.table.device)
        for layer in reversed(self.layers[:-1]):
            onward = self.table[layer] + value[self.larger[layer], items][:, None]
            value[layer], choice[layer] = onward.max(-1)
        at, last, picks = 0, self.n, []
        for _ in range(self.n):
            last = int(choice[at, last])
            at |= 1 << last
            picks.append(last)
        return torch.tensor(picks, device=self.table.device)


@conditioning_rule(SelectionLaw)
def _condition_selection(law: SelectionLaw, observed: Tensor, effort: Effort) -> SelectionLaw | None:
    if law.n > LARGEST_LISTED:
        return None  # by rejection
    chain, log_evidence = law.chain.conditioned(observed.flip(0) if law.from_end else observed)
    if not log_evidence > -math.inf:
        raise ImpossibleObservation(
            f"the observed order {observed.tolist()} has probability zero under the law"
        )
    new = SelectionLaw(chain.choices, law.n, law.from_end, law.device)
    new._chain, new.log_evidence = chain, log_evidence
    return new
