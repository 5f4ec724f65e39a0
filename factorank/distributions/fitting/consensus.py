"""The consensus of rankings: the order with the least total Kendall distance to them (Kemeny)."""

import itertools
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from factorank.distributions.fitting.ballots import Votes, read_ballots
from factorank.distributions.fitting.checks import Unranked
from factorank.distributions.fitting.errors import FitError
from factorank.distributions.fitting.graphs import groups
from factorank.distributions.fitting.voting_rules import METHODS, by_rule
from factorank.errors import PermutationError

EXACT_UP_TO = 16
"""The largest group of items that is ordered exactly: 2^16 subsets take a few hundredths of a second."""


@dataclass(frozen=True)
class Consensus:
    """A consensus order ``(n,)``, its mean distance to the rankings, and whether it is proven closest."""

    order: Tensor
    distance: float
    exact: bool


def consensus(
    orders: Votes,
    weights: Tensor | None = None,
    *,
    method: str = "kemeny",
    unranked: Unranked | None = None,
    items: int | None = None,
) -> Consensus:
    r"""A consensus of rankings. Kemeny's is :math:`\arg\min_σ \sum_v w_v\, d(σ, x_v)`, with Kendall's d.

    Only the counts of voters who put a above b matter. Where nobody in a set B of items beats anyone in the
    rest A by a majority, some best order puts A above B (the extended Condorcet criterion), so the items fall
    into groups, top to bottom, that are ordered on their own: by dynamic programming over subsets up to 16
    items, which is exact, and by a local search over moves of one item, from the Borda and Copeland orders,
    beyond. ``exact`` is true if all groups were small enough. Of several best orders the result is always the
    same.

    Args:
        orders: as of :meth:`Mallows.fit`.
        weights: of the rankings, ``(*batch,)``.
        method: "kemeny", "borda", "copeland", "schulze" or "rrf" (reciprocal rank fusion).
        unranked: as of :meth:`PlackettLuce.fit`.
        items: as of :meth:`PlackettLuce.fit`.

    Kemeny, "Mathematics without numbers", 1959; Truchon, "An extension of the Condorcet criterion", 1998.

    >>> consensus(torch.tensor([[0, 1, 2, 3], [0, 2, 1, 3], [1, 0, 2, 3]]))
    Consensus(order=tensor([0, 1, 2, 3]), distance=0.666..., exact=True)
    """
    from factorank.kernels.fitting import pairwise_counts_of_ranks

    if method not in METHODS:
        raise FitError(f"{{parameter}} is one of {', '.join(METHODS)}, not {method!r}", parameter="method")
    ballots = read_ballots(orders, weights, unranked, items)
    if ballots.above is None:
        counts = pairwise_counts_of_ranks(ballots.ranks, ballots.weights)
    else:
        counts = ballots.above.numpy().transpose(1, 2, 0) @ ballots.weights
    if method == "kemeny":
        order, exact = kemeny(counts)
    else:
        order, exact = by_rule(method, ballots.ranks, ballots.weights, counts), False
    distance = disagreement(counts, order) / ballots.total
    return Consensus(torch.from_numpy(order).to(ballots.device), float(distance), exact)


def pairwise_counts(
    rows: np.ndarray, weights: np.ndarray, place_weights: np.ndarray | None = None
) -> np.ndarray:
    """``(n, n)``: entry ``[a, b]`` is the weight of the rows that put a above b."""
    from factorank.kernels import fitting

    if place_weights is None:
        place_weights = np.ones(rows.shape[1])
    return fitting.pairwise_counts(np.ascontiguousarray(rows), weights, place_weights)


def disagreement(counts: np.ndarray, order: np.ndarray) -> float:
    """The weight of the pairs that the rankings behind ``counts`` order differently."""
    return float(np.tril(counts[np.ix_(order, order)]).sum())


def least_disagreements(counts: np.ndarray) -> np.ndarray:
    """The :func:`disagreement` with the best order for each of many counts ``(m, n, n)``.

    Up to 7 items all orders are tried at once, as a product of matrices.

    >>> least_disagreements(np.array([[[0.0, 2.0], [5.0, 0.0]]]))
    array([2.])
    """
    n = counts.shape[-1]
    if n > 7:
        return np.array([disagreement(each, kemeny(each)[0]) for each in counts])
    first, second = np.triu_indices(n, 1)
    ranks = np.array(list(itertools.permutations(range(n))))
    above = (ranks[:, first] < ranks[:, second]).astype(float)  # an order pays for the pairs it turns round
    return (counts[:, second, first] @ above.T + counts[:, first, second] @ (1 - above).T).min(1)


def kemeny(counts: np.ndarray, start: np.ndarray | None = None) -> tuple[np.ndarray, bool]:
    """The order with the least :func:`disagreement`, and whether that is proven.

    ``start`` is one more order to search from: the result is never worse than it.
    """
    if start is not None and len(start) != len(counts):
        raise PermutationError(f"a consensus of {len(counts)} items cannot start from {len(start)}")
    parts, exact = [], True
    for group in groups(counts > counts.T):
        inner = counts[np.ix_(group, group)]
        if len(group) <= 2:
            parts.append(group)  # two items in one group would each beat the other: this is one item
        elif len(group) <= EXACT_UP_TO:
            from factorank.kernels.fitting import kemeny_order

            parts.append(group[kemeny_order(inner)])
        else:
            exact = False
            inner_start = None if start is None else np.argsort(np.argsort(start)[group])
            parts.append(group[_search(inner, inner_start)])
    order = np.concatenate(parts)
    if start is not None and disagreement(counts, start) < disagreement(counts, order):
        return np.asarray(start), False
    return order, exact


def _search(counts: np.ndarray, start: np.ndarray | None) -> np.ndarray:
    borda = np.argsort(-counts.sum(1), kind="stable")
    copeland = np.argsort(-(counts > counts.T).sum(1), kind="stable")
    starts = [borda, copeland] + ([] if start is None else [start])
    ends = [_descend(counts, order) for order in starts]
    return min(ends, key=lambda order: disagreement(counts, order))


def _descend(counts: np.ndarray, order: np.ndarray) -> np.ndarray:
    """Move one item at a time to where it lowers the disagreement most, until no move does."""
    margins = counts - counts.T
    order = order.copy()
    tiny = 1e-9 * max(float(counts.max()), 1.0)
    while True:
        change = insertion_changes(margins[np.ix_(order, order)])
        i, k = np.unravel_index(int(change.argmin()), change.shape)
        if change[i, k] >= -tiny:
            return order
        order = move(order, int(i), int(k))


def insertion_changes(margins: np.ndarray) -> np.ndarray:
    """``[i, k]``: what moving the item at place i to place k adds; ``margins`` are in the same order."""
    n = len(margins)
    # Up to k <= i: the items k..i-1 fall below i, each at its margin over i. Down: the mirror image.
    above = np.tril(margins.T, -1)[:, ::-1].cumsum(1)[:, ::-1]
    below = np.triu(margins, 1).cumsum(1)
    return np.where(np.arange(n) < np.arange(n)[:, None], above, below)


def move(order: np.ndarray, i: int, k: int) -> np.ndarray:
    """The order with the item at place i moved to place k."""
    return np.insert(np.delete(order, i), k, order[i])
