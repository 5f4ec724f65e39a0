"""The masked objective, and the laws of a masked model: positions revealed block by block."""

import dataclasses
from collections.abc import Iterator

import torch
from torch import Tensor

from factorank.models.conditions import Given, Step, evaluating, last
from factorank.models.context import Known
from factorank.models.law import PermutationLaw
from factorank.models.model import PermutationModel
from factorank.models.partitions import Block, block, confident, entropies, listing, within_entropy
from factorank.models.unmasking import Chooser, Greedy, Replay


def loss(
    model: PermutationModel,
    code: Tensor,
    present: Tensor | None,
    known: Known | None,
    strata: Tensor,
    scores: Tensor,
) -> Tensor:
    """An unbiased estimate of the any-order bound for codes ``(*batch, n)``; see ``PermutationModel.loss``.

    ``strata (*batch,)`` and ``scores (*batch, n)`` are uniform on [0, 1): they choose how many positions are
    masked, and which.
    """
    n, device = model.n, code.device
    rows = code.shape[:-1].numel()
    length = torch.full((), n, device=device) if present is None else present.sum(-1).reshape(-1)
    count = (strata.reshape(rows) * length).long().clamp(max=length - 1).clamp(min=0) + 1
    scores = scores.reshape(rows, n)
    if model.masks != "any":
        count = length.expand(rows) if model.masks == "all" else count
        scores = torch.arange(n, 0, -1, device=device).expand(rows, n) / (n + 1)
    if present is not None:
        scores = torch.where(present.reshape(-1, n), scores, 2.0)
    threshold = scores.sort(-1).values.gather(-1, count[:, None] - 1)
    masked = (scores <= threshold) & (scores < 2)
    weight = length / masked.sum(-1).clamp(min=1)

    masked, weight = masked.view(code.shape), weight.view(code.shape[:-1])
    hidden = model.network.hidden(torch.where(masked, model.network.mask_value, code), known, present)
    chosen = model.network.head.log_probs(hidden, code)
    return -weight * torch.where(masked, chosen, 0).sum(-1)


class MaskedLaw(PermutationLaw):
    """The law of a masked model that reveals the positions in blocks; see :class:`PermutationLaw`."""

    def __init__(
        self,
        model: PermutationModel,
        given: Given,
        batch_shape: torch.Size,
        nfe: int | None,
        unmask: str,
        entropy_bound: float | None,
    ) -> None:
        super().__init__(model, given, batch_shape)
        self.nfe, self.unmask, self.entropy_bound = nfe, unmask, entropy_bound

    @property
    def exact(self) -> bool:
        return self.unmask != "random" or self.nfe == 1

    def nfe_of(self, order: Tensor) -> Tensor:
        law, rows, shape = self._aligned(order)
        result = torch.zeros(rows.shape[:2], dtype=torch.int64, device=rows.device)
        if self.nfe is not None:
            free = (law.given.start(self.model) == self.model.network.mask_value).sum(-1)
            return (result + free.clamp(max=self.nfe)).view(shape)
        with torch.no_grad(), evaluating(self.model):
            for given, where, draws in law._chunks(rows.shape[0]):
                code = law._encode(given, rows[draws, where])
                result[draws, where] = last(law._walk(given, code.shape[0], Replay(code), None)).nfe
        return result.view(shape)

    def entropy(self, *, samples: int | None = None, generator: torch.Generator | None = None) -> Tensor:
        if samples is not None or self.nfe != 1:
            return super().entropy(samples=samples, generator=generator)
        with evaluating(self.model):
            start = self.given.start(self.model)
            each = entropies(self._first_logits(dataclasses.replace(self.given), start))
        free = start == self.model.network.mask_value
        return torch.where(free, each, 0).sum(-1).float().view(self.batch_shape)

    def _mode(self, given: Given) -> Tensor:
        law = self
        if self.unmask == "random" and self.nfe != 1:
            law = MaskedLaw(self.model, given, torch.Size((given.rows,)), self.nfe, "confident", None)
        return last(law._walk(given, 1, Greedy(), None)).code[0]

    def _score(self, given: Given, code: Tensor, generator: torch.Generator | None) -> Tensor:
        return last(self._walk(given, code.shape[0], Replay(code), generator, score=True)).log_prob

    def _walk(
        self,
        given: Given,
        samples: int,
        chooser: Chooser,
        generator: torch.Generator | None,
        score: bool = False,
    ) -> Iterator[Step]:
        model, n, mask = self.model, self.model.n, self.model.network.mask_value
        start = given.start(model)
        free = start == mask
        length = free_positions(given, free)
        log_prob = torch.zeros((samples, given.rows), device=start.device)
        code, used = start.expand(samples, *start.shape), torch.zeros_like(log_prob, dtype=torch.int64)
        yield Step(code, log_prob, used)
        # Of one block the order does not matter.
        listed = listing(free, samples, "left-to-right" if self.nfe == 1 else self.unmask, generator)
        static = self.nfe is not None and self.unmask != "confident"
        for step in range(self.nfe or n):
            if static:
                assert self.nfe is not None
                positions, inside = block(listed, length, self.nfe, step)
                if positions.shape[-1] == 0:
                    continue
            remaining = code == mask
            if self.nfe is None and not bool(remaining.any()):
                return
            shared = step == 0
            if shared:
                logits = self._first_logits(given, start)
            else:
                where = positions if static else None
                hidden = model.network.hidden(code, given.known, given.present, where)
                logits = model.network.head(hidden, where)
            if not static:
                positions, inside = self._choose(logits, remaining, length, step)
                logits = logits if shared else _take(logits, positions)
            values = chooser.shared(logits, samples) if shared else chooser.values(logits, positions)
            if score:
                log_probs = logits.log_softmax(-1).expand(*values.shape, n)
                chosen = log_probs.gather(-1, values[..., None]).squeeze(-1)
                chosen = chosen.gather(-1, positions) if shared else chosen
                log_prob = log_prob + (chosen if inside is None else torch.where(inside, chosen, 0)).sum(-1)
            values = values.gather(-1, positions) if shared else values
            if inside is not None:
                values = torch.where(inside, values, code.gather(-1, positions))
            code = code.scatter(-1, positions, values)
            used = used + (1 if inside is None else inside.any(-1))
            yield Step(code, log_prob, used)

    def _first_logits(self, given: Given, start: Tensor) -> Tensor:
        """All samples of a row are alike before anything is revealed: one evaluation serves them."""
        if given.first_logits is None:
            hidden = self.model.network.hidden(start, given.known, given.present)
            given.first_logits = self.model.network.head(hidden)
        return given.first_logits

    def _choose(self, logits: Tensor, remaining: Tensor, length: int | Tensor, step: int) -> Block:
        """The block that the predictions ``(…, n, values)`` call for; ``(rows, …)`` at the first step."""
        logits = logits.detach()
        if self.nfe is not None:
            return confident(logits, remaining, length, self.nfe, step)
        assert self.entropy_bound is not None
        return within_entropy(logits, remaining, self.entropy_bound, self.unmask)


def free_positions(given: Given, free: Tensor) -> int | Tensor:
    """How many positions of ``(rows, n)`` are free: a number if all rows agree, else ``(rows,)``."""
    if given.fixed is None and given.present is None:
        return free.shape[-1]
    counts = free.sum(-1)
    if counts.numel() and bool((counts == counts[0]).all()):
        return int(counts[0])
    return counts


def _take(tokens: Tensor, positions: Tensor) -> Tensor:
    """``(samples, rows, n, own)`` at positions ``(samples, rows, size)``."""
    return tokens.gather(-2, positions[..., None].expand(*positions.shape, tokens.shape[-1]))
