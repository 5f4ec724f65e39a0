"""The families of laws by name: how each is fitted to rankings, and the probability of partial rankings.

``factorank fit``, ``factorank compare`` and the experiment on votes all work with these.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from factorank.codes import code
from factorank.data import Rankings
from factorank.distributions import (
    RIM,
    GeneralizedMallows,
    Mallows,
    PermutationDistribution,
    PlackettLuce,
    Uniform,
)
from factorank.distributions.fitting.checks import Unranked
from factorank.distributions.mixture import Mixture
from factorank.distributions.partial_orders import PartialOrders
from factorank.distributions.plackett_luce import listed_log_prob
from factorank.errors import FactorankError
from factorank.lexicographic import permutation_at
from factorank.permutations import compose, inverse

MIXED = ("mallows", "generalized-mallows", "rim", "plackett-luce")
"""The families that a mixture may be made of."""
PARTLY_MIXED = ("mallows", "plackett-luce")
"""Those of them whose mixtures can be fitted to rankings that leave items out."""


@dataclass(frozen=True)
class Setting:
    """How a law is fitted."""

    components: int = 1
    family: str = "mallows"
    """The family of a mixture's components."""
    unranked: Unranked | None = None
    restarts: int = 5
    max_iterations: int = 200
    smoothing: float = 0.0
    """Added to every count of a RIM."""
    penalty: float = 0.0
    """On the squared logits of Plackett-Luce."""
    progress: bool = False


def ready(rankings: Rankings, unranked: Unranked | None) -> Rankings:
    """The rankings as :func:`checked` has them, equal rows made one."""
    return checked(rankings, unranked).distinct()


def checked(rankings: Rankings, unranked: Unranked | None) -> Rankings:
    """Strict rankings as the fits take them; an error says what has to be said or done first.

    With ``unranked="below"`` items tied at the bottom are the same as items left out, and become that.
    """
    if unranked == "below":
        last = rankings.ranks.amax(1, keepdim=True)
        bottom = (rankings.ranks == last) & ((rankings.ranks == last).sum(1, keepdim=True) > 1) & (last > 0)
        rankings = Rankings(
            rankings.items, rankings.ranks.masked_fill(bottom, -1), rankings.counts, rankings.metadata
        )
    if not rankings.complete and unranked is None:
        row, item = (rankings.ranks < 0).nonzero()[0].tolist()
        raise FactorankError(
            f"row {row} does not rank {rankings.items[item]!r}: say unranked 'below' if items left out come"
            " last, 'incomparable' if nothing is known of them"
        )
    rankings.to_padded_orders()  # refuses ties
    return rankings


def fit(
    name: str, rankings: Rankings, setting: Setting, generator: torch.Generator
) -> PermutationDistribution:
    """The law of a family (``"mallows"``, …, ``"mixture"``) that fits the rankings best.

    >>> votes = Rankings.from_orders(torch.tensor([[0, 1, 2], [0, 1, 2], [1, 0, 2]]))
    >>> round(float(fit("mallows", votes, Setting(), torch.Generator()).phi), 4)
    0.169
    """
    if name not in _FITS:
        raise FactorankError(f"there is no family {name!r}; there are {', '.join(_FITS)}")
    if not rankings.complete:
        partial = _PARTIAL_FITS.get(name)
        if partial is None or (name == "mixture" and setting.family not in PARTLY_MIXED):
            what = f"a mixture of {setting.family}" if name == "mixture" else name
            raise FactorankError(
                f"{what} is fitted to complete rankings only; rankings that leave items out can be fitted by"
                " uniform, mallows, plackett-luce and mixtures of the last two"
            )
        return partial(rankings, setting, generator)
    return _FITS[name](rankings.orders(), rankings.weights, setting, generator)


def _em(setting: Setting, generator: torch.Generator) -> dict[str, Any]:
    options: dict[str, Any] = {"components": setting.components, "restarts": setting.restarts}
    return options | {
        "max_iterations": setting.max_iterations,
        "generator": generator,
        "progress": setting.progress,
    }


def _fit_mixture(
    orders: Tensor | PartialOrders, weights: Tensor, setting: Setting, generator: torch.Generator
) -> Mixture:
    return Mixture.fit(
        orders, weights, family=setting.family, **family_options(setting), **_em(setting, generator)
    )


def family_options(setting: Setting) -> dict[str, Any]:
    """What a mixture's fit is told of its family."""
    if setting.family == "rim":
        return {"smoothing": setting.smoothing}
    return {"penalty": setting.penalty} if setting.family == "plackett-luce" else {}


def _fit_mixture_partial(votes: Rankings, setting: Setting, generator: torch.Generator) -> Mixture:
    if setting.family == "mallows":
        return _fit_mixture(partial_orders(votes, setting.unranked), votes.weights, setting, generator)
    options = family_options(setting) | {"unranked": setting.unranked} | _em(setting, generator)
    return Mixture.fit(votes.to_padded_orders(), votes.weights, family=setting.family, **options)


_FITS: dict[str, Callable[[Tensor, Tensor, Setting, torch.Generator], PermutationDistribution]] = {
    "uniform": lambda orders, weights, setting, generator: Uniform(orders.shape[-1], dtype=torch.float64),
    "mallows": lambda orders, weights, setting, generator: Mallows.fit(orders, weights),
    "generalized-mallows": lambda orders, weights, setting, generator: GeneralizedMallows.fit(
        orders, weights
    ),
    "rim": lambda orders, weights, setting, generator: RIM.fit(
        orders, weights=weights, smoothing=setting.smoothing
    ),
    "plackett-luce": lambda orders, weights, setting, generator: PlackettLuce.fit(
        orders, weights, penalty=setting.penalty
    ),
    "mixture": _fit_mixture,
}

_PARTIAL_FITS: dict[str, Callable[[Rankings, Setting, torch.Generator], PermutationDistribution]] = {
    "uniform": lambda votes, setting, generator: Uniform(votes.n, dtype=torch.float64),
    "mallows": lambda votes, setting, generator: Mallows.fit(
        partial_orders(votes, setting.unranked),
        votes.weights,
        generator=generator,
        max_iterations=setting.max_iterations,
    ),
    "plackett-luce": lambda votes, setting, generator: PlackettLuce.fit(
        votes.to_padded_orders(), votes.weights, unranked=setting.unranked, penalty=setting.penalty
    ),
    "mixture": _fit_mixture_partial,
}


def names() -> list[str]:
    """The families, "mixture" last."""
    return list(_FITS)


def partial_names() -> list[str]:
    """The families that can be fitted to rankings that leave items out."""
    return list(_PARTIAL_FITS)


def partial_orders(rankings: Rankings, unranked: Unranked | None) -> PartialOrders:
    """The rankings as partial orders, a voter for each row."""
    return PartialOrders.from_orders(rankings.to_padded_orders(), unranked=unranked or "below")


def log_prob(law: PermutationDistribution, rankings: Rankings, unranked: Unranked | None = None) -> Tensor:
    """The log-probability, in nats, of each row ``(rows,)``; for a partial one, of all orders that agree.

    Exact, or refused: complete rankings for every law; top lists (``unranked="below"``) for the uniform law,
    Mallows, Plackett-Luce and their mixtures, for other laws up to 8 items; rankings of subsets
    (``"incomparable"``) for the uniform law, Plackett-Luce and their mixtures, for other laws up to 8 items.

    >>> tops = Rankings.from_orders(torch.tensor([[2, -1, -1]]))
    >>> log_prob(Mallows([2, 0, 1], phi=torch.tensor(0.5)), tops, "below").exp()
    tensor([0.5714], dtype=torch.float64)
    """
    if rankings.complete:
        return law.log_prob(rankings.orders())
    if isinstance(law, Mixture):
        each = [log_prob(component, rankings, unranked).double() for component in law.components]
        return (torch.stack(each, -1) + law.weights.log()).logsumexp(-1)
    orders = rankings.to_padded_orders()
    listed = orders >= 0
    lengths = listed.sum(1)
    if isinstance(law, Uniform):
        whole = torch.lgamma(torch.tensor(law.n + 1.0, dtype=torch.float64))
        if unranked == "below":
            return torch.lgamma((law.n - lengths + 1).double()) - whole
        return -torch.lgamma((lengths + 1).double())
    if isinstance(law, PlackettLuce):
        return listed_log_prob(law.logits, orders, unranked)
    if isinstance(law, Mallows) and unranked == "below":
        return _mallows_top(law, orders, listed)
    if law.n <= 8:
        return _by_enumeration(law, partial_orders(rankings, unranked))
    raise FactorankError(
        f"the probability of rankings that leave items out ({unranked}) is not known for {type(law).__name__}"
        f" with {law.n} items; for 8 items or fewer it is summed"
    )


def _mallows_top(law: Mallows, orders: Tensor, listed: Tensor) -> Tensor:
    """The right-Lehmer digits are independent, and the first of them depend on the first items alone."""
    digits = code("lehmer").encode(compose(inverse(law.central), complete(orders, law.central)))
    each = law.digit_log_probs("lehmer").double()[torch.arange(law.n), digits]
    return each.masked_fill(~listed, 0.0).sum(1)


def complete(orders: Tensor, reference: Tensor) -> Tensor:
    """Orders ``(rows, n)`` that end in -1, filled up with the items left out in the order of a reference."""
    n = orders.shape[1]
    place = torch.full((len(orders), n + 1), 0).scatter_(
        1, orders.where(orders >= 0, n), torch.arange(-n, 0).expand(orders.shape)
    )[:, :n]
    return torch.where(place < 0, place, inverse(reference)).argsort(1)


def _by_enumeration(law: PermutationDistribution, partial: PartialOrders) -> Tensor:
    every = permutation_at(torch.arange(math.factorial(law.n)), law.n)
    log_probs = law.log_prob(every).double()
    agrees = partial.agrees(every[:, None].expand(-1, len(partial), -1))
    return log_probs[:, None].masked_fill(~agrees, -math.inf).logsumexp(0)
