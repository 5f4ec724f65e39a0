"""Mixtures given the order of some items: the components conditioned and reweighted."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from factorank.distributions.base import PermutationDistribution
from factorank.distributions.conditioning.conditioned import agrees
from factorank.distributions.conditioning.rejection import ConditionedByRejection
from factorank.distributions.conditioning.rules import (
    Effort,
    ImpossibleObservation,
    RareObservation,
    condition,
    conditioning_rule,
)
from factorank.distributions.mixture import Mixture


class ConditionedMixture(Mixture):
    r"""A mixture given the relative order of some items: its components, conditioned and reweighted.

    The weight of a component is multiplied by the probability it gives the observation:
    :math:`w_k P_k(observed)`, normalised. Components that exclude the observation drop out. Where the
    probability under a component can only be estimated, the mixture is not ``exact``.

    >>> import factorank as fr
    >>> law = fr.Mixture([0.5, 0.5], [fr.Mallows([0, 1, 2], 0.0), fr.Uniform(3)]).condition([1, 0])
    >>> law.weights, law.exact
    (tensor([1.]), True)
    """

    observed: Tensor
    """The observed items, best first, ``(r,)``."""
    log_evidence: Tensor
    """The log-probability of the observed order under the mixture; an estimate unless ``exact``."""

    def __init__(
        self, log_weights: Tensor, components: Sequence[PermutationDistribution], observed: Tensor
    ) -> None:
        self.observed = observed
        self.log_evidence = log_weights.logsumexp(0)
        super().__init__(log_weights.softmax(0), components)
        self.exact = all(law.exact for law in components)

    def estimate_log_evidence(self, generator: torch.Generator) -> Tensor:
        """As of :class:`Conditioned`."""
        return self.log_evidence

    def _listed(self, what: str) -> Tensor:
        orders = super()._listed(what)
        return orders[agrees(orders, self.observed)]


@conditioning_rule(Mixture)
def _condition_mixture(
    mixture: Mixture, observed: Tensor, effort: Effort
) -> ConditionedMixture | ConditionedByRejection:
    kept, log_weights = [], []
    generator = effort.seeded(mixture.device)
    try:
        for weight, law in zip(mixture.weights, mixture.components, strict=True):
            if weight == 0:
                continue
            try:
                conditioned = condition(law, observed, effort)
            except ImpossibleObservation:
                continue
            log_evidence = _log_evidence(law, conditioned, generator)
            if log_evidence > -math.inf:
                kept.append(conditioned)
                log_weights.append(weight.log() + log_evidence)
    except RareObservation:  # under one component; it may be common under the mixture
        return ConditionedByRejection(mixture, observed, samples=effort.samples, generator=generator)
    if not kept:
        raise ImpossibleObservation(
            f"the observed order {observed.tolist()} has probability zero under every component"
        )
    return ConditionedMixture(torch.stack(log_weights), kept, observed)


def _log_evidence(
    law: PermutationDistribution, conditioned: PermutationDistribution, generator: torch.Generator
) -> Tensor:
    """The log-probability of the observation under a law, from the law given the observation."""
    estimate = getattr(conditioned, "estimate_log_evidence", None)
    if estimate is not None:
        evidence: Tensor = estimate(generator)
        return evidence
    order = conditioned.sample(generator=generator)  # the same for every order that agrees
    return (law.log_prob(order) - conditioned.log_prob(order)).detach()
