"""Plackett-Luce by maximum likelihood, from complete rankings, top-k lists and rankings of subsets."""

import warnings as python_warnings

import numpy as np
import torch
from torch import Tensor

from factorank.distributions.fitting.checks import Unranked, check_strength, padded_orders, row_weights
from factorank.distributions.fitting.choices import beats, climb, collect_choices, split_choices
from factorank.distributions.fitting.graphs import groups, strongly_connected
from factorank.distributions.fitting.registry import register_fitter
from factorank.distributions.fitting.report import FitError, FitReport, FitWarning
from factorank.distributions.plackett_luce import PlackettLuce

GAP = 30.0
"""Nats between groups of items that the likelihood would drive apart for ever: odds of 10^13 to one."""


@register_fitter(PlackettLuce)
def fit_plackett_luce(
    orders: Tensor,
    weights: Tensor | None,
    *,
    unranked: Unranked | None,
    items: int | None,
    penalty: float,
    start: Tensor | None,
    max_iterations: int,
    tolerance: float,
) -> PlackettLuce:
    """See :meth:`factorank.PlackettLuce.fit`."""
    rows, lengths, n = padded_orders(orders, unranked, items)
    weight_of_rows = row_weights(weights, tuple(orders.shape[:-1]))
    check_strength("penalty", penalty)
    data = collect_choices(rows, lengths, weight_of_rows, n, unranked == "below")
    logits = np.zeros(n)
    if start is not None:
        if start.shape != (n,) or not bool(start.isfinite().all()):
            raise FitError(f"start holds {n} finite logits, not {start.tolist()}")
        logits = start.detach().to("cpu", torch.float64).numpy().copy()
    edges = beats(data, n)
    warnings: list[str] = []
    level = np.zeros(n)
    parts = [np.arange(n)]
    if n > 1 and not strongly_connected(edges):
        reasons, groups_of_items, levels = explain(edges)
        if penalty == 0:
            warnings = [f"{text}; a penalty above 0 settles it" for text in reasons]
            for text in warnings:
                python_warnings.warn(text, FitWarning, stacklevel=3)
            parts, level = groups_of_items, levels
            data = split_choices(data, parts)
        else:
            warnings = [f"{text}; the penalty decides" for text in reasons]
    fitted, likelihood, iterations, converged = climb(data, logits, penalty, max_iterations, tolerance)
    for part in parts:
        fitted[part] -= fitted[part].mean()
    fitted += level
    fitted -= fitted.mean()
    if not converged:
        warnings.append(f"stopped after {iterations} iterations, before the gradient was small")
        python_warnings.warn(warnings[-1], FitWarning, stacklevel=3)
    law = PlackettLuce(logits=torch.from_numpy(fitted).to(orders.device))
    law.report = FitReport(
        "Plackett-Luce",
        rankings=float(weight_of_rows.sum()),
        log_likelihood=likelihood,
        parameters=n - 1,
        iterations=iterations,
        converged=converged,
        warnings=tuple(warnings),
    )
    return law


def improve(
    rows: np.ndarray, weights: np.ndarray, logits: np.ndarray, penalty: float, *, below: bool
) -> np.ndarray:
    """Logits, of mean zero, after three steps up the penalised likelihood: an M-step that is cut short.

    No more than a few: where the likelihood has no maximum they would go on for ever.
    """
    data = collect_choices(rows, (rows >= 0).sum(1), weights, len(logits), below)
    improved = climb(data, logits.copy(), penalty, max_iterations=3, tolerance=1e-9)[0]
    return improved - improved.mean()


def explain(edges: np.ndarray) -> tuple[list[str], list[np.ndarray], np.ndarray]:
    """Why there is no maximum, the groups that go apart, and the level, in nats, to which each item goes.

    ``edges`` says who was ever placed above whom, bool ``(n, n)``.
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
            "the logits are not determined: no ranking compares"
            f" {', or '.join(f'{_names(part)} with the rest' for part in apart[1:])}"
        )
    winners = [parts[k] for k in range(len(parts)) if between[k, k + 1 :].any() and not between[:k, k].any()]
    losers = [parts[k] for k in range(len(parts)) if between[:k, k].any() and not between[k, k + 1 :].any()]
    if winners:
        reasons.append(
            "the likelihood has no maximum: nothing else is ever placed above"
            f" {'; '.join(_names(part) for part in winners)}, and nothing else below"
            f" {'; '.join(_names(part) for part in losers)}, so their logits go apart for ever"
        )
    return reasons, parts, level


def _names(part: np.ndarray) -> str:
    listed = ", ".join(str(item) for item in part[:10].tolist())
    return f"item {listed}" if len(part) == 1 else f"items {listed}{', …' if len(part) > 10 else ''}"
