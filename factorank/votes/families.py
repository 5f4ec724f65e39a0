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
PARTLY_MIXED = ("mallows", "plackett-luce")
"""The families whose mixtures can be fitted to rankings that leave items out."""
PARTLY_FITTED = ("uniform", *PARTLY_MIXED, "mixture")
"""The families that can be fitted to rankings that leave items out."""
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
    restarts: int = 5
    """Starts of a mixture, of which the best is kept."""
    max_iterations: int = 200
    """Iterations of EM, at most."""
    tolerance: float | None = None
    """At which the EM of a mixture stops; None is the default of :meth:`factorank.Mixture.fit`."""
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

    Rankings that leave items out can be fitted by the families :data:`PARTLY_FITTED`, with
    ``settings.unranked``. A mixture begins EM at the mixture ``start``; a RIM keeps the reference of
    ``start``.

    >>> votes = Rankings.from_orders(torch.tensor([[0, 1, 2], [0, 1, 2], [1, 0, 2]]))
    >>> fit_family("mallows", votes)
    Mallows(central=[0, 1, 2], phi=0.169)
    """
    settings = settings or FitSettings()
    if name not in FAMILIES:
        known = ", ".join(FAMILIES)
        raise FactorankError(f"there is no family {name!r}; there are {known}", parameter="family")
    unmixed = name == "mixture" and settings.family not in PARTLY_MIXED
    if not rankings.complete and (name not in PARTLY_FITTED or unmixed):
        what = f"a mixture of {settings.family}" if name == "mixture" else name
        raise FactorankError(
            f"{what} is fitted to complete rankings only; rankings that leave items out can be fitted by"
            " uniform, mallows, plackett-luce and mixtures of the last two"
        )
    if name == "uniform":
        return laws.Uniform(rankings.n, dtype=torch.float64)
    options: dict[str, Any] = {} if rankings.complete else {"unranked": settings.unranked}
    if name == "mixture" or (name == "mallows" and not rankings.complete):  # fitted by EM
        options |= {"max_iterations": settings.max_iterations, "generator": generator}
    if name == "mixture":
        names = ["components", "family", "restarts", "tolerance", "progress"]
        options |= {"start": start} | {option: getattr(settings, option) for option in names}
    strength = {"rim": "smoothing", "plackett-luce": "penalty"}
    if option := strength.get(settings.family if name == "mixture" else name):
        options[option] = getattr(settings, option)
    if isinstance(start, laws.RIM):
        options["reference"] = start.reference
    return _KINDS[name].fit(rankings.to_padded_orders(), weights=rankings.weights, **options)


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
    if isinstance(law, laws.Mixture):
        quiet = replace(quiet, components=len(law.components), family=family_of(law.components[0]))
        quiet = replace(quiet, max_iterations=100, tolerance=1e-5)
    slow = not rankings.complete and (quiet.family if family == "mixture" else family) != "plackett-luce"
    if count is None or rankings.voters < FEWEST_VOTERS:
        count = 0 if slow or rankings.voters < FEWEST_VOTERS else 100
    if slow and family == "mixture" and count:
        raise FactorankError(
            "a mixture of Mallows laws fitted to rankings that leave items out has no bootstrap intervals"
        )
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
