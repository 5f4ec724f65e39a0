"""The autoregressive objective, and the law of an autoregressive model: one position after the other."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from factorank.distributions.base import PermutationDistribution
from factorank.distributions.conditioning.rules import Effort
from factorank.errors import ModelError
from factorank.kernels.attention import Cache
from factorank.models.chunks import chunks
from factorank.models.conditions import Conditions
from factorank.models.context import EncodedContext
from factorank.models.law import PermutationLaw
from factorank.models.network import evaluating
from factorank.models.unmasking import Step, Unmasking, checked_beam
from factorank.sampling.choosers import Chooser

if TYPE_CHECKING:
    from factorank.models.model import PermutationModel

BEAM = 8
"""How many codes the search for a mode keeps."""


def loss(
    model: "PermutationModel",
    code: Tensor,
    present: Tensor | None,
    context: EncodedContext | None,
    counted: Tensor | None = None,
) -> Tensor:
    """The exact ``-log p`` of each code ``(*batch, n)``, summed over the positions ``counted (*batch, n)``.

    All positions that are present are counted unless given.
    """
    counted = present if counted is None else counted
    chosen = log_probs(model, code, model.network.memory(context, present))
    return -(chosen if counted is None else torch.where(counted, chosen, 0)).sum(-1)


def log_probs(
    model: "PermutationModel", code: Tensor, memory: EncodedContext | None, unmasking: Unmasking | None = None
) -> Tensor:
    """The log-probability of every value ``(*rows, n)`` of the codes, given those before it."""
    logits = model.network.head(model.network.causal_hidden(code, memory))
    logits = logits if unmasking is None else unmasking.temper(logits)
    return logits.log_softmax(-1).gather(-1, code[..., None]).squeeze(-1)


class AutoregressiveLaw(PermutationLaw):
    """The law of an autoregressive model, one position at a time; see :class:`PermutationLaw`."""

    beam_width = BEAM

    @torch.no_grad()
    def beam(self, width: int | None = None) -> tuple[Tensor, Tensor]:
        """The likeliest orders that a beam finds, best first, and their log-probabilities.

        ``(*batch, found, n)`` and ``(*batch, found)``; ``found`` is the width unless there are fewer codes.
        Where a row has fewer orders of non-zero probability, the rest are -1 and minus infinity.
        """
        width = checked_beam(width, self.beam_width)
        parts = []
        for conditions, _, _ in chunks(self, 1, at_once=width):
            code, log_prob = self._beam(conditions, width)
            none = (log_prob == -torch.inf)[..., None]
            order = conditions.decode(self.model, torch.where(none, self.model.first_values, code))
            parts.append((torch.where(none, -1, order), log_prob))
        if not parts:
            raise ModelError("a law with an empty batch has no orders to search for")
        shape = (*self.batch_shape, parts[0][0].shape[0])
        order = torch.cat([part for part, _ in parts], 1).movedim(0, 1)
        log_prob = torch.cat([part for _, part in parts], 1).movedim(0, 1)
        return order.reshape(*shape, self.n), log_prob.reshape(shape)

    def _beam(self, conditions: Conditions, width: int) -> tuple[Tensor, Tensor]:
        """Codes ``(found, rows, n)`` and log-probabilities ``(found, rows)``."""
        model = self.model
        with evaluating(model):
            memory = self._memory(conditions)
            cache, mask = model.network.begin(memory, torch.Size((1, conditions.rows)))
            start = conditions.start(model)
            row = torch.arange(conditions.rows, device=start.device)
            score = torch.zeros((1, conditions.rows), device=start.device)
            code = start[None]
            value = torch.full((1, conditions.rows), model.network.mask_value, device=start.device)
            sizes, different = model.code.sizes(model.n).tolist(), 1
            for position in range(model.n):
                logits = self.unmasking.temper(model.network.step(value, position, memory, cache, mask))
                here = start[:, position, None]
                certain = torch.where(torch.arange(model.n, device=start.device) == here, 0, -torch.inf)
                log_probs = torch.where(here == model.network.mask_value, logits.log_softmax(-1), certain)
                candidates = (score[..., None] + log_probs).movedim(1, 0).reshape(conditions.rows, -1)
                different *= sizes[position]
                score, best = candidates.topk(min(width, different), -1)
                score, best = score.T, best.T
                parent, value = best // model.n, best % model.n
                code = code.gather(0, parent[..., None].expand(-1, -1, model.n))
                code = code.index_copy(-1, torch.tensor([position], device=code.device), value[..., None])
                cache.select((parent * conditions.rows + row).reshape(-1))
                if mask is not None:
                    mask = mask[(parent * conditions.rows + row).reshape(-1)]
        return code, score

    def _conditioned(self, observed: Tensor, effort: Effort) -> PermutationDistribution | None:
        return self._with_first_fixed(observed)

    def numbers_per_draw(self) -> int:
        # A step takes one token of each sample: the widest tensor is that of the keys before it.
        return self.n * self.model.width

    def _memory(self, conditions: Conditions) -> EncodedContext | None:
        if conditions.memory is None:
            conditions.memory = self.model.network.memory(conditions.context, conditions.present)
        return conditions.memory

    def _mode(self, conditions: Conditions) -> Tensor:
        return self._beam(conditions, self.beam_width)[0][0]

    def _score(self, conditions: Conditions, code: Tensor, generator: torch.Generator | None) -> Tensor:
        chosen = log_probs(self.model, code, self._memory(conditions), self.unmasking)
        free = conditions.start(self.model) == self.model.network.mask_value
        return torch.where(free, chosen, 0).sum(-1)

    def _walk(
        self,
        conditions: Conditions,
        samples: int,
        chooser: Chooser,
        generator: torch.Generator | None,
        score: bool = False,
    ) -> Iterator[Step]:
        model = self.model
        memory = self._memory(conditions)
        lead, start = torch.Size((samples, conditions.rows)), conditions.start(model)
        fixed = self._leading_fixed(conditions, start)
        # As long as the values are fixed, all samples of a row are one in the network.
        narrow = torch.Size((1, conditions.rows)) if fixed else lead
        cache, mask = model.network.begin(memory, narrow)
        code = start.repeat(samples, 1, 1)
        log_prob = torch.zeros(lead, dtype=model.network.head.dtype, device=start.device)
        used = torch.zeros(lead, dtype=torch.int64, device=start.device)
        yield Step(code, log_prob, used)
        value = torch.full(narrow, model.network.mask_value, device=start.device)
        for position in range(model.n):
            logits = self.unmasking.temper(model.network.step(value, position, memory, cache, mask))
            here = start[:, position]
            if position < fixed:
                value = here[None]
            else:
                if position == fixed > 0:
                    mask = _repeat(cache, mask, conditions.rows, samples, start.device)
                    logits = logits.expand(*lead, -1)
                free = here == model.network.mask_value
                at = torch.full((*lead, 1), position, device=start.device)
                value = torch.where(free, chooser.values(logits[..., None, :], at).squeeze(-1), here)
                if score:
                    chosen = logits.log_softmax(-1).gather(-1, value[..., None]).squeeze(-1)
                    log_prob = log_prob + torch.where(free, chosen, 0)
                parts = code[..., :position], value[..., None], code[..., position + 1 :]
                code = torch.cat(parts, -1)
            yield Step(code, log_prob, used + position + 1)

    def _leading_fixed(self, conditions: Conditions, start: Tensor) -> int:
        """How many of the first values are fixed in every row."""
        if conditions.fixed is None or not conditions.rows:
            return 0
        fixed = (start != self.model.network.mask_value).all(0)
        return int(fixed.long().cumprod(0).sum())


def _repeat(
    cache: Cache, mask: Tensor | None, rows: int, samples: int, device: torch.device
) -> Tensor | None:
    """Every row as many times as there are samples, in the cache and in the mask over its keys."""
    index = torch.arange(rows, device=device).repeat(samples)
    cache.select(index)
    return None if mask is None else mask[index]
