"""Newton's method for laws of comparisons, for many data sets on the same pairs at once.

The parameters are one vector: the score of each item (or a coefficient for each feature of the items), the
effects of the covariates, and the tie parameters: none, one, or one for each item. Counts ``(sets, rows, 3)``
may differ from set to set, as they do under the bootstrap; pairs and covariates are shared.
"""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from factorank.distributions.comparisons.battles import Battles
from factorank.distributions.comparisons.links import Link

SETS_AT_ONCE = 64
"""Data sets that are solved together: their matrices should fit into the cache."""


class Design:
    """How the rows of some battles depend on the parameters, and how sums over the rows are formed.

    ``features (items, columns)`` replace the scores of the items by coefficients of the features. The tie
    parameter is free unless ``fixed_tie`` is given; with ``item_ties`` each item has one, and the mean of the
    two counts.
    """

    def __init__(
        self,
        battles: Battles,
        link: Link,
        features: np.ndarray | None,
        fixed_tie: float | None,
        item_ties: bool = False,
    ) -> None:
        self.link, self.n, self.fixed_tie = link, battles.items, fixed_tie
        self.first, self.second = torch.from_numpy(battles.first), torch.from_numpy(battles.second)
        dense = torch.from_numpy(battles.covariates)
        self.by_item = features is None
        if features is not None:
            table = torch.from_numpy(features)
            dense = torch.cat([table[self.first] - table[self.second], dense], 1)
        self.dense = dense
        self.scores = self.n if self.by_item else 0
        self.ties = 0 if fixed_tie is not None else self.n if item_ties else 1
        self.size = self.scores + dense.shape[1] + self.ties

    def differences(self, parameters: Tensor) -> Tensor:
        """The differences of the scores ``(sets, rows)`` from parameters ``(sets, size)``."""
        effects = parameters[:, self.scores : self.scores + self.dense.shape[1]]
        difference = effects @ self.dense.T
        if self.by_item:
            difference = difference + parameters[:, self.first] - parameters[:, self.second]
        return difference

    def tie(self, parameters: Tensor) -> Tensor:
        """The tie parameter of each row, ``(sets, rows)`` or ``(sets, 1)``."""
        if self.fixed_tie is not None:
            return parameters.new_full((len(parameters), 1), self.fixed_tie)
        own = parameters[:, -self.ties :]
        return own if self.ties == 1 else (own[:, self.first] + own[:, self.second]) / 2

    def vector(self, d: Tensor, t: Tensor) -> Tensor:
        """The sum over the rows of slopes to d and t ``(sets, rows)`` as slopes to the parameters."""
        parts = []
        if self.by_item:
            parts.append(self._items(d, 1.0, -1.0))
        parts.append(d @ self.dense)
        if self.ties == 1:
            parts.append(t.sum(1, keepdim=True))
        elif self.ties:
            parts.append(self._items(t, 0.5, 0.5))
        return torch.cat(parts, 1)

    def matrix(self, dd: Tensor, dt: Tensor, tt: Tensor) -> Tensor:
        """The sum over the rows of products of slopes ``(sets, rows)``: ``(sets, size, size)``."""
        sets, k, s = len(dd), self.dense.shape[1], self.scores
        result = dd.new_zeros((sets, self.size, self.size))
        if self.by_item:
            result[:, :s, :s] = self._pairs(dd, 1.0, -1.0, 1.0, -1.0)
            if k:
                crossed = dd[:, :, None] * self.dense
                mixed = dd.new_zeros((sets, s, k)).index_add(1, self.first, crossed)
                mixed = mixed.index_add(1, self.second, crossed, alpha=-1)
                result[:, :s, s : s + k], result[:, s : s + k, :s] = mixed, mixed.mT
        if k:
            result[:, s : s + k, s : s + k] = torch.einsum("br,rk,rl->bkl", dd, self.dense, self.dense)
        if self.ties == 1:
            column = self.vector(dt, tt)
            result[:, -1, :], result[:, :, -1] = column, column
        elif self.ties:
            end = s + k
            result[:, end:, end:] = self._pairs(tt, 0.5, 0.5, 0.5, 0.5)
            if self.by_item:
                mixed = self._pairs(dt, 1.0, -1.0, 0.5, 0.5)
                result[:, :s, end:], result[:, end:, :s] = mixed, mixed.mT
            if k:
                crossed = dt[:, :, None] * self.dense / 2
                mixed = dt.new_zeros((sets, self.n, k)).index_add(1, self.first, crossed)
                mixed = mixed.index_add(1, self.second, crossed)
                result[:, end:, s:end], result[:, s:end, end:] = mixed, mixed.mT
        return result

    def _pairs(self, values: Tensor, a: float, b: float, c: float, d: float) -> Tensor:
        """The sum over the rows of ``values`` times the outer product of a at the first item and b at the
        second with c at the first and d at the second: ``(sets, n, n)``."""
        from factorank.kernels.comparisons import add_to_pairs

        out = values.new_zeros((len(values), self.n, self.n))
        sides = self.first.numpy(), self.second.numpy()
        add_to_pairs(values.numpy(), *sides, a, b, c, d, out.numpy())
        return out

    def _items(self, values: Tensor, a: float, b: float) -> Tensor:
        """The sum over the rows of ``values``, a times at the first item and b times at the second."""
        from factorank.kernels.comparisons import add_to_items

        out = values.new_zeros((len(values), self.n))
        add_to_items(values.numpy(), self.first.numpy(), self.second.numpy(), a, b, out.numpy())
        return out


@dataclass(frozen=True)
class Prior:
    """What is added to the log-likelihood of the scores, or of the coefficients of features."""

    penalty: float = 0.0
    """A normal law of mean zero and this precision."""
    pseudo_count: float = 0.0
    """So many wins, and as many losses, of each item against one of score zero."""

    def __bool__(self) -> bool:
        return self.penalty > 0 or self.pseudo_count > 0

    def value(self, scores: Tensor) -> Tensor:
        """Of scores ``(sets, own)``: ``(sets,)``."""
        both = torch.nn.functional.logsigmoid(scores) + torch.nn.functional.logsigmoid(-scores)
        return (self.pseudo_count * both - self.penalty / 2 * scores.square()).sum(1)

    def derivatives(self, scores: Tensor) -> tuple[Tensor, Tensor]:
        """The gradient, and minus the second derivatives, ``(sets, own)``."""
        p = torch.sigmoid(scores)
        slope = self.pseudo_count * (1 - 2 * p) - self.penalty * scores
        return slope, 2 * self.pseudo_count * p * (1 - p) + self.penalty


NO_PRIOR = Prior()


@dataclass(frozen=True)
class Maximum:
    """The end of an ascent, for each data set: ``parameters (sets, size)`` and the rest ``(sets,)``."""

    parameters: Tensor
    log_likelihood: Tensor
    iterations: int
    converged: Tensor


def climb(
    design: Design,
    counts: Tensor,
    start: Tensor,
    *,
    prior: Prior = NO_PRIOR,
    max_iterations: int = 100,
    tolerance: float = 1e-9,
) -> Maximum:
    """The maximum of the penalised likelihood for counts ``(sets, rows, 3)``, from ``start (size,)``.

    The log-likelihood is concave. A step that does not raise it is halved until it does; a tie parameter at
    the end of its range is approached and not crossed.
    """
    ends = [
        _climb(design, part, start.expand(len(part), -1), prior, max_iterations, tolerance)
        for part in counts.split(SETS_AT_ONCE)
    ]
    return Maximum(
        torch.cat([end.parameters for end in ends]),
        torch.cat([end.log_likelihood for end in ends]),
        max(end.iterations for end in ends),
        torch.cat([end.converged for end in ends]),
    )


def _climb(
    design: Design, counts: Tensor, start: Tensor, prior: Prior, max_iterations: int, tolerance: float
) -> Maximum:
    parameters = start.clone()
    goal = tolerance * counts.sum((1, 2)) / max(design.size, 1)
    value, likelihood = _value(design, counts, parameters, prior)
    done = torch.zeros(len(counts), dtype=torch.bool)
    for iteration in range(max_iterations):
        slope, matrix = slopes(design, counts, parameters, prior)
        done = slope.abs().amax(1) <= goal
        if bool(done.all()):
            return Maximum(parameters, likelihood, iteration, done)
        step = torch.linalg.solve(gauged(design, matrix, prior), slope)
        step = step * (5 / step.abs().amax(1, keepdim=True)).clamp(max=1)
        gain = (slope * step).sum(1)
        length = torch.where(done, 0.0, torch.ones_like(gain))
        for _ in range(40):
            tried = parameters + length[:, None] * step
            tried_value, tried_likelihood = _value(design, counts, tried, prior)
            # Near the maximum the gain is below the rounding of the sum.
            enough = tried_value >= value + 1e-4 * length * gain - 1e-12 * value.abs()
            if bool(enough.all()):
                break
            length = torch.where(enough, length, length / 2)
        parameters = torch.where(enough[:, None], tried, parameters)
        value = torch.where(enough, tried_value, value)
        likelihood = torch.where(enough, tried_likelihood, likelihood)
    return Maximum(parameters, likelihood, max_iterations, done)


def _value(design: Design, counts: Tensor, parameters: Tensor, prior: Prior) -> tuple[Tensor, Tensor]:
    log = design.link.log_probs(design.differences(parameters), design.tie(parameters))
    likelihood = torch.where(counts > 0, counts * log, 0.0).sum((1, 2))
    if design.ties:
        inside = (parameters[:, -design.ties :] > design.link.least_tie).all(1)
        likelihood = torch.where(inside, likelihood, -torch.inf)
    scores = parameters[:, : design.scores or design.dense.shape[1]]
    return likelihood + prior.value(scores), likelihood


def slopes(
    design: Design, counts: Tensor, parameters: Tensor, prior: Prior = NO_PRIOR
) -> tuple[Tensor, Tensor]:
    """The gradient ``(sets, size)`` and minus the Hessian ``(sets, size, size)``."""
    at = design.link.derivatives(design.differences(parameters), design.tie(parameters))
    d, dd = _summed(counts, at.d), _summed(counts, at.dd)
    t, dt, tt = (_summed(counts, values) if design.ties else d for values in (at.t, at.dt, at.tt))
    slope = design.vector(d, t)
    matrix = -design.matrix(dd, dt, tt)
    if prior:
        own = design.scores or design.dense.shape[1]
        slope_own, bend = prior.derivatives(parameters[:, :own])
        slope[:, :own] += slope_own
        matrix.diagonal(dim1=1, dim2=2)[:, :own] += bend
    return slope, matrix


def first_slopes(design: Design, counts: Tensor, parameters: Tensor, prior: Prior = NO_PRIOR) -> Tensor:
    """The gradient ``(sets, size)`` for counts of many sets at the same parameters ``(size,)``."""
    at = design.link.derivatives(design.differences(parameters[None]), design.tie(parameters[None]))
    slope = design.vector(_summed(counts, at.d), _summed(counts, at.t))
    if prior:
        own = design.scores or design.dense.shape[1]
        slope[:, :own] += prior.derivatives(parameters[None, :own])[0]
    return slope


def _summed(counts: Tensor, values: Tensor) -> Tensor:
    """The sum over the outcomes; what never happened counts nothing, however unlikely it is."""
    return torch.where(counts > 0, counts * values, 0.0).sum(-1)


def gauged(design: Design, matrix: Tensor, prior: Prior = NO_PRIOR) -> Tensor:
    """The matrix made invertible: adding a constant to all scores changes nothing, so it is penalised.

    Pseudo-counts do determine the constant, and a normal prior puts it at zero, where it stays.
    """
    if not design.by_item or prior.pseudo_count:
        return matrix
    s = design.scores
    result = matrix.clone()
    scale = matrix.diagonal(dim1=1, dim2=2)[:, :s].mean(1).clamp(min=1e-300) / s
    result[:, :s, :s] += scale[:, None, None]
    return result
