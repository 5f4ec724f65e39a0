"""The probability of rankings under a law, partial rankings included."""

import math

import torch
from torch import Tensor

from factorank.codes import code
from factorank.data.rankings import Rankings
from factorank.distributions import (
    Mallows,
    Mixture,
    PartialOrders,
    PermutationDistribution,
    PlackettLuce,
    Uniform,
)
from factorank.distributions.fitting.checks import Unranked
from factorank.distributions.plackett_luce import listed_log_prob
from factorank.errors import FactorankError
from factorank.lexicographic import permutation_at
from factorank.models.law import PermutationLaw
from factorank.permutations import compose, inverse

LARGEST_SUMMED = 8
"""The largest n for which all orders that agree with a partial ranking are listed."""


def bits(
    law: PermutationDistribution | PermutationLaw,
    rankings: Rankings,
    unranked: Unranked | None = None,
    *,
    partitions: int = 16,
    generator: torch.Generator | None = None,
) -> tuple[Tensor, bool]:
    """The bits of each row ``(rows,)``, and whether they are exact.

    The law of a model that unmasks at random has no exact log-probability. Its bits are upper bounds, means
    over ``partitions`` random partitions. The law of a model scores complete rankings only.

    >>> votes = Rankings.from_orders(torch.tensor([[0, 1, 2, 3]]))
    >>> bits(Uniform(4), votes)
    (tensor([4.5850], dtype=torch.float64), True)
    """
    if not isinstance(law, PermutationLaw):
        return -log_prob(law, rankings, unranked).double() / math.log(2), True
    rankings.check_complete("; a model scores complete rankings only, a fitted law also partial ones")
    with torch.no_grad():
        nats = law.log_prob_bound(rankings.orders(), samples=partitions, generator=generator)
    return -nats.double() / math.log(2), law.exact


def log_prob(law: PermutationDistribution, rankings: Rankings, unranked: Unranked | None = None) -> Tensor:
    """The log-probability, in nats, of each row ``(rows,)``; for a partial row, of all orders that agree.

    It is exact or refused. Complete rankings: every law. Top lists (``unranked="below"``): uniform, Mallows,
    Plackett-Luce and their mixtures, other laws up to 8 items. Rankings of subsets (``"incomparable"``):
    uniform, Plackett-Luce and their mixtures, other laws up to 8 items.

    >>> tops = Rankings.from_orders(torch.tensor([[2, -1, -1]]))
    >>> log_prob(Mallows([2, 0, 1], phi=torch.tensor(0.5)), tops, "below").exp()
    tensor([0.5714], dtype=torch.float64)
    """
    if rankings.complete:
        return law.log_prob(rankings.orders())
    if isinstance(law, Mixture):
        rows = [log_prob(component, rankings, unranked).double() for component in law.components]
        return (torch.stack(rows, -1) + law.weights.log()).logsumexp(-1)
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
    if law.n <= LARGEST_SUMMED:
        return _by_enumeration(law, partial_orders(rankings, unranked))
    raise FactorankError(
        f"the probability of rankings that leave items out ({unranked}) is not known for {type(law).__name__}"
        f" with {law.n} items; for {LARGEST_SUMMED} items or fewer it is summed"
    )


def partial_orders(rankings: Rankings, unranked: Unranked | None) -> PartialOrders:
    """The rankings as partial orders, one for each row.

    >>> len(partial_orders(Rankings.from_orders(torch.tensor([[2, -1, -1], [0, 1, -1]])), "below"))
    2
    """
    return PartialOrders.from_orders(rankings.to_padded_orders(), unranked=unranked or "below")


def completed(orders: Tensor, reference: Tensor) -> Tensor:
    """Orders ``(rows, n)`` that end in -1, with the items left out appended in the order of a reference.

    >>> completed(torch.tensor([[2, -1, -1, -1]]), torch.tensor([3, 2, 1, 0]))
    tensor([[2, 3, 1, 0]])
    """
    n = orders.shape[1]
    place = torch.full((len(orders), n + 1), 0).scatter_(
        1, orders.where(orders >= 0, n), torch.arange(-n, 0).expand(orders.shape)
    )[:, :n]
    return torch.where(place < 0, place, inverse(reference)).argsort(1)


def _mallows_top(law: Mallows, orders: Tensor, listed: Tensor) -> Tensor:
    """The right-Lehmer digits are independent, and the first k of them depend on the first k items only."""
    digits = code("lehmer").encode(compose(inverse(law.central), completed(orders, law.central)))
    log_probs = law.digit_log_probs("lehmer").double()[torch.arange(law.n), digits]
    return log_probs.masked_fill(~listed, 0.0).sum(1)


def _by_enumeration(law: PermutationDistribution, partial: PartialOrders) -> Tensor:
    every = permutation_at(torch.arange(math.factorial(law.n)), law.n)
    log_probs = law.log_prob(every).double()
    agrees = partial.agrees(every[:, None].expand(-1, len(partial), -1))
    return log_probs[:, None].masked_fill(~agrees, -math.inf).logsumexp(0)
