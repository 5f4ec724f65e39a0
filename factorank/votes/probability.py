"""The probability of rankings under a law, partial rankings included."""

import math

import torch
from torch import Tensor

from factorank.codes import code
from factorank.data.rankings import Rankings
from factorank.distributions import Mallows, Mixture, PermutationDistribution, PlackettLuce, Uniform
from factorank.distributions.fitting.ballots import read_ballots
from factorank.distributions.fitting.checks import Unranked
from factorank.distributions.fitting.partial_likelihood import PartialLikelihood
from factorank.distributions.partial_orders import PartialOrders
from factorank.distributions.plackett_luce import listed_log_prob
from factorank.errors import FactorankError
from factorank.lexicographic import permutation_at
from factorank.models.law import PermutationLaw
from factorank.permutations import compose, inverse

LARGEST_SUMMED = 8
"""The largest n for which all orders that agree with a partial ranking are listed."""


def bits(
    law: PermutationDistribution,
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
        with torch.no_grad():
            return -log_prob(law, rankings, unranked).double() / math.log(2), True
    rankings.check_complete("; a model scores complete rankings only, a fitted law also partial ones")
    with torch.no_grad():
        nats = law.log_prob_bound(rankings.to_padded_orders(), samples=partitions, generator=generator)
    return -nats.double() / math.log(2), law.exact


def log_prob(law: PermutationDistribution, rankings: Rankings, unranked: Unranked | None = None) -> Tensor:
    """The log-probability, in nats, of each row ``(rows,)``; for a partial row, of all orders that agree.

    It is exact or refused. Complete rankings: every law. Top lists (``unranked="below"``): uniform, Mallows,
    Plackett-Luce and their mixtures, other laws up to 8 items. Rankings of subsets (``"incomparable"``):
    uniform, Plackett-Luce and their mixtures; Mallows where the sums are feasible, such as for pairs, or
    where few items are ranked or left out; other laws up to 8 items.

    >>> tops = Rankings.from_orders(torch.tensor([[2, -1, -1]]))
    >>> log_prob(Mallows([2, 0, 1], phi=torch.tensor(0.5)), tops, "below").exp()
    tensor([0.5714], dtype=torch.float64)
    """
    if rankings.complete:
        return law.log_prob(rankings.to_padded_orders())
    if isinstance(law, Mixture):
        rows = [log_prob(component, rankings, unranked).double() for component in law.components]
        return (torch.stack(rows, -1) + law.weights.log()).logsumexp(-1)
    orders, lengths = rankings.to_padded_orders(), (rankings.ranks >= 0).sum(1)
    if isinstance(law, Uniform):
        whole = torch.lgamma(torch.tensor(law.n + 1.0, dtype=torch.float64))
        if unranked == "below":
            return torch.lgamma((law.n - lengths + 1).double()) - whole
        return -torch.lgamma((lengths + 1).double())
    if isinstance(law, PlackettLuce):
        return listed_log_prob(law.logits, orders, unranked)
    if isinstance(law, Mallows) and law.weights is None:
        sums = PartialLikelihood(read_ballots(rankings, None, unranked))
        if sums.exact:
            return torch.from_numpy(sums.rows_at(law.central.numpy())(float(law.phi)))
    if isinstance(law, Mallows) and unranked == "below":
        return _mallows_top(law, rankings.ranks)
    if law.n <= LARGEST_SUMMED:
        every = permutation_at(torch.arange(math.factorial(law.n)), law.n)
        partial = PartialOrders.from_orders(orders, unranked=unranked or "below")
        agrees = partial.agrees(every[:, None].expand(-1, len(partial), -1))
        return law.log_prob(every).double()[:, None].masked_fill(~agrees, -math.inf).logsumexp(0)
    raise FactorankError(
        f"the probability of rankings that leave items out ({unranked}) is not known for {type(law).__name__}"
        f" with {law.n} items; for {LARGEST_SUMMED} items or fewer it is summed"
    )


def _mallows_top(law: Mallows, ranks: Tensor) -> Tensor:
    """The right-Lehmer digits are independent, and the first k of them depend on the first k items only."""
    # Items left out are appended in the order of the reference; any other order would do.
    orders = torch.where(ranks < 0, law.n + inverse(law.central), ranks).argsort(1)
    digits = code("lehmer").encode(compose(inverse(law.central), orders))
    log_probs = law.digit_log_probs("lehmer").double()[torch.arange(law.n), digits]
    listed = torch.arange(law.n) < (ranks >= 0).sum(1, keepdim=True)
    return log_probs.masked_fill(~listed, 0.0).sum(1)
