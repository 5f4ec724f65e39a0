"""Laws that are drawn with drafts: what proposes the next values, and what verifies them.

See :mod:`factorank.sampling.speculative`. The target of an autoregressive model is one causal pass over the
code. That of a masked model is one row for each drafted position, with the values before it revealed.
"""

import dataclasses
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor

from factorank.errors import ModelError
from factorank.models.conditions import Conditions, conditions_for
from factorank.models.network import evaluating
from factorank.models.unmasking import first_logits
from factorank.permutations import cannot_check, whole_number
from factorank.sampling.speculative import DraftReport, speculate

if TYPE_CHECKING:
    from factorank.models.law import PermutationLaw
    from factorank.models.model import PermutationModel

ROWS_AHEAD = 8
"""How many positions a masked model verifies at a time: each takes a row of the batch."""


@dataclasses.dataclass(frozen=True)
class Draft:
    """What proposes the values of a law, and how many at a time."""

    ahead: int
    model: "PermutationModel | None" = None
    """None: the model itself, by the predictions it made last."""
    conditions: Conditions | None = None
    """What the law is conditional on, as the model of the draft encodes it."""


def checked_draft(
    law: "PermutationLaw",
    draft: "PermutationModel | Literal['self']",
    ahead: int | None,
    given: tuple[Any, ...],
) -> Draft:
    """The draft that was asked for; ``given`` is what :func:`conditions_for` takes after the model."""
    model, free = law.model, law.conditions.free(law.model).sum(-1)
    # Without a context the rows of ``vmap`` are not seen here, but where values are drawn.
    if cannot_check(free) and not torch.compiler.is_compiling():
        raise ModelError(
            "how many passes a {parameter} takes depends on what is drawn, which vmap cannot follow: draw"
            " from a law with a batch instead",
            parameter="draft",
        )
    one_by_one = law.unmask == "left-to-right" and law.unmasking.order is None and not law.unmasking.remask
    if not model.causal and not (one_by_one and bool((free <= (law.nfe or 0)).all())):
        raise ModelError(
            "{parameter} is for laws that reveal one position after the other: those of autoregressive"
            f" models, and masked ones with unmask='left-to-right' at full nfe, not {law!r}",
            parameter="draft",
        )
    if ahead is None:
        ahead = model.n if model.causal else min(ROWS_AHEAD, model.n)
    if not 1 <= (number := whole_number(ahead)) <= model.n:
        raise ModelError(
            f"{{parameter}} positions are drafted at a time, 1 to {model.n}, not {ahead!r}", parameter="ahead"
        )
    ahead = number
    if isinstance(draft, str) and draft == "self":
        return Draft(ahead)
    if not isinstance(draft, type(model)) or draft.causal:
        shown = repr(draft) if isinstance(draft, str) else f"a {type(draft).__name__}"
        shown = "an autoregressive one" if isinstance(draft, type(model)) else shown
        raise ModelError(
            f"{{parameter}} is 'self' or a masked PermutationModel, not {shown}", parameter="draft"
        )
    same = draft.n == model.n and draft.code.name == model.code.name and draft.device == model.device
    same = same and draft.target == model.target
    if not same or not _same_reference(draft.reference, model.reference):
        raise ModelError(
            "{parameter} is a model of the same code, target, n and reference on the same device:"
            f" {model.code.name} of the {model.target}, {model.n} on {model.device}, not {draft.code.name} of"
            f" the {draft.target}, {draft.n} on {draft.device}",
            parameter="draft",
        )
    return Draft(ahead, draft, conditions_for(draft, *given)[0])


def drawn(
    law: "PermutationLaw",
    conditions: Conditions,
    rows: slice,
    samples: int,
    generator: torch.Generator | None,
    report: DraftReport,
) -> tuple[Tensor, Tensor]:
    """Codes ``(samples, rows, n)`` of some rows of a law, and the passes ``(samples, rows)`` each took."""
    model, draft = law.model, law.draft
    assert draft is not None
    guess = None if draft.conditions is None else draft.conditions.part(rows.start, rows.stop)
    kind = CausalDrafting if model.causal else MaskedDrafting
    start, free = conditions.start(model), conditions.free(model)
    # Positions with one value are never asked for, and an autoregressive model reads them as they are.
    code = torch.where(model.certain & (start == model.network.mask_value), 0, start)
    code = torch.where(free, model.network.mask_value, code).repeat(samples, 1)
    here = DraftReport()
    if draft.model is None:
        drafting = kind(law, conditions, samples, None, here)
        code, rounds = speculate(code, free.repeat(samples, 1), drafting, draft.ahead, generator, here)
    else:
        with evaluating(draft.model):
            drafting = kind(law, conditions, samples, guess, here)
            code, rounds = speculate(code, free.repeat(samples, 1), drafting, draft.ahead, generator, here)
    passes = rounds + (rounds > 0) if draft.model is None else 2 * rounds
    report.passes = max(report.passes, int(passes.max()) if passes.numel() else 0)
    for name in ("rows", "draft_rows", "drafted", "accepted"):
        setattr(report, name, getattr(report, name) + getattr(here, name))
    shape = (samples, conditions.rows)
    return code.view(*shape, model.n), passes.view(shape)


class _Drafting:
    """What both kinds share: the draft of another model, and the conditions of rows by their index."""

    def __init__(
        self,
        law: "PermutationLaw",
        conditions: Conditions,
        samples: int,
        guess: Conditions | None,
        report: DraftReport,
    ) -> None:
        self.law, self.model, self.conditions = law, law.model, conditions
        self.guess, self.report = guess, report
        self.start = conditions.start(law.model)
        self.next: Tensor = torch.empty(0)
        """Without another model: the logits of the next drafts."""
        if guess is None and conditions.rows:
            self.next = self.first().repeat(samples, 1, 1)
            report.rows += conditions.rows

    def first(self) -> Tensor:
        """The logits ``(rows, n, values)`` of the first drafts."""
        raise NotImplementedError

    def draft(self, code: Tensor, done: Tensor, rows: Tensor, positions: Tensor) -> Tensor:
        if self.guess is None:
            return self.drafted(rows, positions)
        assert self.law.draft is not None
        model, among = self.law.draft.model, self.guess.at(rows % self.conditions.rows)
        assert model is not None
        known = torch.arange(model.n, device=code.device) < done[:, None]
        code = torch.where(known, code, among.start(model))
        hidden = model.network.hidden(code, among.context, among.present, positions)
        self.report.draft_rows += len(rows)
        return self.law.unmasking.temper(model.network.head(hidden, positions))

    def drafted(self, rows: Tensor, positions: Tensor) -> Tensor:
        """From the predictions that were made before."""
        raise NotImplementedError


class CausalDrafting(_Drafting):
    """An autoregressive model: its causal pass over a drafted code predicts every position."""

    def first(self) -> Tensor:
        start = torch.where(self.conditions.free(self.model), self.model.first_values, self.start)
        return self._logits(start, self.conditions)

    def drafted(self, rows: Tensor, positions: Tensor) -> Tensor:
        return _at(self.next[rows], positions)

    def verify(self, code: Tensor, rows: Tensor, positions: Tensor) -> Tensor:
        self.report.rows += len(rows)
        logits = self._logits(code, self.conditions.at(rows % self.conditions.rows))
        if self.guess is None:
            self.next[rows] = logits
        return _at(logits, positions)

    def settle(self, rows: Tensor, accepted: Tensor) -> None:
        pass

    def _logits(self, code: Tensor, conditions: Conditions) -> Tensor:
        network = self.model.network
        if conditions.memory is None:
            conditions.memory = network.memory(conditions.context, conditions.present)
        # Nothing that is predicted here has seen a value that is still hidden: any will do.
        code = torch.where(code == network.mask_value, self.model.first_values, code)
        return self.law.unmasking.temper(network.head(network.causal_hidden(code, conditions.memory)))


class MaskedDrafting(_Drafting):
    """A masked model: a row for each position, which also predicts those after it for the next draft."""

    settled = False
    """Whether ``next`` holds the predictions of the next positions, and not of all."""

    def first(self) -> Tensor:
        return self.law.unmasking.temper(first_logits(self.model, self.conditions))

    def drafted(self, rows: Tensor, positions: Tensor) -> Tensor:
        return self.next[rows] if self.settled else _at(self.next[rows], positions)

    def verify(self, code: Tensor, rows: Tensor, positions: Tensor) -> Tensor:
        model, n = self.model, self.model.n
        conditions = self.conditions.at(rows % self.conditions.rows)
        count = positions.shape[-1]
        # The same as what the law reveals before each position: see ``MaskedLaw``.
        places = torch.arange(n, device=code.device)
        shown = (places < positions[..., None]) & conditions.free(model)[:, None]
        shown = shown | (shown.any(-1, keepdim=True) & model.certain.long().cumprod(0).bool())
        visible = torch.where(shown, code[:, None], conditions.start(model)[:, None])
        ahead = positions[..., :1, None] + torch.arange(count, device=code.device)[:, None]
        ahead = (ahead + torch.arange(count + 1 if self.guess is None else 1, device=code.device)).clamp(
            max=n - 1
        )
        each = conditions.at(torch.arange(len(rows), device=code.device).repeat_interleave(count))
        hidden = model.network.hidden(visible.flatten(0, 1), each.context, each.present, ahead.flatten(0, 1))
        logits = self.law.unmasking.temper(model.network.head(hidden, ahead.flatten(0, 1)))
        self.report.rows += len(hidden)
        self.last = logits.view(len(rows), count, *logits.shape[1:])
        return self.last[:, :, 0]

    def settle(self, rows: Tensor, accepted: Tensor) -> None:
        if self.guess is None:
            count = self.last.shape[1]
            if not self.settled:
                self.next = self.last.new_empty((len(self.next), count, self.last.shape[-1]))
                self.settled = True
            chosen = accepted.clamp(max=count - 1)
            self.next[rows] = self.last[torch.arange(len(rows), device=rows.device), chosen, 1:]


def _at(logits: Tensor, positions: Tensor) -> Tensor:
    """Of logits ``(rows, n, values)`` those at positions ``(rows, k)``."""
    return logits.gather(1, positions[..., None].expand(*positions.shape, logits.shape[-1]))


def _same_reference(first: Tensor | None, second: Tensor | None) -> bool:
    return first is second or (first is not None and second is not None and torch.equal(first, second))
