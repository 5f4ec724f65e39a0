"""The generalized Plackett-Luce law, in which every place has its own scores, and beam search in it."""

import math
from collections.abc import Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.distributions import constraints

from factorank.distributions.base import PermutationDistribution
from factorank.distributions.drawing import standard_gumbel
from factorank.distributions.parameters import as_reals, finite_vector
from factorank.errors import DistributionError
from factorank.permutations import cannot_check

MOST_CANDIDATES = 2**26
"""Candidates that a step of the beam search weighs at once; larger batches go through in parts."""


class GeneralizedPlackettLuce(PermutationDistribution):
    r"""Places are filled from the first to the last from the remaining items, each by scores of its own.

    .. math:: P(X) = \prod_{i=0}^{n-1} \frac{\exp s_{i, X_i}}{\sum_{j \ge i} \exp s_{i, X_j}}

    With equal rows this is :class:`factorank.PlackettLuce`; with others every place prefers items of its own.

    Args:
        logits: the scores s, place by item, ``(*batch, n, n)``, finite.

    Zhang, Yang and Liao, "SymmetricDiffusers: Learning discrete diffusion on finite symmetric groups", 2025,
    https://arxiv.org/abs/2410.02942.

    >>> law = GeneralizedPlackettLuce(torch.tensor([[0.0, 1.0, 2.0], [5.0, 0.0, 0.0], [0.0, 0.0, 0.0]]))
    >>> law.log_prob(torch.tensor([[2, 0, 1], [2, 1, 0]])).exp()
    tensor([0.6608, 0.0045])
    >>> law.beam_search(3)[0].tolist()  # a few of the most likely orders, the likeliest first
    [[2, 0, 1], [1, 0, 2], [0, 1, 2]]
    """

    arg_constraints: ClassVar[dict[str, constraints.Constraint]] = {
        "logits": constraints.independent(finite_vector.base_constraint, 2)
    }
    logits: Tensor

    def __init__(self, logits: Sequence[Any] | Tensor, *, validate_args: bool | None = None) -> None:
        self.logits = as_reals(logits)
        if self.logits.ndim < 2 or self.logits.shape[-1] != self.logits.shape[-2]:
            raise DistributionError(
                "GeneralizedPlackettLuce takes logits (*batch, n, n), place by item,"
                f" not {tuple(self.logits.shape)}"
            )
        super().__init__(self.logits.shape[:-2], self.logits.shape[-1], validate_args)

    def _log_prob(self, order: Tensor) -> Tensor:
        return choice_log_prob(self.logits, order)

    def _sample(self, shape: torch.Size, generator: torch.Generator | None) -> Tensor:
        return draw(self.logits.expand(*shape, *self.logits.shape), generator)

    def beam_search(self, width: int, keep: int | None = None) -> tuple[Tensor, Tensor]:
        """Likely orders ``(*batch, k, n)`` and their log-probabilities ``(*batch, k)``, the likeliest first.

        The ``width`` best beginnings are kept at every place; k is ``keep`` or, unless given, the width, and
        at most n!. A width of n! weighs every order.
        """
        return beam_search(self.logits, width, keep)


def choice_log_prob(scores: Tensor, order: Tensor) -> Tensor:
    """Log-probability of orders ``(*batch, n)`` under scores ``(*batch, n, n)``; shapes broadcast."""
    n = order.shape[-1]
    shape = torch.broadcast_shapes(scores.shape[:-2], order.shape[:-1])
    items = order.expand(*shape, n)[..., None, :].expand(*shape, n, n)
    listed = scores.expand(*shape, n, n).gather(-1, items)
    placed = torch.ones((n, n), dtype=torch.bool, device=scores.device).tril(-1)  # column j < i
    remaining = listed.masked_fill(placed, -torch.inf).logsumexp(-1)
    return (listed.diagonal(dim1=-2, dim2=-1) - remaining).sum(-1)


def draw(scores: Tensor, generator: torch.Generator | None = None) -> Tensor:
    """Draw an order ``(*batch, n)`` for each matrix of scores ``(*batch, n, n)``.

    Each place takes the best remaining item by scores with Gumbel noise.
    """
    _check_finite(scores)
    n = scores.shape[-1]
    scores = scores + standard_gumbel(torch.rand(scores.shape, device=scores.device, generator=generator))
    taken = torch.zeros((*scores.shape[:-2], n), dtype=torch.bool, device=scores.device)
    order = torch.empty(scores.shape[:-1], dtype=torch.int64, device=scores.device)
    for place in range(n):
        item = scores[..., place, :].masked_fill(taken, -torch.inf).argmax(-1, keepdim=True)
        taken.scatter_(-1, item, True)
        order[..., place : place + 1] = item
    return order


def beam_search(scores: Tensor, width: int, keep: int | None = None) -> tuple[Tensor, Tensor]:
    """Likely orders ``(*batch, k, n)`` and log-probabilities ``(*batch, k)`` under ``(*batch, n, n)``.

    See :meth:`GeneralizedPlackettLuce.beam_search`.
    """
    keep = width if keep is None else keep
    if not 1 <= keep <= width:
        raise DistributionError(f"a beam keeps 1 or more of the {width} orders that it finds, not {keep}")
    _check_finite(scores)
    n = scores.shape[-1]
    rows = scores.detach().reshape(-1, n, n)
    at_once = max(1, MOST_CANDIDATES // max(1, width * n))
    parts = [_search(part, width, keep) for part in rows.split(at_once)]
    orders, log_probs = (torch.cat(column) for column in zip(*parts, strict=True))
    lead = scores.shape[:-2]
    return orders.view(*lead, *orders.shape[1:]), log_probs.view(*lead, *log_probs.shape[1:])


def _search(scores: Tensor, width: int, keep: int) -> tuple[Tensor, Tensor]:
    """The beam search of scores ``(rows, n, n)``.

    A beginning is stored as its parent, a shorter beginning, and the item that it adds. A step reads only its
    log-probability and its remaining items.
    """
    rows, n, _ = scores.shape
    total = scores.new_zeros((rows, 1))
    remaining = torch.ones((rows, 1, n), dtype=torch.bool, device=scores.device)
    parents, items = [], []
    for place in range(n - 1):
        candidates = torch.where(remaining, scores[:, place, None, :], -torch.inf)
        candidates += (total - candidates.logsumexp(-1))[..., None]
        final = place == n - 2
        count = min(width, math.perm(n, place + 1))  # there are no more beginnings
        total, best = candidates.flatten(1).topk(min(keep, count) if final else count, sorted=final)
        parent, item = best // n, best % n
        remaining = remaining.gather(1, parent[..., None].expand(-1, -1, n))
        remaining = remaining.scatter_(2, item[..., None], False)
        parents.append(parent)
        items.append(item)
    beam = torch.arange(total.shape[1], device=scores.device).expand_as(total)
    order = torch.empty((*total.shape, n), dtype=torch.int64, device=scores.device)
    if n:
        order[..., -1] = remaining.int().argmax(-1)  # the last place takes the last item
    for place in reversed(range(n - 1)):
        order[..., place] = items[place].gather(1, beam)
        beam = parents[place].gather(1, beam)
    return order, total


def _check_finite(scores: Tensor) -> None:
    if not cannot_check(scores) and not bool(scores.isfinite().all()):
        raise DistributionError("an order is chosen by finite scores, but some are infinite or not a number")
