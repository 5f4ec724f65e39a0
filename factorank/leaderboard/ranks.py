"""What is certain about ranks: confidence sets, tiers, and the partial order of what no doubt is left about.

The difference of two scores is tested for every pair of items. The critical value is the quantile of the
largest studentised error over the pairs that are tested, which are fewer after each round of rejections
(step-down), so that the probability of any false statement stays below one minus the level. An item ranks
below those that are certainly better and above those that are certainly worse.

Mogstad, Romano, Shaikh and Wilhelm, "Inference for ranks with applications to mobility across neighbourhoods
and academic achievement across countries", 2024; Romano and Wolf, "Exact and approximate stepdown methods for
multiple hypothesis testing", 2005.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from factorank.errors import DistributionError


@dataclass(frozen=True)
class RankSets:
    """Confidence sets of ranks, counted from 1, the best: ``low`` and ``high``, int64 ``(n,)``."""

    low: Tensor
    high: Tensor
    above: Tensor
    """Bool ``(n, n)``: whether item a is certainly above item b."""
    critical: float | None = None
    """Of simultaneous sets: the standard errors that a difference takes to be certain, in the last round."""


def marginal_rank_sets(scores: Tensor, errors: Tensor, level: float) -> RankSets:
    """For each item a set that holds its rank with probability ``level``, each by itself.

    ``errors (draws, n)`` are draws of the error of the scores ``(n,)``: from a normal law, or refits of the
    bootstrap less the fit.
    """
    t, spread = _statistics(scores, errors, level)
    n = len(scores)
    active = ~torch.eye(n, dtype=torch.bool)
    above, below = torch.zeros_like(active), torch.zeros_like(active)  # of item j in row j
    while True:
        # Two hypotheses for each pair of an item j: that j is not above k, and that k is not above j.
        largest = torch.maximum(
            _largest_errors(errors, spread, active & ~above),
            _largest_errors(-errors, spread, active & ~below),
        )
        critical = _quantile(largest, level)[:, None]
        new_above, new_below = above | (active & (t > critical)), below | (active & (-t > critical))
        if torch.equal(new_above, above) and torch.equal(new_below, below):
            return RankSets(1 + below.sum(1), n - above.sum(1), above)
        above, below = new_above, new_below


def simultaneous_rank_sets(scores: Tensor, errors: Tensor, level: float) -> RankSets:
    """A set for each item; with probability ``level`` they hold the ranks of all items together."""
    t, spread = _statistics(scores, errors, level)
    n = len(scores)
    active = ~torch.eye(n, dtype=torch.bool)
    above = torch.zeros_like(active)
    while True:
        largest = _largest_errors(errors, spread, active & ~above).amax(1, keepdim=True)
        critical = _quantile(largest, level)
        more = above | (active & (t > critical))
        if torch.equal(more, above):
            return RankSets(1 + above.sum(0), n - above.sum(1), above, float(critical))
        above = more


def naive_rank_sets(low: Tensor, high: Tensor) -> RankSets:
    """The ranks that intervals of the scores seem to allow: those of their ends. They are not valid sets."""
    above = low[:, None] > high[None, :]
    return RankSets(1 + above.sum(0), len(low) - above.sum(1), above)


def bonferroni_rank_sets(scores: Tensor, errors: Tensor, level: float) -> RankSets:
    """Simultaneous sets from as many separate tests as there are ordered pairs: valid, and wide."""
    t, _ = _statistics(scores, errors, level)
    n = len(scores)
    share = (1 - level) / max(n * (n - 1), 1)
    critical = torch.special.ndtri(torch.tensor(1 - share, dtype=torch.float64))
    above = (t > critical) & ~torch.eye(n, dtype=torch.bool)
    return RankSets(1 + above.sum(0), n - above.sum(1), above)


def tiers(order: Tensor, above: Tensor) -> Tensor:
    """The tier of each item, from 1: a tier begins at the first item that is certainly below the leader of
    the tier before. ``order`` lists the items, best first.

    >>> above = torch.tensor([[0, 0, 1], [0, 0, 0], [0, 0, 0]]).bool()
    >>> tiers(torch.tensor([0, 1, 2]), above)
    tensor([1, 1, 2])
    """
    result = torch.zeros_like(order)
    leader, tier = int(order[0]), 1
    for item in order.tolist():
        if above[leader, item]:
            leader, tier = item, tier + 1
        result[item] = tier
    return result


def certain_edges(above: Tensor) -> list[tuple[int, int]]:
    """The partial order of what is certain, without the edges that follow from others: pairs (better, worse).

    >>> certain_edges(torch.tensor([[0, 1, 1], [0, 0, 1], [0, 0, 0]]).bool())
    [(0, 1), (1, 2)]
    """
    through = above.long() @ above.long() > 0
    return [(a, b) for a, b in (above & ~through).nonzero().tolist()]


def battles_to_separate(difference: float, variance: float, information: float, critical: float) -> int:
    """How many further comparisons of two items with each other would separate them.

    ``difference`` and ``variance`` are those of their scores now, ``information`` what one comparison of the
    two adds to the precision of the difference. As many as make the difference, if it stays as it is,
    ``critical`` standard errors; 0 if it is so large already.

    >>> battles_to_separate(0.1, 0.04, 0.25, critical=2.0)
    1500
    """
    missing = (critical / difference) ** 2 - 1 / variance
    return max(0, math.ceil(missing / information))


def _statistics(scores: Tensor, errors: Tensor, level: float) -> tuple[Tensor, Tensor]:
    """The studentised differences of the scores ``(n, n)``, and what they were divided by."""
    if scores.ndim != 1 or errors.ndim != 2 or errors.shape[1] != len(scores) or not len(errors):
        shapes = f"{tuple(scores.shape)} and errors {tuple(errors.shape)}"
        raise DistributionError(f"sets of ranks take scores (n,) and errors (draws, n), not scores {shapes}")
    if not 0 < level < 1:
        raise DistributionError(f"{{parameter}} is between 0 and 1, not {level!r}", parameter="level")
    centred = errors - errors.mean(0)
    covariance = centred.T @ centred / max(len(errors) - 1, 1)
    own = covariance.diagonal()
    spread = (own[:, None] + own[None, :] - 2 * covariance).clamp(min=1e-300).sqrt()
    spread.fill_diagonal_(1.0)
    return (scores[:, None] - scores[None, :]) / spread, spread


def _largest_errors(errors: Tensor, spread: Tensor, tested: Tensor) -> Tensor:
    """For each draw and item j the largest studentised error of j less k over the pairs that are tested, bool
    ``(n, n)``: ``(draws, n)``, minus infinity where there is nothing to test."""
    from factorank.kernels.comparisons import largest_errors

    out, shift = torch.empty_like(errors), torch.where(tested, 0.0, -torch.inf).double()
    largest_errors(errors.numpy(), (1 / spread).numpy(), shift.numpy(), out.numpy())
    return out


def _quantile(values: Tensor, level: float) -> Tensor:
    """The quantile of each column, the next larger draw being taken; infinite if nothing is tested."""
    ordered = values.sort(0).values
    index = min(math.ceil(level * (len(values) + 1)) - 1, len(values) - 1)
    quantile = ordered[index]
    return torch.where(quantile == -torch.inf, torch.inf, quantile)
