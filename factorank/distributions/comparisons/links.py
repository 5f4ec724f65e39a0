"""How the outcome of a comparison depends on the difference of two scores, with its derivatives.

The outcomes are 0 (the first item wins), 1 (the second wins) and 2 (a tie). A link gives their
log-probabilities as functions of the difference d of the scores and, where ties have a probability of their
own, of a tie parameter t. All are concave in (d, t), so that a fit has one maximum.
"""

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Derivatives:
    """Log-probabilities of the outcomes, ``(*shape, 3)``, and their derivatives to d and t."""

    log: Tensor
    d: Tensor
    t: Tensor
    dd: Tensor
    dt: Tensor
    tt: Tensor


class Half:
    """Bradley and Terry's law. A tie counts as half a win for each, and has no probability of its own."""

    tie_parameter = False
    least_tie = 0.0

    @staticmethod
    def log_probs(d: Tensor, t: Tensor) -> Tensor:
        win, loss = torch.nn.functional.logsigmoid(d), torch.nn.functional.logsigmoid(-d)
        return torch.stack([win, loss, (win + loss) / 2], -1)

    @classmethod
    def derivatives(cls, d: Tensor, t: Tensor) -> Derivatives:
        log, p = cls.log_probs(d, t), torch.sigmoid(d)
        slope = torch.stack([1 - p, -p, 0.5 - p], -1)
        none = torch.zeros_like(log)
        return Derivatives(log, slope, none, (-p * (1 - p))[..., None].expand_as(log), none, none)


class DavidsonLink:
    """Win, loss and tie in the proportion exp(d/2) : exp(-d/2) : exp(t)."""

    tie_parameter = True
    least_tie = -torch.inf

    @staticmethod
    def log_probs(d: Tensor, t: Tensor) -> Tensor:
        return torch.stack([d / 2, -d / 2, t.expand_as(d)], -1).log_softmax(-1)

    @classmethod
    def derivatives(cls, d: Tensor, t: Tensor) -> Derivatives:
        log = cls.log_probs(d, t)
        p = log.exp()
        a, b = log.new_tensor([0.5, -0.5, 0.0]), log.new_tensor([0.0, 0.0, 1.0])
        mean_a, mean_b = (p * a).sum(-1, keepdim=True), (p * b).sum(-1, keepdim=True)
        dd = mean_a**2 - (p * a * a).sum(-1, keepdim=True)
        return Derivatives(
            log,
            a - mean_a,
            b - mean_b,
            dd.expand_as(log),
            (mean_a * mean_b).expand_as(log),
            (mean_b**2 - mean_b).expand_as(log),
        )


class RaoKupperLink:
    """A win takes a lead of more than a threshold t ≥ 0: win sigmoid(d - t), loss sigmoid(-d - t)."""

    tie_parameter = True
    least_tie = 0.0

    @staticmethod
    def log_probs(d: Tensor, t: Tensor) -> Tensor:
        win, loss = torch.nn.functional.logsigmoid(d - t), torch.nn.functional.logsigmoid(-d - t)
        return torch.stack([win, loss, torch.expm1(2 * t).log() + win + loss], -1)

    @classmethod
    def derivatives(cls, d: Tensor, t: Tensor) -> Derivatives:
        log = cls.log_probs(d, t)
        a, b = torch.sigmoid(t - d), torch.sigmoid(t + d)  # one minus the probabilities of win and loss
        shrink, grow = a * (1 - a), b * (1 - b)
        edge = (-2 / torch.expm1(-2 * t)).expand_as(d)  # of log(exp(2t) - 1)
        bend = (-1 / torch.sinh(t) ** 2).expand_as(d)
        return Derivatives(
            log,
            torch.stack([a, -b, a - b], -1),
            torch.stack([-a, -b, edge - a - b], -1),
            torch.stack([-shrink, -grow, -shrink - grow], -1),
            torch.stack([shrink, -grow, shrink - grow], -1),
            torch.stack([-shrink, -grow, bend - shrink - grow], -1),
        )


Link = type[Half] | type[DavidsonLink] | type[RaoKupperLink]
