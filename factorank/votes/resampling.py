"""The uncertainty of a fit: refits to voters drawn with replacement."""

import warnings
from dataclasses import replace

import torch

from factorank.data.rankings import Rankings
from factorank.distributions import FitWarning, Mixture, PermutationDistribution
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
    quiet = replace(settings, progress=False)
    if isinstance(law, Mixture):
        quiet = replace(quiet, components=len(law.components), family=family_of(law.components[0]))
        quiet = replace(quiet, max_iterations=STEPS, tolerance=1e-5)
    slow = not rankings.complete and (quiet.family if family == "mixture" else family) != "plackett-luce"
    if count is None:
        count = 0 if slow else REFITS
    if rankings.voters < FEWEST_VOTERS:
        count = 0
    if slow and family == "mixture" and count:
        raise FactorankError(
            "a mixture of Mallows laws fitted to rankings that leave items out has no bootstrap intervals"
        )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FitWarning)  # the fit of the law has warned already
        return [
            fit_family(family, rankings.resample(generator), quiet, generator, start=law)
            for _ in rounds(count, settings.progress, "refits")
        ]
