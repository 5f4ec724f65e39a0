"""Which rule conditions which law: a registry by class, filled by the modules that define the rules.

The base class calls :func:`condition`; no law needs to import the laws that come out of it.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from factorank.errors import DistributionError

if TYPE_CHECKING:
    from factorank.distributions.base import PermutationDistribution

MAX_STATES = 500_000
"""The number of states, over all steps, up to which a dynamic programme or an enumeration is run."""
MAX_DRAWS = 2**18
"""The number of draws up to which the probability of an observation is estimated by rejection."""
LEAST_ACCEPTED = 32
"""The number of draws that must agree with the observation, below which rejection refuses."""


@dataclass(frozen=True)
class Effort:
    """How much work conditioning may do, and where its random numbers come from."""

    max_states: int = MAX_STATES
    samples: int = MAX_DRAWS
    generator: torch.Generator | None = None

    def __post_init__(self) -> None:
        samples: object = self.samples
        if isinstance(self.max_states, bool) or not isinstance(self.max_states, int) or self.max_states < 0:
            fault = f"{{parameter}} is a whole number of 0 or more, not {self.max_states!r}"
            raise DistributionError(fault, parameter="max_states")
        if isinstance(samples, bool) or not isinstance(samples, int) or samples < LEAST_ACCEPTED:
            raise DistributionError(
                f"conditioning takes at least {LEAST_ACCEPTED} samples, a whole number, not {samples!r}"
            )

    def lists(self, law: "PermutationDistribution") -> bool:
        """Whether the orders of the law are few enough to be listed, with exact probabilities."""
        return law.enumerable and math.factorial(law.n) <= self.max_states

    def seeded(self, device: torch.device) -> torch.Generator:
        """The generator, or a new one with a fixed seed, so that the same call gives the same law."""
        return self.generator or torch.Generator(device).manual_seed(0)


class ImpossibleObservation(DistributionError):
    """The law gives the observed order probability zero."""


class RareObservation(DistributionError):
    """Too few draws of the law agree with the observed order to estimate its probability."""


Rule = Callable[[Any, Tensor, Effort], "PermutationDistribution | None"]
"""``rule(law, observed, effort)``: the conditioned law, or None to leave it to the next rule."""

_first: list[Rule] = []
_rules: dict[type, Rule] = {}


def conditioning_rule(family: type | None = None) -> Callable[[Rule], Rule]:
    """Register a rule for the laws of a class and its subclasses, unless these have one of their own.

    A rule without a class is tried on every law, before all others.
    """

    def register(rule: Rule) -> Rule:
        if family is None:
            _first.append(rule)
        else:
            _rules[family] = rule
        return rule

    return register


def condition(
    law: "PermutationDistribution", observed: Sequence[int] | Tensor, effort: Effort
) -> "PermutationDistribution":
    """``law`` given that the items ``observed`` stand in this order, best first, wherever they stand.

    The rules of the law's class and of its base classes are tried in the order of the MRO.
    """
    chain = check_observed(observed, law.n).to(law.device)
    if len(chain) < 2:
        return law
    for rule in (*_first, *(_rules[kind] for kind in type(law).__mro__ if kind in _rules)):
        conditioned = rule(law, chain, effort)
        if conditioned is not None:
            return conditioned
    raise DistributionError(f"there is no rule that conditions a {type(law).__name__}")


def check_observed(observed: Sequence[int] | Tensor, n: int) -> Tensor:
    """The observed items as int64 ``(r,)``, or an error that names the one at fault."""
    items = observed if isinstance(observed, Tensor) else torch.as_tensor(observed)
    if items.ndim != 1 or (items.numel() and (items.is_floating_point() or items.dtype == torch.bool)):
        raise DistributionError(
            f"observed lists items, best first, as integers (r,),"
            f" not {items.dtype} of shape {tuple(items.shape)}"
        )
    first: dict[int, int] = {}
    for place, item in enumerate(items.tolist()):
        if not 0 <= item < n:
            raise DistributionError(
                f"observed holds items 0..{n - 1}, but at position {place} there is {item}"
            )
        if item in first:
            raise DistributionError(
                f"observed holds item {item} twice, at positions {first[item]} and {place}"
            )
        first[item] = place
    return items.to(torch.int64)
