"""Draws that are guessed ahead and verified together: the same law in fewer passes, one after the other.

A *draft* proposes the values of the next few positions at once. One pass of the target verifies them: the
first position at which a draft is refused gets a value of the target's own, what follows is drafted anew. A
value v that was drafted with probability q(v) is accepted with probability min(1, p(v) / q(v)); else the
value is drawn in proportion to max(0, p - q). It then has exactly the target's probability p(v), whatever the
draft (Leviathan, Kalman and Matias, "Fast inference from transformers via speculative decoding", 2023).
"""

import dataclasses
from typing import Protocol

import torch
from torch import Tensor

from factorank.sampling.categorical import draw


@dataclasses.dataclass
class DraftReport:
    """What a draw with drafts took."""

    passes: int = 0
    """Network evaluations one after the other, those of the draft included."""
    rows: int = 0
    """Codes that the target's network read."""
    draft_rows: int = 0
    """Codes that the draft's network read."""
    drafted: int = 0
    """Drafted values that were verified: those before the first refused one of a pass, and that one."""
    accepted: int = 0
    """How many of these were accepted."""


class Drafting(Protocol):
    """Two networks on codes ``(rows, n)`` of which the positions before ``done (rows,)`` are known."""

    def draft(self, code: Tensor, done: Tensor, rows: Tensor, positions: Tensor) -> Tensor:
        """The logits ``(rows, k, values)`` from which the values at ``positions (rows, k)`` are drafted.

        ``rows`` are the indices of these codes among all.
        """
        ...

    def verify(self, code: Tensor, rows: Tensor, positions: Tensor) -> Tensor:
        """The target's logits ``(rows, k, values)`` at the positions, given the values before each."""
        ...

    def settle(self, rows: Tensor, accepted: Tensor) -> None:
        """Of the last ``verify`` so many values ``(rows,)`` were accepted."""
        ...


def speculate(
    code: Tensor,
    free: Tensor,
    drafting: Drafting,
    ahead: int,
    generator: torch.Generator | None,
    report: DraftReport,
) -> tuple[Tensor, Tensor]:
    """Codes ``(rows, n)`` whose free positions are drawn left to right, and the rounds that each row took.

    ``ahead`` positions are drafted at a time. ``code`` holds the values of positions that are not free.
    """
    rows, n = code.shape
    places = torch.arange(n, device=code.device)
    done = torch.where(free, places, n).amin(-1)
    end = torch.where(free, places + 1, 0).amax(-1)
    rounds = torch.zeros(rows, dtype=torch.int64, device=code.device)
    # A column more: positions past the end of a row are read and written there.
    code, free = (torch.nn.functional.pad(tensor, (0, 1)) for tensor in (code, free))
    while len(active := (done < end).nonzero().squeeze(-1)):
        positions = done[active, None] + torch.arange(ahead, device=code.device)
        positions = torch.where(positions < end[active, None], positions, n)
        now, open_ = code[active], free[active].gather(-1, positions)
        inside = positions.clamp(max=n - 1)
        guess = drafting.draft(now[:, :n], done[active], active, inside)
        values = torch.where(open_, draw(guess, generator=generator), now.gather(-1, positions))
        truth = drafting.verify(now.scatter(-1, positions, values)[:, :n], active, inside)
        kept, values = accept(truth, guess, values, open_, generator)
        drafting.settle(active, kept)
        settled = torch.arange(ahead, device=code.device) <= kept[:, None]
        code[active] = now.scatter(-1, positions, torch.where(settled, values, now.gather(-1, positions)))
        report.drafted += int((settled & open_).sum())
        report.accepted += int((settled & open_).sum() - (kept < ahead).sum())
        done[active] += (kept + 1).clamp(max=ahead)
        rounds[active] += 1
    return code[:, :n], rounds


def accept(
    target: Tensor, draft: Tensor, values: Tensor, free: Tensor, generator: torch.Generator | None
) -> tuple[Tensor, Tensor]:
    """How many of the drafted ``values (rows, k)`` are accepted in a row, and the values with the first that
    is not replaced by one of the target's own.

    ``target`` and ``draft`` are logits ``(rows, k, values)``. Positions that are not ``free (rows, k)`` are
    always accepted.

    >>> same = torch.zeros(1, 3, 2)
    >>> accept(same, same, torch.tensor([[0, 1, 1]]), torch.tensor([[True, True, True]]), None)
    (tensor([3]), tensor([[0, 1, 1]]))
    >>> sure = torch.tensor([[[0.0, -torch.inf]]])
    >>> accept(sure, torch.zeros(1, 1, 2), torch.tensor([[1]]), torch.tensor([[True]]), None)
    (tensor([0]), tensor([[0]]))
    """
    p, q = (logits.double().softmax(-1) for logits in (target, draft))
    chance, drafted = (probs.gather(-1, values[..., None]).squeeze(-1) for probs in (p, q))
    kept = (happens(chance / drafted, generator) | ~free).long().cumprod(-1).sum(-1)
    first = kept.clamp(max=values.shape[-1] - 1)[:, None]
    p, q = (probs.gather(1, first[..., None].expand(-1, 1, p.shape[-1])).squeeze(1) for probs in (p, q))
    value = draw(residual(p, q).log(), generator=generator)
    refused = torch.arange(values.shape[-1], device=values.device) == kept[:, None]
    return kept, torch.where(refused, value[:, None], values)


def happens(chance: Tensor, generator: torch.Generator | None) -> Tensor:
    """True with these probabilities, or always where they are above one."""
    return torch.rand(chance.shape, dtype=torch.float64, device=chance.device, generator=generator) < chance


def residual(p: Tensor, q: Tensor) -> Tensor:
    """What is drawn after a refusal, ``(*rows, values)``: in proportion to max(0, p - q).

    >>> residual(torch.tensor([0.5, 0.5, 0.0]), torch.tensor([0.2, 0.4, 0.4]))
    tensor([0.7500, 0.2500, 0.0000])
    """
    rest = (p - q).clamp(min=0)
    total = rest.sum(-1, keepdim=True)
    # Equal distributions leave nothing, and nothing of theirs is refused but by rounding.
    return torch.where(total > 0, rest / total.clamp(min=torch.finfo(p.dtype).tiny), p)
