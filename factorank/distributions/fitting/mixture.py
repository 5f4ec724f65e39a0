"""Mixtures by EM: many short runs, a few long ones, and components split and merged at the end.

A centre is an order, so EM stops at many places that are not the maximum. Three things help against that.
Beliefs are tempered at first, so that voters are not given to a component too early (deterministic annealing,
Ueda and Nakano, 1998); every third start has small groups beside a large one instead. Only the best of many
short runs go on. At the end components are split and merged.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from factorank.distributions.base import PermutationDistribution
from factorank.distributions.conditioning.amp import new_seed
from factorank.distributions.fitting.ballots import Ballots
from factorank.distributions.fitting.completed import Data, law_on
from factorank.distributions.fitting.em import EMSettings, cluster_voters, empty_components, rounds
from factorank.distributions.fitting.errors import FitWarning
from factorank.distributions.fitting.kemeny import STEP_EFFORT, kemeny
from factorank.distributions.fitting.mixture_families import Family
from factorank.distributions.fitting.report import FitReport
from factorank.errors import warn

MIXTURE_EM = EMSettings(max_iterations=500, tolerance=1e-6, samples=50, restarts=50)
"""The defaults; the tolerance is of the gain in nats a ranking."""
SHORT = 6
"""Iterations of the short runs, of which one in ten, and at least three, are taken to the end."""
TEMPERED = (0.6, 0.68, 0.76, 0.84, 0.92)
"""Powers of the likelihood in the first iterations from a new start, before the short run."""
CORE = 0.25
"""The share of a cluster that is its core."""
PROMISING = 0.01
"""Nats a ranking that a short run may lie below the best run and still be taken to the end."""

Start = tuple[np.ndarray, Sequence[PermutationDistribution]]
"""Shares and laws of the components at which EM begins."""


def fit_by_em(
    family: Family, ballots: Ballots, settings: EMSettings, start: Start | None = None
) -> tuple[Tensor, list[PermutationDistribution], FitReport]:
    """EM on votes of any kind: weights ``(k,)``, laws and report."""
    data = family.prepare(ballots, settings.samples, new_seed(settings.generator))
    k = settings.components
    starts = 1 if k == 1 or start is not None else settings.restarts  # more would take the same first step
    if starts == 1:
        ends = [_run(family, data, settings, _begin(family, data, settings, start))]
    else:
        ends = _from_many(family, data, settings)
    best = max(ends, key=lambda end: end.history[-1])
    if k > 1 and start is None and data.exact and starts > 1:
        best = _exchange(family, data, settings, best)
    likelihood, error = (
        (best.likelihood, None) if data.exact else data.likelihood(family, best.shares, best.laws)
    )
    warnings = []
    if data.alone:
        weights = data.weights[:, None] * best.belief
        warnings = [text for j in range(k) for text in family.doubts(data.rows, weights[:, j], j)]
    for text in warnings:
        warn(text, FitWarning)
    if not best.converged:
        warnings.append(f"the last of {len(best.history)} iterations still raised the likelihood noticeably")
    warnings += empty_components(best.shares)
    finals = [end.history[-1] for end in ends]
    finals += [] if best.history[-1] in finals else [best.history[-1]]  # after an exchange of components
    report = FitReport(
        family.title if k == 1 else f"mixture of {k} {family.title}",
        rankings=ballots.total,
        log_likelihood=likelihood,
        parameters=k * family.parameters(ballots.n) + k - 1,
        iterations=len(best.history),
        converged=best.converged,
        exact=None if family.name == "plackett-luce" else False,
        standard_error=error,
        history=tuple(best.history),
        starts=starts,
        restarts=tuple(sorted(finals, reverse=True)) if starts > 1 else (),
        warnings=tuple(warnings),
        items=ballots.items,
    )
    laws = [law_on(law, ballots.device) for law in best.laws]
    return torch.from_numpy(best.shares).to(ballots.device), laws, report


@dataclass
class _Run:
    shares: np.ndarray
    laws: list[PermutationDistribution]
    history: list[float]
    """Of the function that EM climbs: the log-likelihood, with the penalty."""
    likelihood: float
    converged: bool
    belief: np.ndarray
    """The probability of each component given each row, ``(rows, k)``, that comes from the laws."""


@dataclass
class _Start:
    belief: np.ndarray
    laws: Sequence[Any]
    """Previous laws for the first M-step, or None."""


def _from_many(family: Family, data: Data, settings: EMSettings) -> list[_Run]:
    """Short runs from all starts; the best of them go on to the end."""
    short = replace(settings, max_iterations=min(SHORT, settings.max_iterations))
    runs = []
    for number in rounds(settings.restarts, settings.progress, "starts"):
        if number % 3 == 2:  # a small group beside a large one would not outlast the tempering
            start = _begin(family, data, settings, None, cores=True)
        else:
            start = _tempered(family, data, _begin(family, data, settings, None))
        runs.append(_run(family, data, short, start))
    runs.sort(key=lambda run: -run.history[-1])
    kept = runs[: max(3, math.ceil(settings.restarts / 10))]
    if settings.max_iterations <= SHORT:
        return kept
    ends = []
    for run in kept:
        start = _Start(run.belief, run.laws)
        if not data.exact:  # the particles of another run have taken the place of its own
            start = _begin(family, data, settings, (run.shares, run.laws))
        ends.append(_run(family, data, settings, start, run.history))
    return ends


def _begin(
    family: Family, data: Data, settings: EMSettings, start: Start | None, *, cores: bool = False
) -> _Start:
    """Where EM begins: at laws that are given, at clusters of voters, or at the cores of such clusters."""
    k = settings.components
    if start is not None:
        joint = data.joint(family, *start)
        return _Start(np.exp(joint - data.evidence(joint)[data.owners, None]), start[1])
    label = np.zeros(len(data.weights), dtype=np.int64)
    if k > 1:
        label, distance = cluster_voters(data.voters.disagreement_shares, data.weights, k, settings.generator)
        if cores:
            label = _cores(label, distance, data.weights)
    return _from_labels(family, data, label, k, sure=0.99 if cores else 0.9)


def _cores(label: np.ndarray, distance: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """All clusters but the largest keep the voters closest to their centre; the others join the largest."""
    masses = np.bincount(label, weights)
    largest, kept = int(masses.argmax()), label.copy()
    for name in set(range(len(masses))) - {largest}:
        rows = np.flatnonzero(label == name)
        if len(rows):
            rows = rows[np.argsort(distance[rows], kind="stable")]
            before = np.cumsum(weights[rows]) - weights[rows]
            kept[rows[before >= CORE * masses[name]]] = largest
    return kept


def _from_labels(family: Family, data: Data, label: np.ndarray, k: int, sure: float) -> _Start:
    """Not quite hard, so that no component starts as a point mass and none without votes."""
    soft = np.ones((len(label), 1))
    if k > 1:
        soft = np.where(label[:, None] == np.arange(k), sure, (1 - sure) / (k - 1))
    if data.alone:
        return _Start(soft, [None] * k)
    # The orders that agree with a voter have no probabilities before there is a law.
    counts = data.voters.pairwise_counts(data.weights[:, None] * soft)
    laws = [family.rough(kemeny(each, effort=STEP_EFFORT).order) for each in counts]
    joint = data.joint(family, np.full(k, 1 / k), laws)
    return _Start(np.exp(joint - data.evidence(joint)[data.owners, None]), laws)


def _run(
    family: Family, data: Data, settings: EMSettings, start: _Start, before: Sequence[float] = ()
) -> _Run:
    """EM from one start. A component that has lost all its votes keeps its law, at weight zero."""
    k, total = settings.components, float(data.weights.sum())
    belief, laws, history = start.belief, list(start.laws), list(before)
    for _ in range(max(settings.max_iterations - len(history), 1)):
        shares, laws, joint = _step(family, data, belief, laws)
        evidence = data.evidence(joint)
        likelihood = float(data.weights @ evidence)
        history.append(likelihood + family.prior(laws))
        belief = np.exp(joint - np.where(np.isfinite(evidence), evidence, 0.0)[data.owners, None])
        small = len(history) > 1 and history[-1] - history[-2] < settings.tolerance * total
        converged = small or (k == 1 and family.one_step and data.alone)
        if converged:
            break
    return _Run(shares, laws, history, likelihood, converged, belief)


def _tempered(family: Family, data: Data, start: _Start) -> _Start:
    """A few iterations in which the likelihood counts less when voters are given to components."""
    belief, laws = start.belief, start.laws
    for power in TEMPERED if data.exact else ():  # the weights of particles are for the likelihood itself
        _, laws, joint = _step(family, data, belief, laws)
        evidence = data.evidence(power * joint)
        belief = np.exp(power * joint - np.where(np.isfinite(evidence), evidence, 0.0)[data.owners, None])
    return _Start(belief, laws)


def _step(
    family: Family, data: Data, belief: np.ndarray, laws: Sequence[Any]
) -> tuple[np.ndarray, list[PermutationDistribution], np.ndarray]:
    """The M-step: shares, laws, and the log of shares times probabilities ``(rows, k)``."""
    expected = data.weights[data.owners, None] * belief
    masses = expected.sum(0)
    alive = np.array(
        [mass > 1e-9 * masses.sum() or law is None for mass, law in zip(masses, laws, strict=True)]
    )
    masses = np.where(alive, masses, 0.0)
    shares = masses / masses.sum()
    columns = expected if alive.all() else np.ascontiguousarray(expected[:, alive])
    moved = iter(
        family.maximise(data.rows, columns, [law for law, use in zip(laws, alive, strict=True) if use])
    )
    after = [next(moved) if use else law for law, use in zip(laws, alive, strict=True)]
    return shares, after, data.joint(family, shares, after)


def _exchange(family: Family, data: Data, settings: EMSettings, best: _Run) -> _Run:
    """Merge two components and split a third, while that raises the likelihood (Ueda and others, 2000).

    Pairs whose rows overlap most are merged first. Each other component is tried as the one to split; a short
    run shows which is the most promising. There are as many such runs as starts, at most.
    """
    k, total, tried = settings.components, float(data.weights.sum()), 0
    short = replace(settings, max_iterations=min(3 * SHORT, settings.max_iterations))
    pairs = _by_overlap(data, best)
    while pairs and k > 2 and tried < settings.restarts:
        into, gone = pairs.pop(0)
        starts = [
            _split(data, settings, best, into, gone, split) for split in range(k) if split not in (into, gone)
        ]
        runs = [_run(family, data, short, start) for start in starts if start is not None]
        tried += len(runs)
        run = max(runs, key=lambda run: run.history[-1], default=best)
        if run is best or run.history[-1] < best.history[-1] - PROMISING * total:
            continue
        run = _run(family, data, settings, _Start(run.belief, run.laws), run.history)
        if run.history[-1] > best.history[-1] + settings.tolerance * total:
            best, pairs = run, _by_overlap(data, run)
    return best


def _by_overlap(data: Data, run: _Run) -> list[tuple[int, int]]:
    """The pairs of components, those that share most of their rows first."""
    expected = data.weights[data.owners, None] * run.belief
    lengths = np.sqrt((expected**2).sum(0))
    overlap = expected.T @ expected / np.maximum(np.outer(lengths, lengths), 1e-300)
    pairs = [(a, b) for b in range(len(lengths)) for a in range(b)]
    return sorted(pairs, key=lambda pair: -overlap[pair])


def _split(data: Data, settings: EMSettings, run: _Run, into: int, gone: int, split: int) -> _Start | None:
    """``gone`` joins ``into``, and its number goes to a half of ``split``; None if that has no votes."""
    weights = np.bincount(data.owners, data.weights[data.owners] * run.belief[:, split], len(data.weights))
    if not weights.sum() > 0:
        return None
    label, _ = cluster_voters(data.voters.disagreement_shares, weights, 2, settings.generator)
    share = np.where(label[data.owners] == 0, 0.9, 0.1)
    belief = run.belief.copy()
    belief[:, into] += belief[:, gone]
    belief[:, gone] = belief[:, split] * (1 - share)
    belief[:, split] *= share
    laws = [None if number in (into, gone, split) else law for number, law in enumerate(run.laws)]
    return _Start(belief, laws)
