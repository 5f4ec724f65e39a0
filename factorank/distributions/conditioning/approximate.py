"""Approximate conditioning where the exact table would be too large: AMP proposals, weighted."""

import math
from typing import NamedTuple

import torch
from torch import Tensor

from factorank.codes import code
from factorank.distributions.conditioning.amp import effective_sample_size
from factorank.distributions.conditioning.conditioned import Conditioned, ConditionedByEnumeration
from factorank.distributions.conditioning.rules import Effort, conditioning_rule
from factorank.distributions.drawing import draw_index
from factorank.distributions.factorized import FactorizedDistribution
from factorank.distributions.grim import GRIM
from factorank.errors import DistributionError
from factorank.permutations import inverse

OVERSAMPLING = 8
"""The number of proposals for each draw."""
LEAST_PROPOSALS = 1024
"""The least number of proposals, however few the draws."""


class Importance(NamedTuple):
    """Weighted draws: ``log_weights`` are the logarithms of P(order) / proposal(order)."""

    orders: Tensor
    """``(proposals, *batch, n)``; all agree with the observation."""
    log_weights: Tensor
    """``(proposals, *batch)``"""

    @property
    def log_evidence(self) -> Tensor:
        """The logarithm of the mean weight, ``(*batch,)``; the mean is unbiased for P(observed)."""
        return self.log_weights.logsumexp(0) - math.log(len(self.log_weights))

    @property
    def effective_sample_size(self) -> Tensor:
        """How many equally weighted draws these are worth, ``(*batch,)``; at most the number of proposals."""
        return effective_sample_size(self.log_weights)

    @property
    def log_evidence_error(self) -> Tensor:
        """The standard error of ``log_evidence``, ``(*batch,)``."""
        return (1 / self.effective_sample_size - 1 / len(self.log_weights)).clamp(min=0).sqrt()


class AMPConditioned(Conditioned):
    r"""An approximation of a law given the order of some items; ``exact`` is False.

    The AMP proposal draws the digits of the code one by one from the law, each time restricted to the values
    that agree with the observation. The product of the probabilities of the allowed values is the importance
    weight. ``sample`` makes :data:`OVERSAMPLING` proposals for each draw (:data:`LEAST_PROPOSALS` at least)
    and resamples them by weight, with repetition. The draws approach the law as proposals are added;
    ``importance(count).effective_sample_size`` measures how far they can be trusted. ``log_prob`` is refused;
    ``log_prob_estimate`` gives an estimate.

    See :class:`factorank.distributions.AMP`.

    >>> import factorank as fr
    >>> law = fr.Mallows(torch.arange(60), phi=0.9).condition([0, 50, 10, 40, 20, 30], max_states=1000)
    >>> law.exact
    False
    >>> law.sample((3,)).shape
    torch.Size([3, 60])
    """

    exact = False
    law: FactorizedDistribution | GRIM

    def __init__(self, law: FactorizedDistribution | GRIM, observed: Tensor) -> None:
        super().__init__(law, observed, None)
        self._code = "insertion" if isinstance(law, GRIM) or "insertion" in law.code_names else "lehmer"

    def importance(self, proposals: int, *, generator: torch.Generator | None = None) -> Importance:
        """That many proposals for each row of the batch; gradients are not tracked."""
        if proposals < 1:
            raise DistributionError(f"importance takes at least 1 proposal, not {proposals}")
        with torch.no_grad():
            propose = self._propose_insertions if self._code == "insertion" else self._propose_places
            digits, log_weights = propose((proposals, *self.batch_shape), generator)
            relative = code(self._code).decode(digits, check=False)
            return Importance(self._reference.expand(relative.shape).gather(-1, relative), log_weights)

    def log_prob_estimate(
        self, order: Tensor, *, proposals: int = 10_000, generator: torch.Generator | None = None
    ) -> Tensor:
        """``log_prob`` with the probability of the observation estimated by that many proposals."""
        if self._validate_args:
            self._validate_sample(order)
        log_evidence = self.importance(proposals, generator=generator).log_evidence
        order = order.to(torch.int64)
        return torch.where(self.agrees(order), self.law._log_prob(order) - log_evidence, -math.inf)

    def estimate_log_evidence(self, generator: torch.Generator) -> Tensor:
        return self.importance(10_000, generator=generator).log_evidence

    def _log_prob(self, order: Tensor) -> Tensor:
        raise DistributionError(
            "the log-probability of this approximation is not known; log_prob_estimate estimates it, and a"
            " larger max_states= may make the conditioning exact"
        )

    def _sample(self, shape: torch.Size, generator: torch.Generator | None) -> Tensor:
        count = shape.numel()
        drawn = self.importance(max(OVERSAMPLING * count, LEAST_PROPOSALS), generator=generator)
        if not torch._is_all_true(drawn.log_weights.amax(0) > -math.inf):
            raise DistributionError(
                f"all {len(drawn.log_weights)} proposals that agree with the observed order"
                f" {self.observed.tolist()} have probability zero"
            )
        cumulative = drawn.log_weights.movedim(0, -1).double().softmax(-1).cumsum(-1).contiguous()
        # One uniform offset for evenly spaced quantiles: each proposal is drawn in proportion to its weight,
        # with less noise than by independent draws; the shuffle makes the draws exchangeable.
        offset = torch.rand(
            (*self.batch_shape, 1), dtype=torch.float64, device=self.device, generator=generator
        )
        steps = torch.rand((*self.batch_shape, count), device=self.device, generator=generator).argsort(-1)
        pick = torch.searchsorted(cumulative, (steps + offset) / max(count, 1) * cumulative[..., -1:])
        pick = pick.clamp(max=cumulative.shape[-1] - 1).movedim(-1, 0)[..., None]
        return drawn.orders.gather(0, pick.expand(*pick.shape[:-1], self.n)).view(
            *shape, *self.batch_shape, self.n
        )

    @property
    def _reference(self) -> Tensor:
        return self.law.reference if isinstance(self.law, GRIM) else self.law._reference

    def _next(self, digits: Tensor, i: int, size: int) -> Tensor:
        """Log-probabilities of digit i given those before, ``(*rows, size)``."""
        if isinstance(self.law, GRIM):
            return self.law.next_slot(digits[..., :i])
        return self.law._digits(self._code)[..., i, :size].expand(*digits.shape[:-1], size)

    def _begin(self, rows: tuple[int, ...]) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """The observed items by their place in the reference; digits and weights to fill; positions."""
        chain = inverse(self._reference, check=False)[..., self.observed]
        digits = torch.zeros((*rows, self.n), dtype=torch.int64, device=self.device)
        log_weights = torch.zeros(rows, dtype=torch.float64, device=self.device)
        return chain, digits, log_weights, torch.arange(len(self.observed), device=self.device)

    def _propose_insertions(
        self, rows: tuple[int, ...], generator: torch.Generator | None
    ) -> tuple[Tensor, Tensor]:
        chain, digits, log_weights, position = self._begin(rows)
        places = torch.full((*rows, len(position)), -1, device=self.device)
        for i in range(self.n):
            slots = torch.arange(i + 1, device=self.device)
            here = chain == i
            inserted = chain < i
            observed = here.any(-1, keepdim=True)
            c = here.to(torch.int64).argmax(-1, keepdim=True)
            low = torch.where(inserted & (position < c) & observed, places, -1).amax(-1, keepdim=True)
            high = torch.where(inserted & (position > c) & observed, places, i).amin(-1, keepdim=True)
            slot, log_mass = _restricted(
                self._next(digits, i, i + 1), (slots > low) & (slots <= high), generator
            )
            digits[..., i] = slot
            log_weights += log_mass
            places = places + (inserted & (places >= slot[..., None]))
            places = torch.where(here, slot[..., None], places)
        return digits, log_weights

    def _propose_places(
        self, rows: tuple[int, ...], generator: torch.Generator | None
    ) -> tuple[Tensor, Tensor]:
        chain, digits, log_weights, position = self._begin(rows)
        index = chain.expand(*rows, len(position))  # of each observed item among those left
        placed = torch.zeros((*rows, 1), dtype=torch.int64, device=self.device)
        for i in range(self.n):
            waiting = position > placed
            forbidden = torch.zeros((*rows, self.n + 1), dtype=torch.bool, device=self.device)
            forbidden.scatter_(-1, torch.where(waiting, index, self.n), True)
            size = self.n - i
            digit, log_mass = _restricted(self._next(digits, i, size), ~forbidden[..., :size], generator)
            digits[..., i] = digit
            log_weights += log_mass
            column = digit[..., None]
            placed = placed + ((index == column) & (position == placed)).any(-1, keepdim=True)
            index = index - ((index > column) & (position >= placed)).to(torch.int64)
        return digits, log_weights


def _restricted(
    log_probs: Tensor, allowed: Tensor, generator: torch.Generator | None
) -> tuple[Tensor, Tensor]:
    """Draw an allowed index ``(*rows,)`` by the probabilities; also the log-probability of all allowed."""
    kept = torch.where(allowed, log_probs.double(), -math.inf)
    log_mass = kept.logsumexp(-1)
    # Where all that is allowed has probability zero the weight is zero; any allowed index will do.
    kept = torch.where((log_mass == -math.inf)[..., None] & allowed, 0.0, kept)
    return draw_index(kept.log_softmax(-1), generator), log_mass


@conditioning_rule(GRIM)
def _condition_grim(law: GRIM, observed: Tensor, effort: Effort) -> Conditioned:
    return (ConditionedByEnumeration if effort.lists(law) else AMPConditioned)(law, observed)
