"""Mixtures by EM with restarts."""

import copy
import warnings as python_warnings
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from factorank.distributions.base import PermutationDistribution
from factorank.distributions.fitting.checks import row_weights
from factorank.distributions.fitting.em import EMSettings, cluster_voters, empty_components, rounds
from factorank.distributions.fitting.mixture_families import Family
from factorank.distributions.fitting.report import FitReport, FitWarning

COMPLETE_EM = EMSettings(max_iterations=500, tolerance=1e-6)
"""The defaults; the tolerance is of the gain in nats a ranking."""


Start = tuple[np.ndarray, list[PermutationDistribution]]
"""Shares and laws of the components at which EM begins."""


def fit_by_em(
    family: Family, orders: Tensor, weights: Tensor | None, settings: EMSettings, start: Start | None
) -> tuple[Tensor, list[PermutationDistribution], FitReport]:
    """EM on orders, complete or such as the family takes: weights ``(k,)``, laws and report."""
    rows, n = family.read(orders)
    votes = row_weights(weights, tuple(orders.shape[:-1]))
    total, k = float(votes.sum()), settings.components
    rows, first = np.unique(rows[votes > 0], axis=0, return_inverse=True)  # equal votes are one, heavier
    votes = np.bincount(first.reshape(-1), votes[votes > 0])
    restarts = 1 if k == 1 or start is not None else settings.restarts  # more would take the same first step
    ends = [
        _run(family, rows, votes, settings, start) for _ in rounds(restarts, settings.progress, "restarts")
    ]
    best = max(ends, key=lambda end: end.history[-1])
    warnings = [text for j in range(k) for text in family.doubts(rows, votes * best.belief[:, j], j)]
    for text in warnings:
        python_warnings.warn(text, FitWarning, stacklevel=3)
    if not best.converged:
        warnings.append(f"the last of {len(best.history)} iterations still raised the likelihood noticeably")
    warnings += empty_components(best.shares)
    report = FitReport(
        family.title if k == 1 else f"mixture of {k} {family.title}",
        rankings=total,
        log_likelihood=best.likelihood,
        parameters=k * family.parameters(n) + k - 1,
        iterations=len(best.history),
        converged=best.converged,
        history=tuple(best.history),
        restarts=tuple(end.history[-1] for end in ends) if restarts > 1 else (),
        warnings=tuple(warnings),
    )
    laws = [_on_device(law, orders.device) for law in best.laws]
    return torch.from_numpy(best.shares).to(orders.device), laws, report


def _on_device(law: PermutationDistribution, device: torch.device) -> PermutationDistribution:
    """The same law with its tensors on another device."""
    moved = copy.copy(law)
    vars(moved).update(
        {name: value.to(device) for name, value in vars(law).items() if isinstance(value, Tensor)}
    )
    return moved


@dataclass
class _Run:
    shares: np.ndarray
    laws: list[PermutationDistribution]
    history: list[float]
    likelihood: float
    converged: bool
    belief: np.ndarray
    """The probability of each component given each vote, ``(rows, k)``, that the laws were fitted with."""


def _run(
    family: Family, rows: np.ndarray, weights: np.ndarray, settings: EMSettings, start: Start | None = None
) -> _Run:
    """EM from one start. A component that has lost all its votes keeps its law, at weight zero."""
    orders, k = torch.from_numpy(rows), settings.components
    total = float(weights.sum())
    laws: list[PermutationDistribution | None] = [None] * k
    if start is not None:
        laws = list(start[1])
        belief = _joint(family, *start, orders).softmax(1).numpy()
    elif k > 1:
        label = cluster_voters(family.distances(rows), weights, k, settings.generator)
        # Not quite hard, so that no component starts as a point mass and none without votes.
        belief = np.where(label[:, None] == np.arange(k), 0.9, 0.1 / (k - 1))
    else:
        belief = np.ones((len(rows), 1))
    history: list[float] = []
    for _ in range(settings.max_iterations):
        expected = weights[:, None] * belief
        masses = expected.sum(0)
        for j in range(k):
            if masses[j] > 1e-9 * total or laws[j] is None:
                laws[j] = family.maximise(rows, np.ascontiguousarray(expected[:, j]), laws[j])
            else:
                masses[j] = 0.0
        shares = masses / masses.sum()
        fitted = [law for law in laws if law is not None]
        joint = _joint(family, shares, fitted, orders)
        log_probs = joint.logsumexp(1)
        likelihood = float(log_probs.numpy() @ weights)
        history.append(likelihood + family.prior(fitted))
        small = len(history) > 1 and history[-1] - history[-2] < settings.tolerance * total
        converged = small or (k == 1 and family.one_step)
        run = _Run(shares, fitted, history, likelihood, converged, belief)
        if converged:
            break
        belief = (joint - log_probs[:, None]).exp().numpy()
    return run


def _joint(family: Family, shares: np.ndarray, laws: list[PermutationDistribution], orders: Tensor) -> Tensor:
    """The log-probability of each order together with each component: ``(rows, k)``."""
    log_shares = torch.from_numpy(shares).log()
    return torch.stack([family.log_prob(law, orders) for law in laws], 1) + log_shares
