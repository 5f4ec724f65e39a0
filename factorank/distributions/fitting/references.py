"""The reference order of a RIM and of a generalized Mallows law that has the highest likelihood.

What an item adds to the log-likelihood depends on the set of items before it in the reference, not on their
order. So dynamic programming over sets finds the best reference, proven, up to :data:`EXACT_UP_TO` items.
Beyond that a local search moves one item at a time, from the consensus and from orders that are shaken again
and again.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch

from factorank.codes import Insertion
from factorank.distributions.fitting.dispersion import climb, log_likelihood
from factorank.distributions.fitting.kemeny import STEP_EFFORT, kemeny, pairwise_counts
from factorank.permutations import compose, inverse

EXACT_UP_TO = 18
"""The largest number of items whose reference is proven best: 2^18 sets take about a second."""
RESTARTS = 10
"""Local searches beyond that number of items, where a fit does not say otherwise."""


@dataclass(frozen=True)
class Reference:
    """A reference order ``(n,)`` and how it was found."""

    order: np.ndarray
    exact: bool | None
    """Whether it is proven best; None where it was given."""
    values: tuple[float, ...] = ()
    """The end of every local search; empty where there was none."""


def rim_reference(
    rows: np.ndarray,
    weights: np.ndarray,
    smoothing: float = 0.0,
    restarts: int = RESTARTS,
    generator: torch.Generator | None = None,
) -> Reference:
    """The reference of a RIM for votes ``(rows, n)``, with ``smoothing`` added to every count of a slot.

    Its first two items could change places, since the first two slots would, too; most votes decide.
    """
    from factorank.kernels import references

    n = rows.shape[1]
    ranks = np.argsort(rows, axis=1)
    if n <= EXACT_UP_TO:
        reference = Reference(references.best_order(references.slot_scores(ranks, weights, smoothing)), True)
    else:
        by_item = np.ascontiguousarray(ranks.T.astype(np.int32))

        def improve(order: np.ndarray) -> tuple[np.ndarray, float]:
            moved = order.copy()
            references.improve_reference(by_item, weights, moved, smoothing, n, 1000)
            return moved, slots_likelihood(by_item, weights, moved, smoothing)

        reference = _search(kemeny(pairwise_counts(rows, weights)).order, improve, restarts, generator)
    first, second = reference.order[:2] if n > 1 else (0, 0)
    if weights @ (ranks[:, second] < ranks[:, first]) > weights.sum() / 2:
        reference.order[:2] = second, first
    return reference


def sweep_reference(
    rows: np.ndarray, weights: np.ndarray, smoothing: float, start: np.ndarray | None, reach: int
) -> np.ndarray:
    """A reference of a RIM after one sweep of moves of at most ``reach`` places, from ``start``.

    Without ``start`` it begins at the consensus. The result is never worse than where it begins.
    """
    from factorank.kernels import references

    order = (
        kemeny(pairwise_counts(rows, weights), effort=STEP_EFFORT).order if start is None else start.copy()
    )
    ranks = np.ascontiguousarray(np.argsort(rows, axis=1).T.astype(np.int32))
    references.improve_reference(ranks, weights, order, smoothing, reach, 1)
    return order


def overtaking_reference(
    shares: np.ndarray, restarts: int = RESTARTS, generator: torch.Generator | None = None
) -> Reference:
    """The reference of a generalized Mallows law; ``shares[a, b]`` of the votes put a above b."""
    from factorank.kernels import references

    if len(shares) <= EXACT_UP_TO:
        return Reference(references.best_order(references.overtaking_scores(shares)), True)

    def improve(order: np.ndarray) -> tuple[np.ndarray, float]:
        moved = climb(shares, order, max_moves=10_000)[0]
        return moved, log_likelihood(shares, moved)

    return _search(kemeny(shares).order, improve, restarts, generator)


def slots_likelihood(
    ranks: np.ndarray, weights: np.ndarray, reference: np.ndarray, smoothing: float
) -> float:
    """What the local search of a RIM climbs: the log-likelihood, with ``smoothing`` votes for every slot."""
    from factorank.kernels.references import share_score

    total = 0.0
    for place, item in enumerate(reference):
        slots = (ranks[reference[:place]] < ranks[item]).sum(0)
        total += share_score(np.bincount(slots, weights, place + 1), place + 1, smoothing)
    return total


def _search(
    start: np.ndarray,
    improve: Callable[[np.ndarray], tuple[np.ndarray, float]],
    restarts: int,
    generator: torch.Generator | None,
) -> Reference:
    """Local searches from ``start``, its reverse, and from the best order so far with a part shuffled."""
    n = len(start)
    device = "cpu" if generator is None else generator.device
    ends: list[tuple[np.ndarray, float]] = []
    for number in range(restarts):
        if number < 2:
            order = start if number == 0 else start[::-1].copy()
        else:
            order = max(ends, key=lambda end: end[1])[0].copy()
            width = max(4, n // 4)
            first = int(torch.randint(n - width + 1, (), generator=generator, device=device))
            shuffled = torch.randperm(width, generator=generator, device=device).cpu().numpy()
            order[first : first + width] = order[first : first + width][shuffled]
        ends.append(improve(order))
    order, _ = max(ends, key=lambda end: end[1])
    return Reference(order, False, tuple(value for _, value in ends))


def insertion_shares(
    rows: np.ndarray, weights: np.ndarray, reference: np.ndarray, smoothing: float = 0.0
) -> tuple[np.ndarray, float]:
    """The table ``(n, n)`` of insertion probabilities, and the log-likelihood at it."""
    n = rows.shape[1]
    relative = compose(inverse(torch.from_numpy(reference)), torch.from_numpy(rows), check=False)
    slots = Insertion().encode(relative, check=False).numpy()
    cells = (slots + n * np.arange(n)).reshape(-1)
    counts = np.bincount(cells, np.repeat(weights, n), n * n).reshape(n, n)
    smooth = counts + smoothing * np.tri(n)
    probs = smooth / smooth.sum(1, keepdims=True)
    used = (counts > 0) & (probs > 0)  # a weight next to nothing may round to no share at all
    return probs, float((counts[used] * np.log(probs[used])).sum())


def mean_overtakes(probs: np.ndarray, reference: np.ndarray, total: float) -> tuple[np.ndarray, np.ndarray]:
    """For each item how many of those before it in the reference it passes, on average, and its error."""
    n = len(probs)
    slots = np.arange(n)
    mean = probs @ slots
    spread = np.maximum(probs @ slots**2 - mean**2, 0.0)
    place = np.argsort(reference)
    return (slots - mean)[place], np.sqrt(spread / total)[place]
