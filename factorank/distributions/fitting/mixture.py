"""Mixtures by EM with restarts."""

import copy
import warnings as python_warnings
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from factorank.distributions.base import PermutationDistribution
from factorank.distributions.fitting.checks import Unranked, row_weights
from factorank.distributions.fitting.mixture_families import FAMILIES, Family
from factorank.distributions.fitting.partial_mallows import check_settings
from factorank.distributions.fitting.progress import rounds
from factorank.distributions.fitting.report import FitError, FitReport, FitWarning
from factorank.distributions.fitting.seeds import spread_voters


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
    start: tuple[np.ndarray, list[PermutationDistribution]] | None = None,
    smoothing: float = 0.0,
    penalty: float = 0.0,
    unranked: Unranked | None = None,
    items: int | None = None,
) -> tuple[Tensor, list[PermutationDistribution], FitReport]:
    """Weights ``(k,)``, laws and report of a mixture of one family; see :meth:`factorank.Mixture.fit`.

    ``start``, weights and laws, is where EM begins instead of at clusters of voters.
    """
    member = _family(family, smoothing, penalty, unranked, items)
    check_settings(components=components, restarts=restarts, max_iterations=max_iterations)
    rows, n = member.read(orders)
    counted = row_weights(weights, tuple(orders.shape[:-1]))
    others, other_weights = None, np.ones(0)
    if held_out is not None:
        others = torch.from_numpy(member.read(held_out, n)[0])
        other_weights = row_weights(held_out_weights, tuple(held_out.shape[:-1]))
    total = float(counted.sum())
    rows, first = np.unique(rows[counted > 0], axis=0, return_inverse=True)  # equal votes are one, heavier
    counted = np.bincount(first.reshape(-1), counted[counted > 0])
    if components == 1 or start is not None:
        restarts = 1  # every start gives the same first step
    ends = []
    for _ in rounds(restarts, progress, "restarts"):
        ends.append(_run(member, rows, counted, components, max_iterations, tolerance, generator, start))
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
        each = _joint(member, best.shares, best.laws, others).logsumexp(1).numpy()
        beyond = float((each * other_weights)[other_weights > 0].sum() / other_weights.sum())
    report = FitReport(
        member.title if components == 1 else f"mixture of {components} {member.title}",
        rankings=total,
        log_likelihood=best.likelihood,
        parameters=components * member.parameters(n) + components - 1,
        iterations=len(best.history),
        converged=best.converged,
        held_out=beyond,
        history=tuple(best.history),
        restarts=tuple(end.history[-1] for end in ends) if restarts > 1 else (),
        warnings=tuple(said),
    )
    laws = [_moved(law, orders.device) for law in best.laws]
    return torch.from_numpy(best.shares).to(orders.device), laws, report


def _family(
    name: str, smoothing: float, penalty: float, unranked: Unranked | None, items: int | None
) -> Family:
    if name not in FAMILIES:
        raise FitError(f"there is no family {name!r}; there are {', '.join(FAMILIES)}")
    if unranked is None and items is None:
        return FAMILIES[name](smoothing=smoothing, penalty=penalty)
    if name != "plackett-luce":
        raise FitError(
            "rankings that leave items out are fitted by the families 'plackett-luce' and 'mallows', not"
            f" {name!r}"
        )
    return FAMILIES[name](smoothing=smoothing, penalty=penalty, unranked=unranked, items=items)


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
    member: Family,
    rows: np.ndarray,
    weights: np.ndarray,
    k: int,
    max_iterations: int,
    tolerance: float,
    generator: torch.Generator | None,
    start: tuple[np.ndarray, list[PermutationDistribution]] | None = None,
) -> _Run:
    """EM from one start. A component that has lost all its votes keeps its law, at weight zero."""
    orders = torch.from_numpy(rows)
    total = weights.sum()
    laws: list[PermutationDistribution | None] = [None] * k
    if start is not None:
        laws = list(start[1])
        belief = _joint(member, *start, orders).softmax(1).numpy()
    elif k > 1:
        label = spread_voters(member.distances(rows), weights, k, generator)
        # Not quite hard, so that no component starts as a point mass and none without votes.
        belief = np.where(label[:, None] == np.arange(k), 0.9, 0.1 / (k - 1))
    else:
        belief = np.ones((len(rows), 1))
    shares = np.ones(k)
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
        joint = _joint(member, shares, known, orders)
        each = joint.logsumexp(1)
        likelihood = float(each.numpy() @ weights)
        history.append(likelihood + member.prior(known))
        if len(history) > 1 and history[-1] - history[-2] < tolerance * total:
            return _Run(shares, known, history, likelihood, True, belief)
        if k == 1 and member.one_step:
            return _Run(shares, known, history, likelihood, True, belief)
        belief = (joint - each[:, None]).exp().numpy()
    return _Run(shares, known, history, likelihood, False, belief)


def _joint(member: Family, shares: np.ndarray, laws: list[PermutationDistribution], orders: Tensor) -> Tensor:
    """The log-probability of each order together with each component: ``(rows, k)``."""
    log_shares = torch.from_numpy(shares).log()
    return torch.stack([member.log_prob(law, orders) for law in laws], 1) + log_shares
