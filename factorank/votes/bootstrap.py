"""How far a fit depends on the voters who happened to vote: refits to voters drawn with replacement."""

import warnings

import torch

from factorank.data import Rankings
from factorank.distributions import RIM, PermutationDistribution
from factorank.distributions.fitting.progress import rounds
from factorank.distributions.fitting.report import FitWarning
from factorank.distributions.mixture import Mixture
from factorank.errors import FactorankError
from factorank.votes import families
from factorank.votes.families import Setting

STEPS = 100
"""Iterations of EM, at most, in the refit of a mixture."""


def refits(
    name: str,
    rankings: Rankings,
    law: PermutationDistribution,
    setting: Setting,
    count: int,
    generator: torch.Generator,
) -> list[PermutationDistribution]:
    """``count`` laws like ``law``, each fitted to as many voters drawn with replacement.

    A RIM keeps the reference of ``law``. A mixture begins EM at ``law``, so that its components keep their
    names; one of Mallows laws needs complete rankings.

    Efron, "Bootstrap methods: another look at the jackknife", 1979.
    """
    if isinstance(law, Mixture) and setting.family == "mallows" and not rankings.complete and count:
        raise FactorankError(
            "a mixture of Mallows laws fitted to rankings that leave items out has no bootstrap intervals"
        )
    found: list[PermutationDistribution] = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FitWarning)  # the fit itself has said it
        for _ in rounds(count, setting.progress, "refits"):
            drawn = resample(rankings, generator)
            if isinstance(law, Mixture):
                found.append(_mixture(law, drawn, setting))
            elif isinstance(law, RIM):
                found.append(
                    RIM.fit(drawn.orders(), law.reference, drawn.weights, smoothing=setting.smoothing)
                )
            else:
                found.append(families.fit(name, drawn, setting, generator))
    return found


def resample(rankings: Rankings, generator: torch.Generator) -> Rankings:
    """As many voters, drawn with replacement.

    >>> votes = Rankings(["a", "b"], torch.tensor([[0, 1], [1, 0]]), torch.tensor([60, 40]))
    >>> resample(votes, torch.Generator().manual_seed(0)).voters
    100
    """
    drawn = torch.multinomial(rankings.weights, rankings.voters, replacement=True, generator=generator)
    counts = torch.bincount(drawn, minlength=len(rankings))
    some = counts > 0
    return Rankings(rankings.items, rankings.ranks[some], counts[some], rankings.metadata)


def _mixture(law: Mixture, rankings: Rankings, setting: Setting) -> Mixture:
    orders = rankings.orders() if rankings.complete else rankings.to_padded_orders()
    options = families.family_options(setting)
    if not rankings.complete:
        options["unranked"] = setting.unranked
    return Mixture.fit(
        orders,
        rankings.weights,
        components=len(law.components),
        family=setting.family,
        max_iterations=STEPS,
        tolerance=1e-5,
        start=law,
        **options,
    )
