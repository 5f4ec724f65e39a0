"""The order with the least total Kendall distance to rankings, from their pairwise counts (Kemeny, 1959)."""

import itertools
from typing import NamedTuple

import numpy as np

from factorank.distributions.fitting.graphs import groups
from factorank.errors import PermutationError

SEED = 88172645463325252
"""Of the search, which is the same every time."""
SECOND = 2e9
"""The steps of the search in a little less than a second of one core; a round takes n² + 240 n."""
PROVEN_UP_TO = 64
"""The largest group of items of which the best orders are enumerated: a set is a word of 64 bits."""
ALWAYS_PROVEN = 16
"""The largest group of items that is ordered exactly whatever the effort."""
STEP_EFFORT = 0.02
"""Of one of many steps of a fit, which starts where the last one ended."""


class Ordering(NamedTuple):
    """An order ``(n,)``, whether it is proven best, and a number that no disagreement is below."""

    order: np.ndarray
    exact: bool
    bound: float


def kemeny(counts: np.ndarray, start: np.ndarray | None = None, effort: float = 1.0) -> Ordering:
    """The order with the least :func:`disagreement` with counts ``(n, n)``, or a good one.

    Where nobody in a set B of items beats anyone in the rest A by a majority, some best order puts A above B
    (Truchon, 1998), so the items fall into groups that are ordered on their own. A group is searched by
    iterated local search. Multipliers of its triangle inequalities bound what is possible, and dynamic
    programming over the sets within that bound proves the best order, or finds it.

    Args:
        counts: ``[a, b]`` is the weight of the rankings that put a above b.
        start: one more order to search from: the result is never worse than it.
        effort: about the seconds that a large group may take, counted in steps: results do not depend on the
            machine.
    """
    if start is not None and len(start) != len(counts):
        raise PermutationError(f"a consensus of {len(counts)} items cannot start from {len(start)}")
    parts, exact, short = [], True, 0.0
    margins, place = counts - counts.T, None if start is None else np.argsort(start)
    for group in groups(margins > 0):
        if len(group) == 1:
            parts.append(group)
            continue
        first = None if place is None else np.argsort(place[group])
        order, missing = _solve(margins[np.ix_(group, group)], first, effort)
        parts.append(group[order])
        exact, short = exact and missing == 0, short + missing
    order = np.concatenate(parts)
    if start is not None and disagreement(counts, start) < disagreement(counts, order):
        order = np.asarray(start)  # the search rounds margins that are no integers
    return Ordering(order, exact, disagreement(counts, order) - short)


def number_of_best(counts: np.ndarray, order: np.ndarray) -> int | None:
    """How many orders disagree as little as a best one; None where there are too many sets to look at.

    >>> number_of_best(np.array([[0, 2, 2], [2, 0, 3], [2, 1, 0]]), np.array([0, 1, 2]))
    3
    """
    from factorank.kernels.ordering_proofs import all_best, triangle_bound

    number, place, margins = 1, np.argsort(order), (counts - counts.T).astype(float)
    for group in groups(counts >= counts.T):  # every best order puts these groups one above the other
        if len(group) == 1:
            continue
        if len(group) > PROVEN_UP_TO:
            return None
        own = margins[np.ix_(group, group)]
        best, (grain, tiny) = np.argsort(place[group]), _grain(own)
        target = value_of(own, best)
        bound = triangle_bound(own, target + grain / 2, 200)
        _, ways = all_best(own, bound, target, tiny, min(1 << 13, 1 << len(group)))
        if not 0 < ways < 2**53:
            return None
        number *= int(ways)
    return number


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
        return np.array([disagreement(each, kemeny(each).order) for each in counts])
    first, second = np.triu_indices(n, 1)
    ranks = np.array(list(itertools.permutations(range(n))))
    above = (ranks[:, first] < ranks[:, second]).astype(float)  # an order pays for the pairs it turns round
    return (counts[:, second, first] @ above.T + counts[:, first, second] @ (1 - above).T).min(1)


def pairwise_counts(
    rows: np.ndarray, weights: np.ndarray, place_weights: np.ndarray | None = None
) -> np.ndarray:
    """``(n, n)``: entry ``[a, b]`` is the weight of the rows that put a above b."""
    from factorank.kernels import fitting

    if place_weights is None:
        place_weights = np.ones(rows.shape[1])
    return fitting.pairwise_counts(np.ascontiguousarray(rows), weights, place_weights)


def value_of(margins: np.ndarray, order: np.ndarray) -> float:
    """Half the sum of the margins of what is above over what is below."""
    return float(np.triu(margins[np.ix_(order, order)], 1).sum()) / 2


def move(order: np.ndarray, i: int, k: int) -> np.ndarray:
    """The order with the item at place i moved to place k."""
    return np.insert(np.delete(order, i), k, order[i])


def _solve(margins: np.ndarray, start: np.ndarray | None, effort: float) -> tuple[np.ndarray, float]:
    """An order of a group and how much more its value could be: 0 if it is proven best."""
    from factorank.kernels.ordering_proofs import all_best, triangle_bound

    n = len(margins)
    if n <= 2:
        return np.arange(n), 0.0  # two items in one group would each beat the other: this is one item
    margins = margins.astype(float)
    grain, tiny = _grain(margins)
    order = np.argsort(-margins.sum(1), kind="stable") if start is None else start
    missing = np.inf
    for stage in _stages(n, effort):
        order = _search(margins, order, stage.rounds)
        target = value_of(margins, order)
        bound = triangle_bound(margins, target + grain - tiny, stage.iterations)
        missing = min(missing, max(bound.value - target, 0.0))
        if missing < max(grain, 2 * tiny) - tiny:
            return order, 0.0
        if n <= PROVEN_UP_TO:
            best, ways = all_best(margins, bound, target, tiny, stage.sets)
            if ways > 0:
                return best, 0.0
    return order, missing


class _Stage(NamedTuple):
    """How much of each part of a solution is done."""

    rounds: int
    iterations: int
    sets: int


def _stages(n: int, effort: float) -> list[_Stage]:
    """A little of everything, which mostly is enough, then the rest of the effort.

    Up to :data:`ALWAYS_PROVEN` items all sets are looked at if need be.
    """
    rounds = min(10 * n * n, int(effort * SECOND / (n * n + 240 * n)))
    iterations = min(2000, int(effort * 8e7 / n**3)) if n > 12 else 0
    sets = min(max(int(effort * 4e9 / n**3), 1 << ALWAYS_PROVEN), 1 << n)
    quick = _Stage(min(20 * n, rounds), min(200, iterations), min(sets, 1 << 13))
    whole = _Stage(rounds, iterations, sets)
    return [quick] if quick == whole else [quick, whole]


def _search(margins: np.ndarray, start: np.ndarray, rounds: int) -> np.ndarray:
    from factorank.kernels.ordering import search

    widest = float(np.abs(margins).sum(1).max())
    whole = margins
    if widest >= 2**30 or (margins != np.rint(margins)).any():
        whole = np.rint(margins * (2**30 / widest))
    return search(whole, start, rounds, SEED)


def _grain(margins: np.ndarray) -> tuple[float, float]:
    """What values differ by at least, 0 if that is unknown, and what is nothing but rounding."""
    if (margins == np.rint(margins)).all() and np.abs(margins).max(initial=0) < 2**31:
        grain = float(np.gcd.reduce(np.abs(margins).astype(np.int64).reshape(-1), initial=0))
        return grain, 0.25
    return 0.0, 1e-10 * float(np.abs(margins).sum())
