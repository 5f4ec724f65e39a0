"""Fits of the laws of comparisons: the maximum, whether there is one, and how far it can be trusted."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from factorank.distributions.comparisons.ascent import (
    NO_PRIOR,
    Design,
    Prior,
    climb,
    first_slopes,
    gauged,
    slopes,
)
from factorank.distributions.comparisons.battles import FIRST, SECOND, TIE, Battles
from factorank.distributions.comparisons.links import Link
from factorank.distributions.fitting.checks import item_features
from factorank.distributions.fitting.choices import explain
from factorank.distributions.fitting.errors import FitError, FitWarning
from factorank.distributions.fitting.graphs import strongly_connected
from factorank.errors import warn

Covariance = Literal["information", "sandwich"]
FARTHEST = 1000.0
"""Nats: a score with a larger standard error has run away from the others."""


@dataclass(frozen=True)
class Fitted:
    """A fit to some battles: where the maximum is, and what its errors are computed from."""

    design: Design
    battles: Battles
    parameters: Tensor
    """Scores or coefficients of the features, effects of the covariates, tie parameters: ``(size,)``."""
    prior: Prior
    log_likelihood: float
    iterations: int
    converged: bool
    features: np.ndarray | None = None

    @property
    def counts(self) -> Tensor:
        """The counts ``(1, rows, 3)``."""
        return torch.from_numpy(self.battles.counts)[None]

    def covariance(self, kind: Covariance = "information") -> Tensor:
        """The covariance ``(size, size)`` of the parameters, the scores being those of mean zero.

        "information": the inverse of the observed information. "sandwich": right also where the law is
        wrong, or where the comparisons of a group depend on each other (White, 1980; Liang and Zeger, 1986).
        """
        inverse = self._inverse
        if kind == "information":
            result = inverse
        elif kind == "sandwich":
            result = inverse @ self._meat() @ inverse
        else:
            raise FitError(f"a covariance is by 'information' or 'sandwich', not {kind!r}")
        return self._centred(result)

    def scores(self, parameters: Tensor | None = None) -> Tensor:
        """The scores of the items ``(…, n)`` of mean zero, from parameters ``(…, size)``."""
        parameters = self.parameters if parameters is None else parameters
        if self.features is None:
            scores = parameters[..., : self.design.n]
        else:
            scores = parameters[..., : self.features.shape[1]] @ torch.from_numpy(self.features).T
        return scores - scores.mean(-1, keepdim=True)

    def score_covariance(self, kind: Covariance = "information") -> Tensor:
        """The covariance ``(n, n)`` of the scores of the items."""
        whole = self.covariance(kind)
        if self.features is None:
            return whole[: self.design.n, : self.design.n]
        table = torch.from_numpy(self.features)
        table = table - table.mean(0)
        return table @ whole[: table.shape[1], : table.shape[1]] @ table.T

    def refits(
        self, sets: int, generator: torch.Generator | None = None, *, one_step: bool = False
    ) -> Tensor:
        """The scores ``(sets, n)`` of fits to battles drawn with replacement, by groups where there are some.

        ``one_step`` takes a single Newton step from the maximum instead of a whole fit: the first-order
        approximation, for data so large that the two agree.
        """
        counts = torch.from_numpy(resampled(self.battles, sets, generator))
        if one_step:
            slope = first_slopes(self.design, counts, self.parameters, self.prior)
            parameters = self.parameters + slope @ self._inverse
        else:
            parameters = climb(self.design, counts, self.parameters, prior=self.prior).parameters
        return self.scores(parameters)

    def tie(self) -> Tensor:
        """The tie parameter, or those of the items ``(n,)``."""
        if self.design.ties > 1:
            return self.parameters[-self.design.ties :]
        return self.design.tie(self.parameters[None])[0, 0]

    def battles_of_items(self) -> Tensor:
        """How many comparisons each item took part in: ``(n,)``."""
        each = self.counts[0].sum(1)
        total = torch.zeros(self.design.n, dtype=each.dtype)
        return total.index_add(0, self.design.first, each).index_add(0, self.design.second, each)

    @cached_property
    def _inverse(self) -> Tensor:
        _, matrix = slopes(self.design, self.counts, self.parameters[None], self.prior)
        return torch.linalg.inv(gauged(self.design, matrix, self.prior))[0]

    def _meat(self) -> Tensor:
        """The sum over groups, or single comparisons, of the outer products of their gradients."""
        design, counts = self.design, self.counts
        at = design.link.derivatives(
            design.differences(self.parameters[None]), design.tie(self.parameters[None])
        )

        def summed(values: Tensor) -> Tensor:
            return torch.where(counts > 0, counts * values, 0.0).sum(-1)

        if self.battles.group is None:
            return design.matrix(summed(at.d**2), summed(at.d * at.t), summed(at.t**2))[0]
        d, t = summed(at.d)[0], summed(at.t)[0]
        group = torch.from_numpy(self.battles.group)
        each = torch.zeros((int(group.max()) + 1, design.size), dtype=d.dtype)
        if design.by_item:
            flat = each.view(-1)
            flat.index_add_(0, group * design.size + design.first, d)
            flat.index_add_(0, group * design.size + design.second, d, alpha=-1)
        k = design.dense.shape[1]
        each[:, design.scores : design.scores + k].index_add_(0, group, d[:, None] * design.dense)
        if design.ties == 1:
            each[:, -1].index_add_(0, group, t)
        elif design.ties:
            flat, end = each.view(-1), design.size - design.ties
            for item in (design.first, design.second):
                flat.index_add_(0, group * design.size + end + item, t, alpha=0.5)
        return each.T @ each

    def _centred(self, covariance: Tensor) -> Tensor:
        if self.features is not None:
            return covariance
        s = self.design.scores
        centre = torch.eye(len(covariance), dtype=covariance.dtype)
        centre[:s, :s] -= 1 / s
        return centre @ covariance @ centre


def fit_battles(
    battles: Battles,
    link: Link,
    *,
    features: Any = None,
    item_ties: bool = False,
    prior: Prior = NO_PRIOR,
    max_iterations: int = 100,
    tolerance: float = 1e-9,
    names: Sequence[str] | None = None,
) -> Fitted:
    """The maximum of the likelihood, or an error that says why there is none and what helps.

    ``names`` are those of the items, for the error.
    """
    table = None if features is None else item_features(features, battles.items)
    if table is not None and prior.pseudo_count:
        raise FitError(
            "pseudo-counts are of items: with features, {parameter=0} and a penalty", parameter="pseudo_count"
        )
    fixed_tie = _fixed_tie(battles, link)
    if item_ties:
        _check_item_ties(battles, link, names)
    design = Design(battles, link, table, fixed_tie, item_ties)
    if not prior:
        _check_maximum(battles, design, names)
    start = torch.zeros(design.size, dtype=torch.float64)
    if design.ties:
        start[-design.ties :] = 0.0 if link.least_tie == -torch.inf else 0.5
    end = climb(
        design,
        torch.from_numpy(battles.counts)[None],
        start,
        prior=prior,
        max_iterations=max_iterations,
        tolerance=tolerance,
    )
    parameters = end.parameters[0]
    if design.by_item and not prior.pseudo_count:
        parameters[: design.scores] -= parameters[: design.scores].mean()
    if not end.converged[0]:
        warn(
            f"stopped after {end.iterations} iterations, before the gradient was small; where the comparisons"
            " do not determine the law, a penalty above 0 does",
            FitWarning,
        )
    fitted = Fitted(
        design,
        battles,
        parameters,
        prior,
        float(end.log_likelihood[0]),
        end.iterations,
        bool(end.converged[0]),
        table,
    )
    if not prior and bool((fitted.score_covariance().diagonal() > FARTHEST**2).any()):
        raise FitError(
            "the likelihood has no maximum: with these ties, scores go apart for ever; a penalty above 0"
            " settles it",
            parameter="penalty",
        )
    return fitted


def resampled(battles: Battles, sets: int, generator: torch.Generator | None) -> np.ndarray:
    """Counts ``(sets, rows, 3)`` of battles drawn with replacement: one by one, or group by group."""
    seed = int(torch.randint(2**62, (), generator=generator))
    random = np.random.default_rng(seed)
    if battles.group is not None:
        groups = int(battles.group.max()) + 1
        times = random.multinomial(groups, np.full(groups, 1 / groups), size=sets)
        return times[:, battles.group, None] * battles.counts
    shares = battles.counts.reshape(-1) / battles.total
    drawn = random.multinomial(round(battles.total), shares, size=sets)
    return drawn.reshape(sets, *battles.counts.shape).astype(np.float64)


def _fixed_tie(battles: Battles, link: Link) -> float | None:
    """The tie parameter where it is not fitted: the link has none, or there are no ties."""
    if not link.tie_parameter:
        return 0.0
    ties = battles.counts[:, TIE]
    if not ties.any():
        return link.least_tie
    if not (battles.counts.sum() - ties.sum()) > 0:
        raise FitError("every comparison is a tie: the scores and the share of ties are not determined")
    return None


def _check_item_ties(battles: Battles, link: Link, names: Sequence[str] | None) -> None:
    """Refuse items that never tied, or always: their tie parameters go to an end of their range."""
    if not link.tie_parameter:
        raise FitError("this law has no tie parameter: {parameter=False}", parameter="item_ties")
    for what, columns in (("never", [TIE]), ("always", [FIRST, SECOND])):
        count = np.zeros(battles.items)
        for side in (battles.first, battles.second):
            np.add.at(count, side, battles.counts[:, columns].sum(1))
        if (count == 0).any():
            item = int((count == 0).argmax())
            name = repr(names[item]) if names else str(item)
            raise FitError(
                f"item {name} {what} tied: its own share of ties is not determined; {{parameter=False}} has"
                " one for all items",
                parameter="item_ties",
            )


def _check_maximum(battles: Battles, design: Design, names: Sequence[str] | None) -> None:
    if design.by_item:
        edges = battles.beats()
        if battles.items > 1 and not strongly_connected(edges):
            reasons, _, _ = explain(edges, names, parameter="scores", vote="battle")
            raise FitError("; ".join(reasons) + "; a penalty above 0 settles it", parameter="penalty")
    columns = design.dense
    if columns.shape[1] and int(torch.linalg.matrix_rank(columns)) < columns.shape[1]:
        raise FitError(
            "the columns of features and covariates are linearly dependent over the comparisons: their"
            " coefficients are not determined; leave one out, or a penalty above 0 settles it"
        )
