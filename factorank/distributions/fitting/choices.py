"""The likelihood of the choices in rankings under Plackett-Luce: the data, who beats whom, the ascent."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from torch import Tensor

from factorank.distributions.fitting.checks import Unranked, padded_orders, ranks_of_padded, row_weights
from factorank.distributions.fitting.graphs import groups
from factorank.distributions.fitting.newton import Ascent, ascend

GAP = 30.0
"""Nats between groups of items that the likelihood would drive apart for ever: odds of 10^13 to one."""
MOST_WORK = 3 * 10**8
"""Standard errors are computed where items times choices are not more than these: half a second."""


@dataclass(frozen=True)
class Choices:
    """Rankings in a row: r holds ``items[starts[r]:starts[r+1]]``, the first ``stages[r]`` chosen."""

    items: np.ndarray
    starts: np.ndarray
    stages: np.ndarray
    weights: np.ndarray

    def chosen(self) -> tuple[np.ndarray, np.ndarray]:
        """The ranking that each entry of ``items`` belongs to, and whether it was chosen there."""
        owner = np.repeat(np.arange(len(self.stages)), np.diff(self.starts))
        return owner, np.arange(len(self.items)) - self.starts[owner] < self.stages[owner]


def read_choices(
    orders: Tensor, weights: Tensor | None, unranked: Unranked | None, items: int | None
) -> tuple[Choices, int]:
    """The choices in orders that may end in -1, and the number of items.

    Straight from the orders: places of all items would take much memory where lists are short and items many.
    """
    rows, lengths, n = padded_orders(orders, unranked, items)
    votes = row_weights(weights, tuple(orders.shape[:-1]))
    used = votes > 0
    rows, lengths, votes = rows[used], lengths[used], votes[used]
    if unranked == "below" and (lengths < n).any():
        ranks = ranks_of_padded(rows, n, left_out=-1)
        return choices_of(np.where(ranks < 0, ranks.max(1, keepdims=True) + 1, ranks), votes), n
    starts = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    stages = np.maximum(lengths - 1, 0).astype(np.int64)
    return Choices(rows[rows >= 0].astype(np.int32), starts, stages, votes), n


def choices_of(ranks: np.ndarray, weights: np.ndarray) -> Choices:
    """The choices in places ``(rows, n)``, which may end in a level of tied items; -1 is an item left out.

    The items of the last level are what was left when the choices ended. The order among them has not been
    told, and whatever it is, the probability of all of them together is one.

    >>> choices_of(np.array([[1, 0, 2, 2], [-1, 1, 0, -1]]), np.ones(2)).items
    array([1, 0, 2, 3, 2, 1], dtype=int32)
    """
    n = ranks.shape[1]
    items = np.argsort(np.where(ranks < 0, n, ranks), axis=1, kind="stable")
    sizes = (ranks >= 0).sum(1)
    items = items[np.arange(n) < sizes[:, None]]
    last = (ranks == ranks.max(1, keepdims=True)) & (ranks >= 0)
    starts = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    return Choices(items.astype(np.int32), starts, (sizes - last.sum(1)).astype(np.int64), weights)


def tied_above(ranks: np.ndarray) -> np.ndarray:
    """Whether each row ties items above its last level: bool ``(rows,)``."""
    levels = np.zeros((len(ranks), ranks.shape[1] + 1), dtype=np.int64)
    np.add.at(levels, (np.arange(len(ranks))[:, None], ranks), 1)  # -1: the last column
    rows = np.arange(len(ranks))
    levels[rows, np.maximum(ranks.max(1), 0)] = 0
    return np.asarray((levels[:, :-1] > 1).any(1))


def standard_errors(
    data: Choices, logits: np.ndarray, penalty: float, features: np.ndarray | None = None
) -> np.ndarray:
    """Of logits of mean zero, or of the coefficients of features, from the curvature of the likelihood.

    NaN where that would take long.
    """
    n = len(logits)
    if n * len(data.items) > MOST_WORK:
        return np.full(n if features is None else features.shape[1], np.nan)
    information = curvature(data, logits)
    if features is not None:
        information = features.T @ information @ features + penalty * np.eye(features.shape[1])
        return np.sqrt(np.maximum(np.diag(np.linalg.inv(information)), 0.0))
    return np.sqrt(np.maximum(np.diag(centred_inverse(information + penalty * np.eye(n), n)), 0.0))


def centred_inverse(information: np.ndarray, n: int) -> np.ndarray:
    """The covariance of parameters of which the first n are logits of mean zero.

    The likelihood does not change when a number is added to all logits: that direction is taken out.
    """
    scale = max(float(np.trace(information[:n, :n])) / n, 1e-300)
    gauged = information.copy()
    gauged[:n, :n] += scale / n
    centre = np.eye(len(information))
    centre[:n, :n] -= 1 / n
    return np.asarray(centre @ np.linalg.inv(gauged) @ centre)


def curvature(data: Choices, logits: np.ndarray) -> np.ndarray:
    """Minus the Hessian of the log-likelihood: ``(n, n)``."""
    from factorank.kernels.fitting import choice_likelihood, hessian_product

    n = len(logits)
    table = (data.items, data.starts, data.stages, data.weights)
    inverse, gradient, diagonal = np.empty(len(data.items)), np.empty(n), np.empty(n)
    choice_likelihood(*table, logits, inverse, gradient, diagonal)
    result = np.empty((n, n))
    for item in range(n):
        hessian_product(*table, logits, inverse, np.eye(n)[item], result[item])
    return result


def beats(data: Choices, n: int) -> np.ndarray:
    """Who is placed directly above whom, somewhere: bool ``(n, n)``; its closure says who beats whom."""
    edges = np.zeros((n, n), dtype=bool)
    owner, chosen = data.chosen()
    here = np.flatnonzero(chosen)
    edges[data.items[here], data.items[here + 1]] = True
    # The last choice was made against all that were left, of which only the first is its neighbour.
    rest = np.flatnonzero(~chosen & (data.stages[owner] > 0))
    edges[data.items[data.starts[owner[rest]] + data.stages[owner[rest]] - 1], data.items[rest]] = True
    return edges


def split_choices(data: Choices, parts: list[np.ndarray]) -> Choices:
    """Every ranking cut into one for each group of items, which is all that matters for groups far apart."""
    label = np.empty(sum(map(len, parts)), dtype=np.int64)
    for name, part in enumerate(parts):
        label[part] = name
    # An item that was not chosen but left over is as good as listed only if it is the single last one.
    owner, chosen = data.chosen()
    key = owner * (int(label.max()) + 1) + label[data.items]
    by = np.argsort(key, kind="stable")
    _, first, sizes = np.unique(key[by], return_index=True, return_counts=True)
    stages = np.minimum(np.add.reduceat(chosen[by].astype(np.int64), first), sizes - 1)
    starts = np.concatenate([[0], np.cumsum(sizes)])
    return Choices(data.items[by], starts, stages, data.weights[owner[by[first]]])


def climb(
    data: Choices,
    start: np.ndarray,
    penalty: float,
    max_iterations: int,
    tolerance: float,
    features: np.ndarray | None = None,
) -> Ascent:
    """The logits of the largest penalised likelihood; with features ``(n, columns)`` their coefficients."""
    from factorank.kernels.fitting import choice_likelihood, hessian_product

    table = (data.items, data.starts, data.stages, data.weights)
    inverse = np.empty(len(data.items))
    n = len(start) if features is None else len(features)
    logits = np.empty(n)

    def value(theta: np.ndarray) -> tuple[float, float, np.ndarray, np.ndarray]:
        gradient, diagonal = np.empty(n), np.empty(n)
        logits[:] = theta if features is None else features @ theta
        likelihood = choice_likelihood(*table, logits, inverse, gradient, diagonal)
        if features is not None:
            gradient, diagonal = features.T @ gradient, (features**2).T @ diagonal
        objective = likelihood - penalty / 2 * float(theta @ theta)
        return objective, likelihood, gradient - penalty * theta, diagonal + penalty

    def times(vector: np.ndarray) -> np.ndarray:
        out = np.empty(n)
        hessian_product(*table, logits, inverse, vector if features is None else features @ vector, out)
        return (out if features is None else features.T @ out) + penalty * vector

    choices = max(float((data.weights * data.stages).sum()), 1e-300)
    goal = tolerance * choices / n
    return ascend(value, times, start, goal, max_iterations, rough=1e-6 * choices / n)


def improve(data: Choices, logits: np.ndarray, penalty: float, steps: int) -> np.ndarray:
    """Logits, of mean zero, after a few steps up the penalised likelihood: an M-step that is cut short.

    Where the likelihood has no maximum they would go on for ever.
    """
    improved = climb(data, logits.copy(), penalty, max_iterations=steps, tolerance=1e-9).parameters
    return improved - improved.mean()


def explain(
    edges: np.ndarray, names: Sequence[str] | None = None, *, parameter: str = "logits", vote: str = "ranking"
) -> tuple[list[str], list[np.ndarray], np.ndarray]:
    """Why there is no maximum, the groups that go apart, and the level, in nats, to which each item goes.

    ``edges`` says who was ever placed above whom, bool ``(n, n)``. ``names`` are those of the items;
    ``parameter`` and ``vote`` are what the parameters and the data are called.
    """
    parts = groups(edges)
    depth = np.zeros(len(parts), dtype=np.int64)
    between = np.array([[edges[np.ix_(a, b)].any() for b in parts] for a in parts])
    for later in range(len(parts)):
        above = np.flatnonzero(between[:later, later])
        if len(above):
            depth[later] = depth[above].max() + 1
    level = np.empty(len(edges))
    for name, part in enumerate(parts):
        level[part] = -GAP * depth[name]
    reasons = []
    apart = groups(edges | edges.T)
    if len(apart) > 1:
        reasons.append(
            f"the {parameter} are not determined: no {vote} compares"
            f" {', or '.join(f'{_names(part, names)} with the rest' for part in apart[1:])}"
        )
    winners = [parts[k] for k in range(len(parts)) if between[k, k + 1 :].any() and not between[:k, k].any()]
    losers = [parts[k] for k in range(len(parts)) if between[:k, k].any() and not between[k, k + 1 :].any()]
    if winners:
        reasons.append(
            "the likelihood has no maximum: nothing else is ever placed above"
            f" {'; '.join(_names(part, names) for part in winners)}, and nothing else below"
            f" {'; '.join(_names(part, names) for part in losers)}, so their {parameter} go apart for ever"
        )
    return reasons, parts, level


def _names(part: np.ndarray, names: Sequence[str] | None) -> str:
    listed = ", ".join(str(item) if names is None else repr(names[item]) for item in part[:10].tolist())
    return f"item {listed}" if len(part) == 1 else f"items {listed}{', …' if len(part) > 10 else ''}"
