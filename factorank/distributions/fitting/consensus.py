"""The consensus of rankings by several rules, and what is uncertain in it."""

from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from factorank.distributions.fitting.ballots import Ballots, Votes, read_ballots
from factorank.distributions.fitting.checks import Unranked
from factorank.distributions.fitting.errors import FitError
from factorank.distributions.fitting.kemeny import STEP_EFFORT, disagreement, kemeny, number_of_best
from factorank.distributions.fitting.voting_rules import METHODS, scores_of


@dataclass(frozen=True)
class Consensus:
    """A consensus order ``(n,)``, its mean distance to the rankings, and what is uncertain in it."""

    order: Tensor
    distance: float
    exact: bool
    """Whether no order is closer, by proof."""
    lower_bound: float
    """No order has a smaller mean distance than this: the distance itself where it is exact."""
    best_orders: int | None = None
    """How many orders are as close as this one, where it is exact and they are few enough to count."""
    scores: Tensor | None = field(default=None, repr=False)
    """What the rule sorts the items by ``(n,)``, none for Kemeny's. The rule cannot tell equal ones apart."""
    support: Tensor | None = field(default=None, repr=False)
    """``[a, b]``: the share of the resamples whose consensus puts a above b, where ``resamples`` is given."""


def consensus(
    orders: Votes,
    weights: Tensor | None = None,
    *,
    method: str = "kemeny",
    unranked: Unranked | None = None,
    items: int | None = None,
    effort: float = 1.0,
    resamples: int = 0,
    generator: torch.Generator | None = None,
) -> Consensus:
    r"""A consensus of rankings. Kemeny's is :math:`\arg\min_σ \sum_v w_v\, d(σ, x_v)`, with Kendall's d.

    Only the counts of voters who put a above b matter. Items that are left out of a ranking, and ties, say
    nothing of the pairs they leave open. Kemeny's order is proven best up to 16 items, and mostly far beyond;
    where it is not, ``exact`` is false and ``lower_bound`` says how much closer another order might be. Of
    several best orders the result is always the same. Items that another rule cannot tell apart keep their
    order.

    Args:
        orders: as of :meth:`Mallows.fit`.
        weights: of the rankings, ``(*batch,)``.
        method: "kemeny", "borda", "copeland", "schulze" or "rrf" (reciprocal rank fusion).
        unranked: as of :meth:`PlackettLuce.fit`.
        items: as of :meth:`PlackettLuce.fit`.
        effort: how long Kemeny's order is searched for where it is hard: about this many seconds, counted in
            steps, so that results do not depend on the machine.
        resamples: that many times as many voters are drawn with replacement, for ``support``: how sure the
            order of each pair is.
        generator: of the resamples.

    Kemeny, "Mathematics without numbers", 1959; Truchon, "An extension of the Condorcet criterion", 1998.

    >>> votes = torch.tensor([[0, 1, 2, 3], [0, 2, 1, 3], [1, 0, 2, 3]])
    >>> consensus(votes)
    Consensus(order=tensor([0, 1, 2, 3]), distance=0.666..., exact=True, lower_bound=0.666..., best_orders=1)
    >>> consensus(votes, method="copeland").scores
    tensor([ 3.,  1., -1., -3.], dtype=torch.float64)
    >>> sure = consensus(votes, resamples=100, generator=torch.Generator().manual_seed(0)).support
    >>> sure[0, 3], bool(sure[0, 1] < 1)
    (tensor(1., dtype=torch.float64), True)
    """
    if method not in METHODS:
        raise FitError(f"{{parameter}} is one of {', '.join(METHODS)}, not {method!r}", parameter="method")
    if not 0 <= effort < np.inf:
        raise FitError(f"{{parameter}} is a finite number of 0 or more, not {effort}", parameter="effort")
    if resamples < 0:
        raise FitError(f"{{parameter}} is 0 or more, not {resamples}", parameter="resamples")
    ballots = read_ballots(orders, weights, unranked, items)
    if method == "rrf" and ballots.above is not None:
        raise FitError("reciprocal rank fusion needs the places of items, which these partial orders lack")
    counts, total = _counts(ballots, ballots.weights), ballots.total
    best_orders, scores = None, None
    if method == "kemeny":
        order, exact, bound = kemeny(counts, effort=effort)
        best_orders = number_of_best(counts, order) if exact else None
    else:
        values = scores_of(method, ballots.ranks, ballots.weights, counts)
        order, scores = _sorted(values), torch.from_numpy(values).to(ballots.device)
        bound = float(np.minimum(counts, counts.T).sum()) / 2  # every pair loses at least its minority
        exact = disagreement(counts, order) <= bound
    support = None
    if resamples:
        support = _support(ballots, method, order, resamples, generator).to(ballots.device)
    return Consensus(
        torch.from_numpy(order).to(ballots.device),
        disagreement(counts, order) / total,
        exact,
        bound / total,
        best_orders,
        scores,
        support,
    )


def _counts(ballots: Ballots, weights: np.ndarray) -> np.ndarray:
    from factorank.kernels.fitting import pairwise_counts_of_ranks

    if ballots.above is None:
        return pairwise_counts_of_ranks(ballots.ranks, weights)
    return ballots.above.numpy().transpose(1, 2, 0) @ weights


def _sorted(scores: np.ndarray) -> np.ndarray:
    return np.argsort(-scores, kind="stable")


def _support(
    ballots: Ballots, method: str, order: np.ndarray, resamples: int, generator: torch.Generator | None
) -> Tensor:
    """The share of resamples that put a above b. Weights that are not whole are drawn with their rows."""
    device = None if generator is None else generator.device
    whole = bool((ballots.weights == np.rint(ballots.weights)).all())
    rows, total = len(ballots.weights), round(ballots.total)
    shares = torch.from_numpy(ballots.weights if whole else np.ones(rows)).to(device)
    above = np.zeros((ballots.n, ballots.n))
    for _ in range(resamples):
        drawn = torch.multinomial(shares, total if whole else rows, replacement=True, generator=generator)
        weights = np.bincount(drawn.cpu().numpy(), minlength=rows) * (1.0 if whole else ballots.weights)
        counts = _counts(ballots, weights)
        if method == "kemeny":
            again = kemeny(counts, order, STEP_EFFORT).order
        else:
            again = _sorted(scores_of(method, ballots.ranks, weights, counts))
        place = np.argsort(again)
        above += place[:, None] < place
    return torch.from_numpy(above / resamples)
