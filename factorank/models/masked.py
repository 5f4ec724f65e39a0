"""The masked objective, and the laws of a masked model: positions revealed block by block."""

from collections.abc import Iterator

import torch
from torch import Tensor

from factorank.models.choosers import Chooser, Greedy, Replay
from factorank.models.context import Known
from factorank.models.given import Given, Step, evaluating
from factorank.models.law import PermutationLaw
from factorank.models.model import PermutationModel
from factorank.models.partitions import Block, block, confident, entropies, listing, within_entropy


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
    if present is not None:
        scores = torch.where(present.reshape(-1, n), scores, 2.0)
    threshold = scores.sort(-1).values.gather(-1, count[:, None] - 1)
    masked = (scores <= threshold) & (scores < 2)
    weight = length / masked.sum(-1).clamp(min=1)

    masked, weight = masked.view(code.shape), weight.view(code.shape[:-1])
    hidden = model.network.hidden(torch.where(masked, model.network.mask_value, code), known, present)
    log_probs = model.network.head(hidden).log_softmax(-1)
    chosen = log_probs.gather(-1, code[..., None]).squeeze(-1)
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
        if self.nfe is not None:
            return super().nfe_of(order)
        law, rows, shape = self._aligned(order)
        result = torch.zeros(rows.shape[:2], dtype=torch.int64, device=rows.device)
        with torch.no_grad(), evaluating(self.model):
            for given, where, draws in law._chunks(rows.shape[0]):
                code = law._encode(given, rows[draws, where])
                for step in law._walk(given, code.shape[0], Replay(code), None):
                    result[draws, where] = torch.as_tensor(step.nfe, device=rows.device)
        return result.view(shape)

    def entropy(self, *, samples: int | None = None, generator: torch.Generator | None = None) -> Tensor:
        if samples is not None or self.nfe != 1:
            return super().entropy(samples=samples, generator=generator)
        given = self.given
        with evaluating(self.model):
            start = given.start(self.model)
            each = entropies(
                self.model.network.head(self.model.network.hidden(start, given.known, given.present))
            )
        free = start == self.model.network.mask_value
        return torch.where(free, each, 0).sum(-1).float().view(self.batch_shape)

    def _mode(self, given: Given) -> Tensor:
        law = self
        if self.unmask == "random" and self.nfe != 1:
            law = MaskedLaw(self.model, given, torch.Size((given.rows,)), self.nfe, "confident", None)
        *_, step = law._walk(given, 1, Greedy(), None)
        return step.code[0]

    def _score(self, given: Given, code: Tensor, generator: torch.Generator | None) -> Tensor:
        *_, step = self._walk(given, code.shape[0], Replay(code), generator, score=True)
        return step.log_prob

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
        shuffle = self.unmask == "random" and self.nfe != 1
        listed = listing(free, samples, shuffle=shuffle, generator=generator)
        static = self.nfe is not None and self.unmask != "confident"
        for step in range(self.nfe or n):
            first = step == 0
            if static:
                assert self.nfe is not None
                positions, inside = block(listed, length, self.nfe, step)
                if positions.shape[-1] == 0:
                    continue
            remaining = code == mask
            if self.nfe is None and not bool(remaining.any()):
                return
            if first:
                # Before anything is revealed all samples of a row are alike: one evaluation serves them.
                if given.first_logits is None:
                    hidden = model.network.hidden(start, given.known, given.present)
                    given.first_logits = model.network.head(hidden)
                logits = given.first_logits
            else:
                hidden = model.network.hidden(code, given.known, given.present)
                if static:
                    logits = model.network.head(_take(hidden, positions), positions)
                else:
                    logits = model.network.head(hidden)
            if not static:
                positions, inside = self._choose(logits, remaining, length, step)
            if first:
                everywhere = chooser.shared(logits, samples)
                values = everywhere.gather(-1, positions)
            else:
                if not static:
                    logits = _take(logits, positions)
                values = chooser.values(logits, positions)
            if score:
                if first:
                    each = logits.log_softmax(-1).expand(samples, *logits.shape)
                    chosen = each.gather(-1, everywhere[..., None]).squeeze(-1).gather(-1, positions)
                else:
                    chosen = logits.log_softmax(-1).gather(-1, values[..., None]).squeeze(-1)
                log_prob = log_prob + (chosen if inside is None else torch.where(inside, chosen, 0)).sum(-1)
            if inside is not None:
                values = torch.where(inside, values, code.gather(-1, positions))
                used = used + (inside.any(-1) if self.nfe is None else 1)
            else:
                used = used + 1
            code = code.scatter(-1, positions, values)
            yield Step(code, log_prob, used)

    def _choose(self, logits: Tensor, remaining: Tensor, length: int | Tensor, step: int) -> Block:
        """The block that the predictions ``(…, n, values)`` call for; ``(rows, …)`` at the first step."""
        logits = logits.detach()
        if self.nfe is not None:
            return confident(logits, remaining, length, self.nfe, step)
        assert self.entropy_bound is not None
        return within_entropy(logits, remaining, self.entropy_bound, ranked=self.unmask == "confident")


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
