"""Mixtures by EM with restarts, from complete rankings."""

import copy
import warnings as python_warnings
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from factorank.distances import kendall
from factorank.distributions.base import PermutationDistribution
from factorank.distributions.fitting.checks import complete_orders, row_weights
from factorank.distributions.fitting.consensus import kemeny, pairwise_counts
from factorank.distributions.fitting.generalized_mallows import improve as climb_generalized
from factorank.distributions.fitting.graphs import groups, strongly_connected
from factorank.distributions.fitting.mallows import dispersion_of
from factorank.distributions.fitting.partial_mallows import check_settings
from factorank.distributions.fitting.plackett_luce import explain
from factorank.distributions.fitting.plackett_luce import improve as climb_plackett_luce
from factorank.distributions.fitting.progress import rounds
from factorank.distributions.fitting.report import FitError, FitReport, FitWarning
from factorank.distributions.fitting.rim import insertion_shares
from factorank.distributions.fitting.seeds import spread_voters
from factorank.distributions.generalized_mallows import GeneralizedMallows
from factorank.distributions.mallows import Mallows
from factorank.distributions.plackett_luce import PlackettLuce
from factorank.distributions.rim import RIM


def fit_mixture(
    orders: Tensor,
    weights: Tensor | None = None,
    *,
    components: int,
    family: str = "mallows",
    restarts: int = 5,
    max_iterations: int = 500,
    tolerance: float = 1e-6,
    generator: torch.Generator | None = None,
    progress: bool = False,
    held_out: Tensor | None = None,
    held_out_weights: Tensor | None = None,
    smoothing: float = 0.0,
    penalty: float = 0.0,
) -> tuple[Tensor, list[PermutationDistribution], FitReport]:
    """Weights ``(k,)``, laws and report of a mixture of one family; see :meth:`factorank.Mixture.fit`."""
    rows = complete_orders(orders)
    counted = row_weights(weights, tuple(orders.shape[:-1]))
    check_settings(components=components, restarts=restarts, max_iterations=max_iterations)
    if family not in FAMILIES:
        raise FitError(f"there is no family {family!r}; there are {', '.join(FAMILIES)}")
    others, other_weights = None, np.ones(0)
    if held_out is not None:
        others = torch.from_numpy(complete_orders(held_out, n=rows.shape[1]))
        other_weights = row_weights(held_out_weights, tuple(held_out.shape[:-1]))
    total = float(counted.sum())
    rows, first = np.unique(rows[counted > 0], axis=0, return_inverse=True)  # equal votes are one, heavier
    counted = np.bincount(first.reshape(-1), counted[counted > 0])
    member = FAMILIES[family](smoothing=smoothing, penalty=penalty)
    if components == 1:
        restarts = 1  # every start gives the same first step
    ends = []
    for _ in rounds(restarts, progress, "restarts"):
        ends.append(_run(member, rows, counted, components, max_iterations, tolerance, generator))
    best = max(ends, key=lambda end: end.history[-1])
    said = [text for k in range(components) for text in member.doubts(rows, counted * best.belief[:, k], k)]
    for text in said:
        python_warnings.warn(text, FitWarning, stacklevel=3)
    if not best.converged:
        said.append(f"the last of {len(best.history)} iterations still raised the likelihood noticeably")
    if (best.shares == 0).any():
        said.append(f"{int((best.shares == 0).sum())} of {components} components are empty")
    beyond = None
    if others is not None:
        each = _joint(best.shares, best.laws, others).logsumexp(1).numpy()
        beyond = float((each * other_weights)[other_weights > 0].sum() / other_weights.sum())
    report = FitReport(
        member.title if components == 1 else f"mixture of {components} {member.title}",
        rankings=total,
        log_likelihood=best.likelihood,
        parameters=components * member.parameters(rows.shape[1]) + components - 1,
        iterations=len(best.history),
        converged=best.converged,
        held_out=beyond,
        history=tuple(best.history),
        restarts=tuple(end.history[-1] for end in ends) if restarts > 1 else (),
        warnings=tuple(said),
    )
    laws = [_moved(law, orders.device) for law in best.laws]
    return torch.from_numpy(best.shares).to(orders.device), laws, report


def _moved(law: PermutationDistribution, device: torch.device) -> PermutationDistribution:
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
    member: "_Family",
    rows: np.ndarray,
    weights: np.ndarray,
    k: int,
    max_iterations: int,
    tolerance: float,
    generator: torch.Generator | None,
) -> _Run:
    """EM from one start. A component that has lost all its votes keeps its law, at weight zero."""
    orders = torch.from_numpy(rows)
    total = weights.sum()
    label = np.zeros(len(rows), dtype=np.int64)
    if k > 1:
        label = spread_voters(
            lambda v: kendall(orders, orders[v], check=False).numpy(), weights, k, generator
        )
    # Not quite hard, so that no component starts as a point mass and none without votes.
    belief = (
        np.where(label[:, None] == np.arange(k), 0.9, 0.1 / max(k - 1, 1))
        if k > 1
        else np.ones((len(rows), 1))
    )
    shares = np.ones(k)
    laws: list[PermutationDistribution | None] = [None] * k
    history: list[float] = []
    likelihood = -np.inf
    for _ in range(max_iterations):
        mine = weights[:, None] * belief
        masses = mine.sum(0)
        for j in range(k):
            if masses[j] > 1e-9 * total or laws[j] is None:
                laws[j] = member.maximise(rows, np.ascontiguousarray(mine[:, j]), laws[j])
            else:
                masses[j] = 0.0
        shares = masses / masses.sum()
        known = [law for law in laws if law is not None]
        joint = _joint(shares, known, orders)
        each = joint.logsumexp(1)
        likelihood = float(each.numpy() @ weights)
        history.append(likelihood + member.prior(known))
        if len(history) > 1 and history[-1] - history[-2] < tolerance * total:
            return _Run(shares, known, history, likelihood, True, belief)
        if k == 1 and member.one_step:
            return _Run(shares, known, history, likelihood, True, belief)
        belief = (joint - each[:, None]).exp().numpy()
    return _Run(shares, known, history, likelihood, False, belief)


def _joint(shares: np.ndarray, laws: list[PermutationDistribution], orders: Tensor) -> Tensor:
    """The log-probability of each order together with each component: ``(rows, k)``."""
    log_shares = torch.from_numpy(shares).log()
    return torch.stack([law._log_prob(orders).double() for law in laws], 1) + log_shares


class _Family(ABC):
    """What EM needs of a family: an M-step that never lowers the (penalised) likelihood."""

    title: str
    one_step = True
    """Whether the M-step is a maximum, so that a single component needs no second one."""

    def __init__(self, smoothing: float, penalty: float) -> None:
        for name, value in (("smoothing", smoothing), ("penalty", penalty)):
            if not (np.isfinite(value) and value >= 0):
                raise FitError(f"{name} is finite and at least 0, not {value}")
        self.smoothing, self.penalty = smoothing, penalty
        used = {"RIM": "smoothing", "Plackett-Luce": "penalty"}.get(self.title)
        for name, value in (("smoothing", smoothing), ("penalty", penalty)):
            if value and name != used:
                raise FitError(f"a mixture of {self.title} has no {name}")

    @abstractmethod
    def parameters(self, n: int) -> int: ...

    @abstractmethod
    def maximise(self, rows: np.ndarray, weights: np.ndarray, previous: Any) -> PermutationDistribution: ...

    def prior(self, laws: list[PermutationDistribution]) -> float:
        """What is added to the log-likelihood to give the function that EM climbs."""
        return 0.0

    def doubts(self, rows: np.ndarray, weights: np.ndarray, k: int) -> list[str]:
        """What must be said of component k, which was fitted with these weights."""
        return []


class _Mallows(_Family):
    title = "Mallows"

    def parameters(self, n: int) -> int:
        return 1

    def maximise(self, rows: np.ndarray, weights: np.ndarray, previous: Any) -> PermutationDistribution:
        counts = pairwise_counts(rows, weights)
        order, _ = kemeny(counts, None if previous is None else previous.central.numpy())
        phi, _ = dispersion_of(counts, order, float(weights.sum()))
        return Mallows(torch.from_numpy(order), torch.tensor(phi, dtype=torch.float64))


class _GeneralizedMallows(_Family):
    title = "generalized Mallows"

    def parameters(self, n: int) -> int:
        return n - 1

    def maximise(self, rows: np.ndarray, weights: np.ndarray, previous: Any) -> PermutationDistribution:
        start = None if previous is None else previous.central.numpy()
        order, phis = climb_generalized(rows, weights, start)
        return GeneralizedMallows(torch.from_numpy(order), torch.from_numpy(phis))


class _RIM(_Family):
    title = "RIM"

    def parameters(self, n: int) -> int:
        return n * (n - 1) // 2

    def maximise(self, rows: np.ndarray, weights: np.ndarray, previous: Any) -> PermutationDistribution:
        references = [kemeny(pairwise_counts(rows, weights))[0]]
        if previous is not None:
            references.append(previous.reference.numpy())
        best = max(references, key=lambda reference: self._value(rows, weights, reference))
        probs, _ = insertion_shares(rows, weights, best, self.smoothing)
        return RIM(torch.from_numpy(probs), torch.from_numpy(best))

    def _value(self, rows: np.ndarray, weights: np.ndarray, reference: np.ndarray) -> float:
        probs, likelihood = insertion_shares(rows, weights, reference, self.smoothing)
        return likelihood + self._prior(probs)

    def _prior(self, probs: np.ndarray) -> float:
        return self.smoothing * float(np.log(probs[np.tri(len(probs)) > 0]).sum()) if self.smoothing else 0.0

    def prior(self, laws: list[PermutationDistribution]) -> float:
        return sum(self._prior(law.probs.numpy()) for law in laws if isinstance(law, RIM))


class _PlackettLuce(_Family):
    title = "Plackett-Luce"
    one_step = False

    def parameters(self, n: int) -> int:
        return n - 1

    def maximise(self, rows: np.ndarray, weights: np.ndarray, previous: Any) -> PermutationDistribution:
        start = np.zeros(rows.shape[1]) if previous is None else previous.logits.numpy()
        return PlackettLuce(torch.from_numpy(climb_plackett_luce(rows, weights, start, self.penalty)))

    def prior(self, laws: list[PermutationDistribution]) -> float:
        logits = [law.logits for law in laws if isinstance(law, PlackettLuce)]
        return -self.penalty / 2 * float(sum(each.square().sum() for each in logits))

    def doubts(self, rows: np.ndarray, weights: np.ndarray, k: int) -> list[str]:
        # A thousandth of a vote that is against it does not make a maximum that means anything.
        edges = pairwise_counts(rows, weights) > 1e-3
        if self.penalty or weights.sum() < 1e-3 or rows.shape[1] == 1 or strongly_connected(edges):
            return []
        said, _ = explain(edges, groups(edges))
        return [f"in component {k} {text}; a penalty= above 0 settles it" for text in said]


FAMILIES: dict[str, Callable[..., _Family]] = {
    "mallows": _Mallows,
    "generalized-mallows": _GeneralizedMallows,
    "rim": _RIM,
    "plackett-luce": _PlackettLuce,
}
"""By the names that ``Mixture.fit`` knows them by."""
