"""Tests of a law against a larger one that contains it, by the ratio of their likelihoods."""

import warnings
from dataclasses import dataclass, replace

import torch

from factorank.data.rankings import Rankings
from factorank.distributions import FitWarning, Mixture, PermutationDistribution
from factorank.distributions.fitting.checks import check_counts
from factorank.errors import FactorankError
from factorank.votes.families import FitSettings, family_of, fit_family

CONTAINED = {
    "mallows": "uniform",
    "plackett-luce": "uniform",
    "generalized-mallows": "mallows",
    "rim": "generalized-mallows",
}
"""The next smaller family, which is a special case."""
SIMULATIONS, MOST_ITEMS, MOST_RANKS = 99, 12, 100_000
"""The votes that :func:`against_smaller` simulates, and up to which size: a second or two."""


@dataclass(frozen=True)
class LikelihoodRatio:
    """What a larger law gains on a special case of it."""

    smaller: str
    """The family of the special case."""
    statistic: float
    """Twice the gain in log-likelihood."""
    more: int
    """The parameters that the larger law has more."""
    p_value: float | None
    """By χ², or by simulated votes; None where neither holds."""
    simulations: int = 0
    """The simulated votes; 0 means χ²."""


def likelihood_ratio(
    smaller: PermutationDistribution,
    larger: PermutationDistribution,
    *,
    simulations: int = 0,
    settings: FitSettings | None = None,
    generator: torch.Generator | None = None,
) -> LikelihoodRatio:
    """Test whether a larger law fits the votes better than a special case of it does by chance.

    Both laws are fitted (:func:`fit_family`) to the same votes. χ² gives the p-value where the smaller law
    lies inside the larger family: generalized Mallows in RIM, Mallows in generalized Mallows, the uniform law
    in Plackett-Luce. Elsewhere, as for the number of components of a mixture, or for Mallows against the
    uniform law, whose centre is no parameter, χ² does not hold and the p-value is None, unless it is
    simulated: so many times votes are drawn from the smaller law and both families fitted to them. The
    p-value is the share of these whose statistic is as large, the observed votes counted with them.

    Args:
        smaller: the special case.
        larger: of more parameters.
        simulations: how many votes to simulate, of complete rankings; 0 for none.
        settings: those of both fits.
        generator: of the simulated votes.

    >>> from factorank import votes
    >>> orders = votes.Rankings(["a", "b", "c"], torch.tensor([[0, 1, 2], [2, 0, 1]]), torch.tensor([70, 30]))
    >>> test = likelihood_ratio(fit_family("uniform", orders), fit_family("plackett-luce", orders))
    >>> test.more, test.p_value < 0.001
    (2, True)
    """
    statistic, more = _gain(smaller, larger)
    names = family_of(smaller), family_of(larger)
    p_value = None
    if simulations:
        check_counts(simulations=simulations)
        p_value = _simulated(smaller, larger, statistic, simulations, settings or FitSettings(), generator)
    elif CONTAINED.get(names[1]) == names[0] and names != ("uniform", "mallows"):
        half = torch.tensor([more / 2, max(statistic, 0.0) / 2], dtype=torch.float64)
        p_value = float(torch.special.gammaincc(half[0], half[1]))
    return LikelihoodRatio(names[0], statistic, more, p_value, simulations)


def against_smaller(
    law: PermutationDistribution,
    rankings: Rankings,
    settings: FitSettings | None = None,
    generator: torch.Generator | None = None,
) -> LikelihoodRatio | None:
    """The test against the next smaller family, or of a mixture against a single law of its family.

    Mallows against the uniform law is simulated where that is quick. The result is None where the fit is not
    of maximum likelihood (smoothed or penalised), or its likelihood is estimated, or votes are partial and
    the smaller law is not the uniform one.

    >>> votes = Rankings(["a", "b", "c"], torch.tensor([[0, 1, 2], [1, 0, 2]]), torch.tensor([60, 40]))
    >>> against_smaller(fit_family("generalized-mallows", votes), votes).smaller
    'mallows'
    """
    settings = settings or FitSettings()
    family = family_of(law)
    component = family_of(law.components[0]) if isinstance(law, Mixture) else family
    strength = {"rim": settings.smoothing, "plackett-luce": settings.penalty}.get(component, 0.0)
    if strength or law.report is None or law.report.standard_error is not None or family == "uniform":
        return None
    name = component if isinstance(law, Mixture) else CONTAINED[family]
    if name != "uniform" and not rankings.complete:
        return None
    smaller = _fitted(name, rankings, settings, None)
    if smaller.report is None or smaller.report.parameters >= law.report.parameters:
        return None
    quick = rankings.complete and rankings.n <= MOST_ITEMS and rankings.voters * rankings.n <= MOST_RANKS
    simulations = SIMULATIONS if quick and family == "mallows" else 0
    return likelihood_ratio(smaller, law, simulations=simulations, settings=settings, generator=generator)


def _gain(smaller: PermutationDistribution, larger: PermutationDistribution) -> tuple[float, int]:
    """Twice the gain in log-likelihood, and the parameters more."""
    first, second = smaller.report, larger.report
    if first is None or second is None or first.rankings != second.rankings:
        raise FactorankError("a likelihood ratio compares two laws that were fitted to the same rankings")
    more = second.parameters - first.parameters
    if more < 1:
        raise FactorankError(
            f"the larger law has {second.parameters} parameters, the other {first.parameters}"
        )
    return 2 * (second.log_likelihood - first.log_likelihood), more


def _simulated(
    smaller: PermutationDistribution,
    larger: PermutationDistribution,
    statistic: float,
    simulations: int,
    settings: FitSettings,
    generator: torch.Generator | None,
) -> float:
    voters = round(smaller.report.rankings) if smaller.report else 0
    as_large = 1
    for _ in range(simulations):
        votes = Rankings.from_orders(smaller.sample((voters,), generator=generator)).distinct()
        again = [_refitted(law, votes, settings, generator) for law in (smaller, larger)]
        as_large += _gain(again[0], again[1])[0] >= statistic - 1e-9
    return as_large / (simulations + 1)


def _refitted(
    law: PermutationDistribution, votes: Rankings, settings: FitSettings, generator: torch.Generator | None
) -> PermutationDistribution:
    """A law of the same family, and of as many components, fitted to other votes."""
    if isinstance(law, Mixture):
        settings = replace(settings, components=len(law.components), family=family_of(law.components[0]))
    return _fitted(family_of(law), votes, settings, generator)


def _fitted(
    name: str, rankings: Rankings, settings: FitSettings, generator: torch.Generator | None
) -> PermutationDistribution:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FitWarning)
        return fit_family(name, rankings, replace(settings, progress=False), generator)
