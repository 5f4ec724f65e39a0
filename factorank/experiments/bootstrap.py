"""How far a fit depends on the voters who happened to vote: refits to voters drawn with replacement."""

import warnings

import torch

from factorank.data import Rankings
from factorank.distributions import RIM, PermutationDistribution
from factorank.distributions.fitting.progress import rounds
from factorank.distributions.fitting.report import FitWarning
from factorank.distributions.mixture import Mixture
from factorank.errors import FactorankError
from factorank.experiments import families
from factorank.experiments.families import Setting

STEPS = 10
"""Steps of EM in the refit of a mixture."""


def refits(
    name: str,
    rankings: Rankings,
    law: PermutationDistribution,
    setting: Setting,
    count: int,
    generator: torch.Generator,
) -> list[PermutationDistribution]:
    """``count`` laws like ``law``, each fitted to as many voters drawn with replacement.

    A RIM keeps the reference of ``law``. A mixture starts from ``law`` and takes some steps of EM, so that
    its components keep their names; it needs complete rankings.

    Efron, "Bootstrap methods: another look at the jackknife", 1979.
    """
    if isinstance(law, Mixture) and not rankings.complete and count:
        raise FactorankError("a mixture fitted to rankings that leave items out has no bootstrap intervals")
    found: list[PermutationDistribution] = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FitWarning)  # the fit itself has said it
        for _ in rounds(count, setting.progress, "refits"):
            drawn = resample(rankings, generator)
            if isinstance(law, Mixture):
                found.append(_mixture(law, drawn, setting, generator))
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


def _mixture(law: Mixture, rankings: Rankings, setting: Setting, generator: torch.Generator) -> Mixture:
    orders, weights = rankings.orders(), rankings.weights
    for _ in range(STEPS):
        mine = law.responsibilities(orders).double() * weights[:, None]
        components: list[PermutationDistribution] = []
        for number, component in enumerate(law.components):
            if mine[:, number].sum() < 1e-9 * weights.sum():
                components.append(component)
                continue
            fit = families._FITS[setting.family]
            components.append(fit(orders, mine[:, number], setting, generator))
        shares = mine.sum(0)
        before, law = law, Mixture(shares, components)
        if (law.weights - before.weights).abs().max() < 1e-4:
            break
    return law
