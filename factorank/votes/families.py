"""The families of laws by name, how each is fitted to rankings, and refits that show its uncertainty."""

import warnings
from dataclasses import dataclass, replace
from typing import Any

import torch

from factorank import distributions as laws
from factorank.data.rankings import Rankings
from factorank.distributions import PermutationDistribution
from factorank.distributions.fitting.checks import Unranked
from factorank.distributions.fitting.em import rounds
from factorank.errors import FactorankError
from factorank.votes.probability import log_prob

_KINDS: dict[str, Any] = {
    "uniform": laws.Uniform,
    "mallows": laws.Mallows,
    "generalized-mallows": laws.GeneralizedMallows,
    "rim": laws.RIM,
    "plackett-luce": laws.PlackettLuce,
    "mixture": laws.Mixture,
}
FAMILIES = tuple(_KINDS)
MIXED = ("mallows", "generalized-mallows", "rim", "plackett-luce")
"""The families of a mixture's components."""
EXACT_ON_TOPS = ("mallows", "plackett-luce")
"""The families, and their mixtures, that give top lists an exact probability whatever the number of items."""
FEWEST_VOTERS = 5
"""Draws from fewer voters than these are too much alike: the intervals would seem narrow."""


@dataclass(frozen=True)
class FitSettings:
    """How a law is fitted."""

    components: int = 1
    """The number of components of a mixture."""
    family: str = "mallows"
    """The family of a mixture's components."""
    unranked: Unranked | None = None
    """What a ranking says of the items it leaves out: "below", "incomparable", or None if it ranks all."""
    restarts: int = 50
    """Starts of a mixture, of which the best is kept."""
    max_iterations: int | None = None
    """Iterations of EM or of a sampler, at most; None is the default of the fit."""
    tolerance: float | None = None
    """At which they stop; None is the default of the fit."""
    samples: int | None = None
    """Draws where a fit needs any; None is the default of the fit."""
    smoothing: float = 0.0
    """Added to every count of a RIM."""
    penalty: float = 0.0
    """On the squared logits of Plackett-Luce."""
    progress: bool = False
    """Whether to show a progress bar on a terminal."""

    def __post_init__(self) -> None:
        if self.components < 1:
            fault = f"a mixture has at least 1 component, not {self.components}"
            raise FactorankError(fault, parameter="components")


def fit_family(
    name: str,
    rankings: Rankings,
    settings: FitSettings | None = None,
    generator: torch.Generator | None = None,
    *,
    start: PermutationDistribution | None = None,
) -> PermutationDistribution:
    """The law of a family (one of :data:`FAMILIES`) with the highest likelihood of the rankings.

    Rankings that leave items out are fitted with ``settings.unranked``. A mixture begins EM at the mixture
    ``start``; a RIM keeps the reference of ``start``.

    >>> votes = Rankings.from_orders(torch.tensor([[0, 1, 2], [0, 1, 2], [1, 0, 2]]))
    >>> fit_family("mallows", votes)
    Mallows(central=[0, 1, 2], phi=0.169)
    """
    settings = settings or FitSettings()
    if name not in FAMILIES:
        known = ", ".join(FAMILIES)
        raise FactorankError(f"there is no family {name!r}; there are {known}", parameter="family")
    if name == "uniform":
        return _uniform(rankings, settings.unranked)
    options: dict[str, Any] = {"unranked": None if rankings.complete else settings.unranked}
    iterated = ["max_iterations", "tolerance"] + (["samples"] if name != "plackett-luce" else [])
    options |= {option: getattr(settings, option) for option in iterated if getattr(settings, option)}
    if name != "plackett-luce":
        options["generator"] = generator
    if name == "mixture":
        names = ["components", "family", "restarts", "progress"]
        options |= {"start": start} | {option: getattr(settings, option) for option in names}
    strength = {"rim": "smoothing", "plackett-luce": "penalty"}
    if option := strength.get(settings.family if name == "mixture" else name):
        options[option] = getattr(settings, option)
    if isinstance(start, laws.RIM) and rankings.complete and rankings.strict:
        options["reference"] = start.reference
    return _KINDS[name].fit(rankings, **options)


def _uniform(rankings: Rankings, unranked: Unranked | None) -> laws.Uniform:
    """The uniform law, with a report like that of a fitted one."""
    law = laws.Uniform(rankings.n, dtype=torch.float64)
    nats = float(log_prob(law, rankings, unranked) @ rankings.weights)
    law.report = laws.FitReport("uniform", rankings=rankings.voters, log_likelihood=nats, parameters=0)
    return law


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
    so that its components keep their numbers. There are 100 refits unless ``count`` says otherwise, none
    where a fit draws samples, which makes it slow (laws with a reference order, on rankings that leave items
    incomparable, among them), and none if there are fewer than 5 voters.

    Efron, "Bootstrap methods: another look at the jackknife", 1979.

    >>> votes = Rankings(["a", "b", "c"], torch.tensor([[0, 1, 2], [1, 0, 2]]), torch.tensor([60, 40]))
    >>> law = fit_family("mallows", votes)
    >>> refits = bootstrap(law, votes, count=20, generator=torch.Generator().manual_seed(0))
    >>> min(refit.phi for refit in refits) < law.phi < max(refit.phi for refit in refits)
    tensor(True)
    """
    settings, family = settings or FitSettings(), family_of(law)
    kind, quiet = family, replace(settings, progress=False)
    if isinstance(law, laws.Mixture):
        kind = family_of(law.components[0])
        quiet = replace(quiet, components=len(law.components), family=kind)
        quiet = replace(quiet, max_iterations=100, tolerance=1e-5)
    slow = law.report is not None and law.report.standard_error is not None
    slow |= settings.unranked == "incomparable" and not rankings.complete and kind != "plackett-luce"
    if count is None or rankings.voters < FEWEST_VOTERS:
        count = 0 if slow or rankings.voters < FEWEST_VOTERS else 100
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", laws.FitWarning)  # the fit of the law has warned already
        return [
            fit_family(family, rankings.resample(generator), quiet, generator, start=law)
            for _ in rounds(count, settings.progress, "refits")
        ]


def family_of(law: PermutationDistribution) -> str:
    """The name of a law's family.

    >>> family_of(laws.Mallows([0, 1, 2], 0.5))
    'mallows'
    """
    for name, kind in _KINDS.items():
        if type(law) is kind:
            return name
    raise FactorankError(f"a {type(law).__name__} is of none of the families {', '.join(FAMILIES)}")
