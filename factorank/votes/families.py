"""The families of laws by name, and how each is fitted to rankings."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from factorank.data.rankings import Rankings
from factorank.distributions import (
    RIM,
    GeneralizedMallows,
    Mallows,
    Mixture,
    PermutationDistribution,
    PlackettLuce,
    Uniform,
)
from factorank.distributions.fitting.checks import Unranked
from factorank.errors import FactorankError

MIXED = ("mallows", "generalized-mallows", "rim", "plackett-luce")
"""The families of a mixture's components."""
FAMILIES = ("uniform", *MIXED, "mixture")
PARTLY_MIXED = ("mallows", "plackett-luce")
"""The families whose mixtures can be fitted to rankings that leave items out."""
PARTLY_FITTED = ("uniform", *PARTLY_MIXED, "mixture")
"""The families that can be fitted to rankings that leave items out."""


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
    smoothing: float = 0.0
    """Added to every count of a RIM."""
    penalty: float = 0.0
    """On the squared logits of Plackett-Luce."""
    progress: bool = False
    """Whether to show a progress bar on a terminal."""

    def __post_init__(self) -> None:
        if self.components < 1:
            raise FactorankError(
                f"a mixture has at least 1 component, not {self.components}", parameter="components"
            )

    @property
    def component_options(self) -> dict[str, Any]:
        """The options of a mixture's fit that its family has."""
        options = {"rim": {"smoothing": self.smoothing}, "plackett-luce": {"penalty": self.penalty}}
        return options.get(self.family, {})


def fit_family(
    name: str,
    rankings: Rankings,
    settings: FitSettings | None = None,
    generator: torch.Generator | None = None,
) -> PermutationDistribution:
    """The law of a family (one of :data:`FAMILIES`) with the highest likelihood of the rankings.

    Rankings that leave items out can be fitted by the families :data:`PARTLY_FITTED`, with
    ``settings.unranked``.

    >>> votes = Rankings.from_orders(torch.tensor([[0, 1, 2], [0, 1, 2], [1, 0, 2]]))
    >>> fit_family("mallows", votes)
    Mallows(central=[0, 1, 2], phi=0.169)
    """
    settings = settings or FitSettings()
    if name not in FAMILIES:
        raise FactorankError(
            f"there is no family {name!r}; there are {', '.join(FAMILIES)}", parameter="family"
        )
    unmixed = name == "mixture" and settings.family not in PARTLY_MIXED
    if not rankings.complete and (name not in PARTLY_FITTED or unmixed):
        what = f"a mixture of {settings.family}" if name == "mixture" else name
        raise FactorankError(
            f"{what} is fitted to complete rankings only; rankings that leave items out can be fitted by"
            " uniform, mallows, plackett-luce and mixtures of the last two"
        )
    return _FITTERS[name](rankings, settings, generator)


def family_of(law: PermutationDistribution) -> str:
    """The name of a law's family.

    >>> family_of(Mallows([0, 1, 2], 0.5))
    'mallows'
    """
    kinds = (Uniform, Mallows, GeneralizedMallows, RIM, PlackettLuce, Mixture)
    for name, kind in zip(FAMILIES, kinds, strict=True):
        if type(law) is kind:
            return name
    raise FactorankError(f"a {type(law).__name__} is of none of the families {', '.join(FAMILIES)}")


def _mallows(rankings: Rankings, settings: FitSettings, generator: torch.Generator | None) -> Mallows:
    if rankings.complete:
        return Mallows.fit(rankings.orders(), rankings.weights)
    return Mallows.fit(
        rankings.to_padded_orders(),
        rankings.weights,
        unranked=settings.unranked,
        max_iterations=settings.max_iterations,
        generator=generator,
    )


def _plackett_luce(
    rankings: Rankings, settings: FitSettings, generator: torch.Generator | None
) -> PlackettLuce:
    unranked = None if rankings.complete else settings.unranked
    orders = rankings.to_padded_orders()
    return PlackettLuce.fit(orders, rankings.weights, unranked=unranked, penalty=settings.penalty)


def _mixture(rankings: Rankings, settings: FitSettings, generator: torch.Generator | None) -> Mixture:
    return Mixture.fit(
        rankings.to_padded_orders(),
        rankings.weights,
        components=settings.components,
        family=settings.family,
        unranked=None if rankings.complete else settings.unranked,
        restarts=settings.restarts,
        max_iterations=settings.max_iterations,
        generator=generator,
        progress=settings.progress,
        **settings.component_options,
    )


_FITTERS: dict[str, Callable[[Rankings, FitSettings, torch.Generator | None], PermutationDistribution]] = {
    "uniform": lambda rankings, settings, generator: Uniform(rankings.n, dtype=torch.float64),
    "mallows": _mallows,
    "generalized-mallows": lambda rankings, settings, generator: GeneralizedMallows.fit(
        rankings.orders(), rankings.weights
    ),
    "rim": lambda rankings, settings, generator: RIM.fit(
        rankings.orders(), weights=rankings.weights, smoothing=settings.smoothing
    ),
    "plackett-luce": _plackett_luce,
    "mixture": _mixture,
}
