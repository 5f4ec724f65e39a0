"""The uncertainty of a fit: refits to voters drawn with replacement."""

import warnings
from dataclasses import replace

import torch

from factorank.data.rankings import Rankings
from factorank.distributions import RIM, FitWarning, Mixture, PermutationDistribution
from factorank.distributions.fitting.em import rounds
from factorank.errors import FactorankError
from factorank.votes.families import FitSettings, family_of, fit_family

FEWEST_VOTERS = 5
"""Draws from fewer voters than these are too much alike: the intervals would seem narrow."""
REFITS = 100
STEPS = 100
"""Iterations of EM, at most, in the refit of a mixture."""


def bootstrap(
    law: PermutationDistribution,
    rankings: Rankings,
    settings: FitSettings | None = None,
    *,
    count: int | None = None,
    generator: torch.Generator | None = None,
) -> list[PermutationDistribution]:
    """``count`` laws of the family of ``law``, each fitted to as many voters drawn with replacement.

    ``settings`` are those of the fit of ``law``. A RIM keeps its reference. A mixture begins EM at ``law``,
    so that its components keep their numbers; a mixture of Mallows laws needs complete rankings. There are
    100 refits unless ``count`` says otherwise, none for Mallows laws of rankings that leave items out, where
    each refit is slow, and none if there are fewer than 5 voters.

    Efron, "Bootstrap methods: another look at the jackknife", 1979.

    >>> votes = Rankings(["a", "b", "c"], torch.tensor([[0, 1, 2], [1, 0, 2]]), torch.tensor([60, 40]))
    >>> law = fit_family("mallows", votes)
    >>> refits = bootstrap(law, votes, count=20, generator=torch.Generator().manual_seed(0))
    >>> min(refit.phi for refit in refits) < law.phi < max(refit.phi for refit in refits)
    tensor(True)
    """
    settings, family = settings or FitSettings(), family_of(law)
    if isinstance(law, Mixture):
        settings = replace(settings, family=family_of(law.components[0]))
    slow = not rankings.complete and (settings.family if family == "mixture" else family) != "plackett-luce"
    if count is None:
        count = 0 if slow else REFITS
    if rankings.voters < FEWEST_VOTERS:
        count = 0
    if slow and family == "mixture" and count:
        raise FactorankError(
            "a mixture of Mallows laws fitted to rankings that leave items out has no bootstrap intervals"
        )
    refits: list[PermutationDistribution] = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FitWarning)  # the fit of the law has warned already
        for _ in rounds(count, settings.progress, "refits"):
            drawn = rankings.resample(generator)
            if isinstance(law, Mixture):
                refits.append(_refit_mixture(law, drawn, settings))
            elif isinstance(law, RIM):
                refits.append(
                    RIM.fit(drawn.orders(), law.reference, drawn.weights, smoothing=settings.smoothing)
                )
            else:
                refits.append(fit_family(family, drawn, settings, generator))
    return refits


def _refit_mixture(law: Mixture, rankings: Rankings, settings: FitSettings) -> Mixture:
    return Mixture.fit(
        rankings.to_padded_orders(),
        rankings.weights,
        components=len(law.components),
        family=settings.family,
        unranked=None if rankings.complete else settings.unranked,
        max_iterations=STEPS,
        tolerance=1e-5,
        start=law,
        **settings.component_options,
    )
