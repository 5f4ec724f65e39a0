"""Plackett-Luce by maximum likelihood, from complete rankings, top-k lists and rankings of subsets."""

import warnings as python_warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from factorank.distributions.fitting.checks import Unranked, padded_orders, row_weights
from factorank.distributions.fitting.graphs import groups, strongly_connected
from factorank.distributions.fitting.report import FitError, FitReport, FitWarning

if TYPE_CHECKING:
    from factorank.distributions.plackett_luce import PlackettLuce

GAP = 30.0
"""Nats between groups of items that the likelihood would drive apart for ever: odds of 10^13 to one."""


def fit_plackett_luce(
    orders: Tensor,
    weights: Tensor | None = None,
    *,
    unranked: Unranked | None = None,
    items: int | None = None,
    penalty: float = 0.0,
    start: Tensor | None = None,
    max_iterations: int = 100,
    tolerance: float = 1e-9,
) -> "PlackettLuce":
    r"""The maximum-likelihood Plackett-Luce law of orders ``(*batch, k)``; its logits have mean zero.

    The log-likelihood :math:`\sum_v w_v \sum_i θ_{x_i} - \log \sum_{j ≥ i} e^{θ_{x_j}}` is concave in the
    logits θ. It is climbed by Newton steps that are solved by conjugate gradients; one pass over the rankings
    gives the product of the Hessian with a vector, and a step that does not raise the likelihood is shortened
    until it does, so the ascent is monotone.

    Orders may end in -1. ``unranked="below"`` means that the items left out come after the listed ones (top-k
    lists), ``"incomparable"`` that the order is one of the listed items alone. ``items`` is the number of
    items where the orders are shorter than that.

    The maximum exists, and is unique, exactly if every item beats every other one, at least through a chain
    of others (the graph of who was ever placed above whom is strongly connected; Ford, 1957). If not, a
    :class:`FitWarning` names the items, and the law returned comes within :math:`10^{-12}` a choice of the
    least upper bound: groups that always win are put 30 nats above those they beat, and each is fitted on its
    own. ``penalty`` takes :math:`\tfrac{λ}{2} \sum_j θ_j^2` off the log-likelihood, a normal prior, which
    makes the maximum finite and unique whatever the data.

    Hunter, "MM algorithms for generalized Bradley-Terry models", 2004; Plackett, "The analysis of
    permutations", 1975.

    >>> law = fit_plackett_luce(torch.tensor([[0, 1, 2], [0, 2, 1], [1, 0, 2], [2, 1, 0]]))
    >>> law.report.converged, law.logits.argmax().item()
    (True, 0)
    """
    from factorank.distributions.plackett_luce import PlackettLuce

    rows, lengths, n = padded_orders(orders, unranked, items)
    counted = row_weights(weights, tuple(orders.shape[:-1]))
    if not (np.isfinite(penalty) and penalty >= 0):
        raise FitError(f"a penalty is finite and at least 0, not {penalty}")
    data = _collect(rows, lengths, counted, n, unranked == "below")
    logits = np.zeros(n)
    if start is not None:
        if start.shape != (n,) or not bool(start.isfinite().all()):
            raise FitError(f"start holds {n} finite logits, not {start.tolist()}")
        logits = start.detach().to("cpu", torch.float64).numpy().copy()
    edges = _beats(data, n)
    connected = n == 1 or strongly_connected(edges)
    said: list[str] = []
    level = np.zeros(n)
    parts = [np.arange(n)]
    if not connected:
        parts = groups(edges)
        said, level = explain(edges, parts)
        if penalty == 0:
            said = [f"{text}; a penalty= above 0 settles it" for text in said]
            for text in said:
                python_warnings.warn(text, FitWarning, stacklevel=3)
            label = np.empty(n, dtype=np.int64)
            for name, part in enumerate(parts):
                label[part] = name
            data = _split(data, label)
        else:
            said = [f"{text}; the penalty decides" for text in said]
            parts, level = [np.arange(n)], np.zeros(n)
    fitted, likelihood, iterations, converged = _climb(data, logits, penalty, max_iterations, tolerance)
    for part in parts:
        fitted[part] -= fitted[part].mean()
    fitted += level
    fitted -= fitted.mean()
    if not converged:
        said.append(f"stopped after {iterations} iterations, before the gradient was small")
        python_warnings.warn(said[-1], FitWarning, stacklevel=3)
    law = PlackettLuce(logits=torch.from_numpy(fitted).to(orders.device))
    law.report = FitReport(
        "Plackett-Luce",
        rankings=float(counted.sum()),
        log_likelihood=likelihood,
        parameters=n - 1,
        iterations=iterations,
        converged=converged,
        warnings=tuple(said),
    )
    return law


def improve(
    rows: np.ndarray,
    weights: np.ndarray,
    logits: np.ndarray,
    penalty: float,
    steps: int = 3,
    *,
    below: bool = False,
) -> np.ndarray:
    """Logits, of mean zero, after a few steps up the penalised likelihood: an M-step that is cut short.

    No more than a few: where the likelihood has no maximum they would go on for ever.
    """
    data = _collect(rows, (rows >= 0).sum(1), weights, len(logits), below)
    found = _climb(data, logits.copy(), penalty, steps, 1e-9)[0]
    return found - found.mean()


@dataclass(frozen=True)
class _Choices:
    """Rankings in a row: r holds ``items[starts[r]:starts[r+1]]``, the first ``stages[r]`` chosen."""

    items: np.ndarray
    starts: np.ndarray
    stages: np.ndarray
    weights: np.ndarray


def _collect(rows: np.ndarray, lengths: np.ndarray, weights: np.ndarray, n: int, below: bool) -> _Choices:
    """The rankings, less those of weight zero; to top-k lists the rest of the items is added."""
    used = weights > 0
    rows, lengths, weights = rows[used], lengths[used], weights[used]
    if below and (lengths < n).any():
        places = np.tile(
            np.arange(n, 2 * n + 1), (len(rows), 1)
        )  # the unlisted after the listed; n takes the -1
        np.put_along_axis(places, np.where(rows < 0, n, rows), np.arange(rows.shape[1])[None], axis=1)
        items, sizes = np.argsort(places[:, :n], axis=1).reshape(-1), np.full(len(rows), n)
    else:
        items, sizes = rows[rows >= 0], lengths
    stages = np.minimum(lengths, sizes - 1)
    starts = np.concatenate([[0], np.cumsum(sizes)])
    return _Choices(items.astype(np.int32), starts.astype(np.int64), stages.astype(np.int64), weights)


def _beats(data: _Choices, n: int) -> np.ndarray:
    """Who is placed directly above whom, somewhere: bool ``(n, n)``; its closure says who beats whom."""
    edges = np.zeros((n, n), dtype=bool)
    owner = np.repeat(np.arange(len(data.stages)), np.diff(data.starts))
    place = np.arange(len(data.items)) - data.starts[owner]
    chosen = place < data.stages[owner]
    here = np.flatnonzero(chosen)
    edges[data.items[here], data.items[here + 1]] = True
    # The last choice was made against all that were left, of which only the first is its neighbour.
    rest = np.flatnonzero(~chosen & (data.stages[owner] > 0))
    edges[data.items[data.starts[owner[rest]] + data.stages[owner[rest]] - 1], data.items[rest]] = True
    return edges


def explain(edges: np.ndarray, parts: list[np.ndarray]) -> tuple[list[str], np.ndarray]:
    """Say why there is no maximum, and give each item the level, in nats, that its group goes to."""
    n = len(edges)
    depth = np.zeros(len(parts), dtype=np.int64)
    between = np.array([[edges[np.ix_(a, b)].any() for b in parts] for a in parts])
    for later in range(len(parts)):
        above = np.flatnonzero(between[:later, later])
        if len(above):
            depth[later] = depth[above].max() + 1
    level = np.empty(n)
    for name, part in enumerate(parts):
        level[part] = -GAP * depth[name]
    said = []
    apart = groups(edges | edges.T)
    if len(apart) > 1:
        said.append(
            "the logits are not determined: no ranking compares"
            f" {', or '.join(f'{_names(part)} with the rest' for part in apart[1:])}"
        )
    winners = [parts[k] for k in range(len(parts)) if between[k, k + 1 :].any() and not between[:k, k].any()]
    losers = [parts[k] for k in range(len(parts)) if between[:k, k].any() and not between[k, k + 1 :].any()]
    if winners:
        said.append(
            "the likelihood has no maximum: nothing else is ever placed above"
            f" {'; '.join(_names(part) for part in winners)}, and nothing else below"
            f" {'; '.join(_names(part) for part in losers)}, so their logits go apart for ever"
        )
    return said, level


def _names(part: np.ndarray) -> str:
    listed = ", ".join(str(item) for item in part[:10].tolist())
    return f"item {listed}" if len(part) == 1 else f"items {listed}{', …' if len(part) > 10 else ''}"


def _split(data: _Choices, label: np.ndarray) -> _Choices:
    """Every ranking cut into one for each group: what matters when the groups are far apart."""
    owner = np.repeat(np.arange(len(data.stages)), np.diff(data.starts))
    place = np.arange(len(data.items)) - data.starts[owner]
    # An item that was not chosen but left over is as good as listed only if it is the single last one.
    chosen = place < data.stages[owner]
    key = owner * (int(label.max()) + 1) + label[data.items]
    by = np.argsort(key, kind="stable")
    _, first, sizes = np.unique(key[by], return_index=True, return_counts=True)
    stages = np.minimum(np.add.reduceat(chosen[by].astype(np.int64), first), sizes - 1)
    starts = np.concatenate([[0], np.cumsum(sizes)])
    return _Choices(data.items[by], starts, stages, data.weights[owner[by[first]]])


def _climb(
    data: _Choices, logits: np.ndarray, penalty: float, max_iterations: int, tolerance: float
) -> tuple[np.ndarray, float, int, bool]:
    """Newton's method with conjugate gradients: logits, log-likelihood, iterations, whether it converged."""
    from factorank.kernels import fitting as kernels

    n = len(logits)
    table = (data.items, data.starts, data.stages, data.weights)
    inverse = np.empty(len(data.items))

    def value(theta: np.ndarray) -> tuple[float, float, np.ndarray, np.ndarray]:
        gradient, diagonal = np.empty(n), np.empty(n)
        likelihood = kernels.stage_sums(*table, theta, inverse, gradient, diagonal)
        objective = likelihood - penalty / 2 * float(theta @ theta)
        return objective, likelihood, gradient - penalty * theta, diagonal + penalty

    def times(vector: np.ndarray) -> np.ndarray:
        out = np.empty(n)
        kernels.curvature_times(*table, logits, inverse, vector, out)
        return out + penalty * vector

    choices = float((data.weights * data.stages).sum())
    objective, likelihood, gradient, diagonal = value(logits)
    for iteration in range(max_iterations):
        if np.abs(gradient).max() <= tolerance * max(choices, 1e-300) / n:
            return logits, likelihood, iteration, True
        step = _solve(times, gradient, diagonal)
        step *= min(1.0, 5.0 / np.abs(step).max())  # far from the maximum the quadratic model means little
        slope = float(gradient @ step)
        for _ in range(40):
            tried = value(logits + step)
            if tried[0] >= objective + 1e-4 * slope:
                break
            # Near the maximum the gain drowns in the rounding of the sum; the gradient still tells.
            if slope < 1e-12 * abs(objective) and np.abs(tried[2]).max() < np.abs(gradient).max():
                break
            step, slope = step / 2, slope / 2
        else:
            small = bool(np.abs(gradient).max() <= 1e-6 * choices / n)
            value(logits)
            return logits, likelihood, iteration, small
        logits = logits + step
        objective, likelihood, gradient, diagonal = tried
    return logits, likelihood, max_iterations, False


def _solve(times, gradient: np.ndarray, diagonal: np.ndarray) -> np.ndarray:  # type: ignore[no-untyped-def]
    """Conjugate gradients, scaled by the diagonal, to a residual that shrinks with the gradient."""
    scale = 1 / np.maximum(diagonal, 1e-12 * max(diagonal.max(), 1e-300))
    step, residual = np.zeros_like(gradient), gradient.copy()
    scaled = scale * residual
    direction, energy = scaled.copy(), float(residual @ scaled)
    goal = min(0.1, np.sqrt(energy / max(float(diagonal.sum()), 1e-300))) ** 2 * energy
    for _ in range(2 * len(gradient) + 10):
        product = times(direction)
        curved = float(direction @ product)
        if curved <= 0:
            break
        length = energy / curved
        step += length * direction
        residual -= length * product
        scaled = scale * residual
        before, energy = energy, float(residual @ scaled)
        if energy <= goal:
            break
        direction = scaled + energy / before * direction
    return step if step.any() else scale * gradient
