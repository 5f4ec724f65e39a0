"""The autoregressive objective, and the law of an autoregressive model: one position after the other."""

from collections.abc import Iterator

import torch
from torch import Tensor

from factorank.errors import ModelError
from factorank.kernels.cache import Cache
from factorank.models.conditions import Given, Step, evaluating
from factorank.models.context import Known
from factorank.models.law import BEAM, PermutationLaw
from factorank.models.model import PermutationModel
from factorank.models.unmasking import Chooser


def loss(model: PermutationModel, code: Tensor, present: Tensor | None, known: Known | None) -> Tensor:
    """The exact ``-log p`` of each code ``(*batch, n)``."""
    chosen = log_probs(model, code, model.network.memory(known, present))
    return -(chosen if present is None else torch.where(present, chosen, 0)).sum(-1)


def log_probs(model: PermutationModel, code: Tensor, memory: Known | None) -> Tensor:
    """The log-probability of every value ``(*rows, n)`` of the codes, given those before it."""
    return model.network.head.log_probs(model.network.causal_hidden(code, memory), code)


class AutoregressiveLaw(PermutationLaw):
    """The law of an autoregressive model, one position at a time; see :class:`PermutationLaw`."""

    unmask = "left-to-right"

    def __init__(self, model: PermutationModel, given: Given, batch_shape: torch.Size) -> None:
        super().__init__(model, given, batch_shape)
        self.nfe = model.n

    @torch.no_grad()
    def beam(self, width: int = 8) -> tuple[Tensor, Tensor]:
        """The likeliest orders that a beam of that width finds, best first, and their log-probabilities.

        ``(*batch, found, n)`` and ``(*batch, found)``; ``found`` is the width unless there are fewer codes.
        Where a row has fewer orders of non-zero probability, the rest are -1 and minus infinity.
        """
        if width < 1:
            raise ModelError(f"a beam keeps at least 1 order, not {width}", parameter="beam")
        found = []
        for given, _, _ in self._chunks(1, at_once=width):
            code, log_prob = self._beam(given, width)
            none = (log_prob == -torch.inf)[..., None]
            order = self._decode(given, torch.where(none, self.model.first_values, code))
            found.append((torch.where(none, -1, order), log_prob))
        if not found:
            raise ModelError("a law with an empty batch has no orders to search for")
        shape = (*self.batch_shape, found[0][0].shape[0])
        order = torch.cat([part for part, _ in found], 1).movedim(0, 1)
        log_prob = torch.cat([part for _, part in found], 1).movedim(0, 1)
        return order.reshape(*shape, self.n), log_prob.reshape(shape)

    def _beam(self, given: Given, width: int) -> tuple[Tensor, Tensor]:
        """Codes ``(found, rows, n)`` and log-probabilities ``(found, rows)``."""
        model = self.model
        with evaluating(model):
            memory = self._memory(given)
            cache, mask = model.network.begin(memory, torch.Size((1, given.rows)))
            start = given.start(model)
            row = torch.arange(given.rows, device=start.device)
            score = torch.zeros((1, given.rows), device=start.device)
            code = start.expand(1, *start.shape)
            value = torch.full((1, given.rows), model.network.mask_value, device=start.device)
            sizes, different = model.code.sizes(model.n).tolist(), 1
            for position in range(model.n):
                logits = model.network.step(value, position, memory, cache, mask)
                given_here = start[:, position]
                told = torch.where(
                    torch.arange(model.n, device=start.device) == given_here[:, None], 0, -torch.inf
                )
                log_probs = torch.where(
                    (given_here != model.network.mask_value)[:, None], told, logits.log_softmax(-1)
                )
                candidates = (score[..., None] + log_probs).movedim(1, 0).reshape(given.rows, -1)
                different *= sizes[position]
                score, best = candidates.topk(min(width, different), -1)
                score, best = score.T, best.T
                parent, value = best // model.n, best % model.n
                code = code.gather(0, parent[..., None].expand(-1, -1, model.n))
                code = code.index_copy(-1, torch.tensor([position], device=code.device), value[..., None])
                cache.select((parent * given.rows + row).reshape(-1))
                if mask is not None:
                    mask = mask[(parent * given.rows + row).reshape(-1)]
        return code, score

    def _widest(self) -> int:
        # A step takes one token of each sample: what is wide are the keys of those before it. They are kept
        # for every layer, which a GPU with its large chunks has less room for.
        return self.n * self.model.width if self._device.type == "cpu" else super()._widest()

    def _memory(self, given: Given) -> Known | None:
        if given.memory is None:
            given.memory = self.model.network.memory(given.known, given.present)
        return given.memory

    def _mode(self, given: Given) -> Tensor:
        return self._beam(given, BEAM)[0][0]

    def _score(self, given: Given, code: Tensor, generator: torch.Generator | None) -> Tensor:
        chosen = log_probs(self.model, code, self._memory(given))
        free = given.start(self.model) == self.model.network.mask_value
        return torch.where(free, chosen, 0).sum(-1)

    def _walk(
        self,
        given: Given,
        samples: int,
        chooser: Chooser,
        generator: torch.Generator | None,
        score: bool = False,
    ) -> Iterator[Step]:
        model = self.model
        memory = self._memory(given)
        lead, start = torch.Size((samples, given.rows)), given.start(model)
        told = self._told(given, start)
        # As long as the values are known, all samples of a row are one in the network.
        narrow = torch.Size((1, given.rows)) if told else lead
        cache, mask = model.network.begin(memory, narrow)
        code, log_prob = start.repeat(samples, 1, 1), torch.zeros(lead, device=start.device)
        used = torch.zeros(lead, dtype=torch.int64, device=start.device)
        yield Step(code.clone(), log_prob, used)
        value = torch.full(narrow, model.network.mask_value, device=start.device)
        for position in range(model.n):
            logits = model.network.step(value, position, memory, cache, mask)
            here = start[:, position]
            if position < told:
                value = here[None]
            else:
                if position == told > 0:
                    mask = _repeat(cache, mask, given.rows, samples, start.device)
                    logits = logits.expand(*lead, -1)
                free = here == model.network.mask_value
                at = torch.full((*lead, 1), position, device=start.device)
                value = torch.where(free, chooser.values(logits[..., None, :], at).squeeze(-1), here)
                if score:
                    chosen = logits.log_softmax(-1).gather(-1, value[..., None]).squeeze(-1)
                    log_prob = log_prob + torch.where(free, chosen, 0)
                code[..., position] = value
            yield Step(code if position == model.n - 1 else code.clone(), log_prob, used + position + 1)

    def _told(self, given: Given, start: Tensor) -> int:
        """How many of the first values are known in every row."""
        if given.fixed is None or not given.rows:
            return 0
        known = (start != self.model.network.mask_value).all(0)
        return int(known.long().cumprod(0).sum())


def _repeat(
    cache: Cache, mask: Tensor | None, rows: int, samples: int, device: torch.device
) -> Tensor | None:
    """Every row as many times as there are samples, in the cache and in the mask over its keys."""
    index = torch.arange(rows, device=device).repeat(samples)
    cache.select(index)
    return None if mask is None else mask[index]
