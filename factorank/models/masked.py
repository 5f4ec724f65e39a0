"""The masked objective, and the laws of a masked model: positions revealed block by block."""

import dataclasses
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from factorank.distributions.base import PermutationDistribution
from factorank.distributions.conditioning.rules import Effort, condition
from factorank.distributions.places import code_places, has_places
from factorank.distributions.rim import RIM
from factorank.models.chunks import aligned, chunks
from factorank.models.conditions import Conditions
from factorank.models.context import EncodedContext
from factorank.models.law import PermutationLaw
from factorank.models.network import evaluating
from factorank.models.unmasking import Step, Unmasking, first_logits, fitting, last, logits_at
from factorank.permutations import cannot_check, inverse
from factorank.sampling.choosers import Chooser, Greedy, Replay
from factorank.sampling.partitions import Block, block, confident, entropies, listing, within_entropy

if TYPE_CHECKING:
    from factorank.models.model import PermutationModel


def loss(
    model: "PermutationModel",
    code: Tensor,
    present: Tensor | None,
    context: EncodedContext | None,
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
        scores = torch.arange(1, n + 1, device=device).expand(rows, n) / (n + 1)
        scores = scores if model.masks == "prefix" else 1 - scores
    if present is not None:
        scores = torch.where(present.reshape(-1, n), scores, 2.0)
    threshold = scores.sort(-1).values.gather(-1, count[:, None] - 1)
    masked = (scores <= threshold) & (scores < 2)
    weight = length / masked.sum(-1).clamp(min=1)

    masked, weight = masked.view(code.shape), weight.view(code.shape[:-1])
    hidden = model.network.hidden(torch.where(masked, model.network.mask_value, code), context, present)
    chosen = model.network.head.log_probs(hidden, code)
    return -weight * torch.where(masked, chosen, 0).sum(-1)


def noise(
    batch: torch.Size, n: int, device: torch.device | str, generator: torch.Generator | None
) -> tuple[Tensor, Tensor]:
    """The ``strata (*batch,)`` and ``scores (*batch, n)`` of :func:`loss`.

    The strata are one uniform shift of an even grid. Each is uniform on [0, 1); together they are spread as
    evenly as can be, which takes most of the variance out of the batch's mean.
    """
    # With generator=None in the call the compiler refuses batches of any size.
    options: dict[str, Any] = {"device": device} | ({} if generator is None else {"generator": generator})
    grid = torch.arange(batch.numel(), device=device).view(batch) / max(batch.numel(), 1)
    strata = (grid + torch.rand((), **options)).frac()
    return strata, torch.rand((*batch, n), **options)


class MaskedLaw(PermutationLaw):
    """The law of a masked model that reveals the positions in blocks; see :class:`PermutationLaw`.

    At one evaluation the positions of the code are independent, and everything has a closed form.
    """

    def __init__(
        self,
        model: "PermutationModel",
        conditions: Conditions,
        batch_shape: torch.Size,
        unmasking: Unmasking,
    ) -> None:
        unmasking = fitting(unmasking, conditions.free(model), conditions.free_count(model))
        super().__init__(model, conditions, batch_shape, unmasking)

    @property
    def exact(self) -> bool:  # type: ignore[override]
        return (self.unmask != "random" or self.nfe == 1) and not self.unmasking.remask

    @property
    def estimates(self) -> frozenset[str]:
        if self.nfe != 1:
            return super().estimates
        return frozenset() if has_places(self.model.code.name) else super().estimates - {"entropy"}

    def nfe_of(self, order: Tensor) -> Tensor:
        law, rows, shape = aligned(self, order)
        result = torch.zeros(rows.shape[:2], dtype=torch.int64, device=rows.device)
        if self.nfe is not None:
            free = law.conditions.free(self.model).sum(-1)
            again = self.unmasking.remask * (free > 0)
            return (result + free.clamp(max=self.nfe) + again).view(shape)
        with torch.no_grad(), evaluating(self.model):
            for conditions, where, draws in chunks(law, rows.shape[0]):
                code = conditions.encode(self.model, rows[draws, where])
                result[draws, where] = last(law._walk(conditions, code.shape[0], Replay(code), None)).nfe
        return result.view(shape)

    # One evaluation.

    def log_table(self) -> Tensor:
        """At one evaluation: the log-probability of each value at each position of the code, ``(*batch, n,
        n)``.

        Fixed values, and those past the end of a list, have probability one.
        """
        if self.nfe != 1:
            raise self.error(f"the positions of a code are independent at nfe=1, not at nfe={self.nfe}")
        with evaluating(self.model):
            start = self.conditions.start(self.model)
            logits = first_logits(self.model, dataclasses.replace(self.conditions))
            log_probs = self.unmasking.temper(logits).log_softmax(-1)
        free = (start == self.model.network.mask_value)[..., None]
        certain = torch.arange(self.n, device=start.device) == start[..., None]
        table = torch.where(free, log_probs, torch.where(certain, 0.0, -torch.inf))
        return table.view(*self.batch_shape, self.n, self.n)

    def _entropy(self) -> Tensor:
        if self.nfe != 1:
            return super()._entropy()
        table = self.log_table()
        return entropies(table).sum(-1).to(table.dtype)

    def _marginals(self) -> Tensor:
        if self.nfe != 1 or not has_places(self.model.code.name):
            return super()._marginals()
        places = code_places(self.model.code.name, self.log_table().exp())
        if self.model.target == "rank":  # places of items are items at places, seen from the other side
            places = places.mT
        reference = self.conditions.whole_reference(self.model)
        if reference is None:
            return places
        ranks = inverse(reference, check=False).expand(self.conditions.rows, self.n)
        return places.gather(-2, ranks.view(*self.batch_shape, self.n, 1).expand_as(places))

    def _conditioned(self, observed: Tensor, effort: Effort) -> PermutationDistribution | None:
        if self.nfe == 1 and self.model.code.name == "insertion" and self.model.target == "order":
            reference = self.conditions.whole_reference(self.model)
            if reference is not None:
                rows = reference.expand(self.conditions.rows, self.n)
                reference = rows.view(*self.batch_shape, self.n)
            return condition(RIM(logits=self.log_table(), reference=reference), observed, effort)
        count = self.conditions.free_count(self.model)
        one_by_one = self.unmask == "left-to-right" and self.unmasking.order is None and self.nfe == count
        one_by_one = one_by_one and not self.unmasking.remask
        return self._with_first_fixed(observed) if one_by_one else None

    # Block by block.

    def _mode(self, conditions: Conditions) -> Tensor:
        law = self
        if self.unmask == "random" and self.nfe != 1:
            how = dataclasses.replace(self.unmasking, unmask="confident")
            law = MaskedLaw(self.model, conditions, torch.Size((conditions.rows,)), how)
        if self.beam_width > 1 and self.nfe != 1:
            return law._beam(conditions, self.beam_width)[0]
        return last(law._walk(conditions, 1, Greedy(), None)).code[0]

    def _beam(self, conditions: Conditions, width: int) -> Tensor:
        """The likeliest codes ``(found, rows, n)`` that a beam of that width finds, best first.

        A block is revealed position by position: its predictions do not depend on one another.
        """
        model, mask, blocks = self.model, self.model.network.mask_value, self.unmasking.blocks
        start, free, length = conditions.start(model), conditions.free(model), conditions.free_count(model)
        listed = listing(free, 1, self.unmask, None, self.unmasking.order)
        code = self._with_certain(start[None], free[None], leading=False)
        score, row = torch.zeros((1, conditions.rows), device=code.device), torch.arange(conditions.rows)
        for step in range(model.n if blocks is None else blocks.nfe):
            remaining = (code == mask) & free
            logits = first_logits(model, conditions)[None]
            if step:
                hidden = model.network.hidden(code, conditions.context, conditions.present)
                logits = model.network.head(hidden)
            logits = self.unmasking.temper(logits)
            if blocks is not None and self.unmask != "confident":
                positions, inside = block(listed.expand_as(code), length, blocks, step)
            else:
                positions, inside = self._choose(logits, remaining, length, step)
            log_probs, source = logits.log_softmax(-1), torch.arange(len(code))[:, None]
            for at in range(positions.shape[-1]):
                here = positions[source, row, at]
                each = log_probs[source, row, here]
                within = None if inside is None else inside[source, row, at]
                if within is not None:  # the one value of a position that is not revealed here is kept
                    certain = torch.arange(model.n, device=code.device) == 0
                    each = torch.where(within[..., None], each, torch.where(certain, 0.0, -torch.inf))
                candidates = (score[..., None] + each).movedim(1, 0).flatten(1)
                score, best = (x.T for x in candidates.topk(min(width, candidates.shape[-1]), -1))
                parent, value = best // model.n, best % model.n
                code, here, source = code[parent, row], here[parent, row], source.expand_as(here)[parent, row]
                if within is not None:
                    value = torch.where(within[parent, row], value, code.gather(-1, here[..., None])[..., 0])
                code = code.scatter(-1, here[..., None], value[..., None])
            code = self._with_certain(code, (code == mask) & free)
        return code

    def _score(self, conditions: Conditions, code: Tensor, generator: torch.Generator | None) -> Tensor:
        return last(self._walk(conditions, code.shape[0], Replay(code), generator, score=True)).log_prob

    def _walk(
        self,
        conditions: Conditions,
        samples: int,
        chooser: Chooser,
        generator: torch.Generator | None,
        score: bool = False,
    ) -> Iterator[Step]:
        model, mask, temper = self.model, self.model.network.mask_value, self.unmasking.temper
        start, free, blocks = conditions.start(model), conditions.free(model), self.unmasking.blocks
        length = conditions.free_count(model)
        lead, dtype = (samples, conditions.rows), model.network.head.dtype
        log_prob = torch.zeros(lead, dtype=dtype, device=start.device)
        code, used = start.expand(samples, *start.shape), torch.zeros_like(log_prob, dtype=torch.int64)
        code, trust = self._with_certain(code, free.expand_as(code), leading=False), 0.0 * code
        yield Step(code, log_prob, used)
        if not isinstance(length, Tensor) and length == 0:
            return
        # Of one block the order does not matter.
        unmask = "left-to-right" if self.nfe == 1 else self.unmask
        listed = listing(free, samples, unmask, generator, self.unmasking.order)
        static = blocks is not None and self.unmask != "confident"
        for step in range(model.n if blocks is None else blocks.nfe):
            if static:
                assert blocks is not None
                positions, inside = block(listed, length, blocks, step)
                if positions.shape[-1] == 0:
                    continue
            remaining = (code == mask) & free
            if blocks is None and not cannot_check(remaining) and not bool(remaining.any()):
                return
            shared = step == 0
            if shared:
                logits = temper(first_logits(model, conditions))
            else:
                logits = temper(logits_at(model, conditions, code, positions if static else None))
            if not static:
                positions, inside = self._choose(logits, remaining, length, step)
                logits = logits if shared else _take(logits, positions)
            values = chooser.shared(logits, samples) if shared else chooser.values(logits, positions)
            if score or self.unmasking.remask:
                log_probs = logits.log_softmax(-1).expand(*values.shape, model.n)
                chosen = log_probs.gather(-1, values[..., None]).squeeze(-1)
                chosen = chosen.gather(-1, positions) if shared else chosen
                chosen = chosen if inside is None else torch.where(inside, chosen, 0)
                log_prob = log_prob + chosen.sum(-1)
                trust = trust.to(chosen.dtype).scatter_add(-1, positions, chosen)
            values = values.gather(-1, positions) if shared else values
            if inside is not None:
                values = torch.where(inside, values, code.gather(-1, positions))
            code = code.scatter(-1, positions, values)
            code = self._with_certain(code, (code == mask) & free)
            used = used + (1 if inside is None else inside.any(-1))
            yield Step(code, log_prob, used)
        for _ in range(self.unmasking.remask):
            code, trust = self._remasked(conditions, code, trust, chooser)
            used = used + free.any(-1)
            yield Step(code, log_prob, used)

    def _remasked(
        self, conditions: Conditions, code: Tensor, trust: Tensor, chooser: Chooser
    ) -> tuple[Tensor, Tensor]:
        """Codes in which the values drawn with the least probability, as many as the largest block has, are
        drawn anew given the others, and the log-probabilities ``trust (samples, rows, n)`` of all."""
        model, free, blocks = self.model, conditions.free(self.model).expand_as(code), self.unmasking.blocks
        assert blocks is not None
        size = max(blocks.widest(model.n - model.certain_count, step) for step in range(blocks.nfe))
        positions = torch.where(free, trust, torch.inf).argsort(dim=-1, stable=True)[..., :size]
        inside = free.gather(-1, positions)
        kept = code.gather(-1, positions)
        hidden = code.scatter(-1, positions, torch.where(inside, model.network.mask_value, kept))
        logits = self.unmasking.temper(logits_at(model, conditions, hidden, positions))
        values = torch.where(inside, chooser.values(logits, positions), kept)
        chosen = logits.log_softmax(-1).gather(-1, values[..., None]).squeeze(-1)
        return code.scatter(-1, positions, values), trust.scatter(-1, positions, chosen)

    def _with_certain(self, code: Tensor, remaining: Tensor, *, leading: bool = True) -> Tensor:
        """Codes in which positions with a single possible value, which take no evaluation, are revealed too.

        Those at the front with the first block, as if left to right, the others when nothing else remains.
        """
        certain = self.model.certain
        if not self.model.certain_count:
            return code
        shown = certain & ~remaining.any(-1, keepdim=True)
        if leading:
            shown = shown | certain.long().cumprod(0).bool()
        return torch.where(shown & (code == self.model.network.mask_value), 0, code)

    def _choose(self, logits: Tensor, remaining: Tensor, length: int | Tensor, step: int) -> Block:
        """The block that the predictions ``(…, n, values)`` call for; ``(rows, …)`` at the first step."""
        logits = logits.detach()
        if self.unmasking.blocks is not None:
            return confident(logits, remaining, length, self.unmasking.blocks, step)
        assert self.unmasking.entropy_bound is not None
        return within_entropy(logits, remaining, self.unmasking.entropy_bound, self.unmask)


def _take(tokens: Tensor, positions: Tensor) -> Tensor:
    """``(samples, rows, n, own)`` at positions ``(samples, rows, size)``."""
    return tokens.gather(-2, positions[..., None].expand(*positions.shape, tokens.shape[-1]))
