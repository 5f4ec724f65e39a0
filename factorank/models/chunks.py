"""Draws and scores of a law, in chunks that fit the memory, and what is kept from one draw to the next.

On a GPU draws that come again are replayed: see :mod:`factorank.kernels.gpu.graphs`. What comes again is a
law that is asked for as many samples, from the same generator and with the same weights. A law that is made
for one context and asked once has no second time: what is recorded there is the draw of the model for
contexts of that shape.
"""

import dataclasses
import math
from collections.abc import Callable, Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from factorank.distributions.conditioning.rules import ImpossibleObservation
from factorank.errors import ModelError, short_of_memory
from factorank.kernels import dispatch
from factorank.kernels.gpu.graphs import Recorder, recorder_of, thread_and_stream, weights_key
from factorank.models import drafting, orders
from factorank.models.conditions import Conditions
from factorank.models.network import evaluating
from factorank.models.unmasking import last
from factorank.permutations import cannot_check
from factorank.sampling.choosers import Draw, Replay, StratifiedDraw
from factorank.sampling.speculative import DraftReport

if TYPE_CHECKING:
    from factorank.models.law import PermutationLaw

CHUNK = {"cpu": 2**22, "cuda": 2**29}
"""How many numbers the widest tensor of a network evaluation may hold, by device; it bounds the memory."""
ROOM_FOR_CACHES = ("cpu",)
"""Devices whose chunks are so small that keys and values of all layers fit beside them."""


def chunks(
    law: "PermutationLaw", samples: int, at_once: int = 1, *, drawn: bool = True
) -> Iterator[tuple[Conditions, slice, slice]]:
    """Rectangles (rows of the batch, samples of each) that fit the memory, and their conditions.

    Those of the same rows follow each other and share their :class:`Conditions`, and so the first evaluation.
    ``drawn``: samples are drawn, not scored, which may take less memory.
    """
    if torch.compiler.is_compiling():  # a graph is for any number of rows, and its memory is not ours
        yield dataclasses.replace(law.conditions), slice(None), slice(None)
        return
    total, limit = law.conditions.rows, CHUNK.get(law.device.type, CHUNK["cpu"]) // at_once
    widest = law.n * max(4 * law.model.width, 2 * law.n)
    rows = max(1, min(total, limit // widest))
    # Where the first evaluation is all there is, a sample takes no more than a few rows of numbers.
    cached = drawn and law.device.type in ROOM_FOR_CACHES
    each = 4 * law.n if law.nfe == 1 else law.numbers_per_draw() if cached else widest
    draws = max(1, limit // each // rows)
    for row in range(0, total, rows):
        where = slice(row, min(row + rows, total))
        conditions = dataclasses.replace(law.conditions.part(where.start, where.stop))
        for draw in range(0, samples, draws):
            yield conditions, where, slice(draw, min(draw + draws, samples))


def score(law: "PermutationLaw", order: Tensor, generator: torch.Generator | None = None) -> Tensor:
    """The log-probability of each order ``(*sample, *batch, n)``, whose shape broadcasts with the batch."""
    law, rows, shape = aligned(law, order)
    parts: dict[int, list[Tensor]] = {}
    with evaluating(law.model):
        for conditions, where, draws in chunks(law, rows.shape[0], drawn=False):
            code = conditions.encode(law.model, rows[draws, where])
            log_prob = law._score(conditions, code, generator)
            if conditions.fixed is not None:
                agrees = ((conditions.fixed < 0) | (conditions.fixed == code)).all(-1)
                log_prob = torch.where(agrees, log_prob, -torch.inf)
            parts.setdefault(where.start, []).append(log_prob)
    if not parts:
        return torch.zeros(shape, dtype=law.model.network.head.dtype, device=law.device)
    return torch.cat([torch.cat(part, 0) for part in parts.values()], 1).view(shape)


@torch.no_grad()
def check_possible(law: "PermutationLaw", observed: Tensor, fixed: Tensor | None) -> None:
    """Refuse an observed order whose first values ``fixed (rows, n)`` a row of the law never draws.

    The law reveals one position after the other, these first; ``top_p`` and low temperatures leave
    values out.
    """
    if fixed is None or cannot_check(fixed):
        return
    code = torch.where(fixed < 0, law.model.first_values, fixed)
    with evaluating(law.model):
        for conditions, rows, _ in chunks(law, 1, drawn=False):
            for step in law._walk(conditions, 1, Replay(code[None, rows]), None, score=True):
                if not bool(((fixed[rows] >= 0) & (step.code[0] == law.model.network.mask_value)).any()):
                    break
            if bool((impossible := step.log_prob[0] == -torch.inf).any()):
                row = rows.start + int(impossible.int().argmax())
                where = (
                    f" in row {[int(i) for i in np.unravel_index(row, law.batch_shape)]}"
                    if law.batch_shape
                    else ""
                )
                raise ImpossibleObservation(
                    f"the observed order {observed.tolist()} has probability zero under {law!r}{where}"
                )


def aligned(law: "PermutationLaw", order: Tensor) -> tuple["PermutationLaw", Tensor, torch.Size]:
    """A law and orders ``(samples, rows, n)`` that fit it, from orders that broadcast with the batch."""
    padded = orders.check(law.model, order, sequences=not law.model.code.factorized)
    shape = batch_of(law, order)
    batch = shape[len(shape) - len(law.batch_shape) :]
    law = law if batch == law.batch_shape else law.expand(batch)
    full = order.to(torch.int64).expand(*shape, law.n)
    if padded and law.conditions.present is None:  # nothing but the orders tells the lengths of the lists
        law = law.expand(shape)
        law.conditions = dataclasses.replace(law.conditions, present=full.reshape(-1, law.n) >= 0)
        batch = shape
    rows = full.reshape(-1, batch.numel(), law.n) if batch.numel() else full.reshape(0, 0, law.n)
    present = law.conditions.present
    if present is not None and not cannot_check(rows) and not bool(((rows >= 0) == present).all()):
        raise ModelError("an order has as many items as the list in its context, but some here have not")
    return law, rows, shape


def batch_of(law: "PermutationLaw", order: Tensor) -> torch.Size:
    """The batch shape of orders ``(*sample, *batch, n)`` and the law together."""
    try:
        return torch.broadcast_shapes(order.shape[:-1], law.batch_shape)
    except RuntimeError:
        raise ModelError(
            f"a law of batch shape {tuple(law.batch_shape)} takes orders (*sample, *batch, n) that"
            f" broadcast with it, not {tuple(order.shape)}"
        ) from None


class Sampler:
    """Draws of a law.

    Kept for as long as no weight changes: the first evaluation of a masked model, or the encoded items of an
    autoregressive one, and on a GPU recordings. Changes that torch does not count, through ``weight.data`` or
    a numpy view, are not seen: a law that is made after them is right.
    """

    def __init__(self, law: "PermutationLaw") -> None:
        self._law = law
        self._forget(None)

    def _forget(self, weights: Any) -> None:
        self._weights, self._recorder = weights, Recorder()
        self._ready: tuple[slice | None, Conditions | None] = (None, None)

    def sample(
        self,
        samples: int,
        generator: torch.Generator | None,
        nfe: Tensor | None = None,
        report: DraftReport | None = None,
    ) -> Tensor:
        """Orders ``(samples, rows, n)``; how many evaluations each took goes to ``nfe (samples, rows)``."""
        law, size = self._law, (samples, self._law.conditions.rows)
        advice = (
            f"the result alone takes {8 * law.n * math.prod(size):,} bytes: draw fewer samples at once; what"
            f" the network takes follows factorank.models.chunks.CHUNK, now {CHUNK}"
        )
        with short_of_memory(advice), evaluating(law.model):
            drawn: Tensor | None = None
            draft, report = law.draft, DraftReport() if report is None else report
            at_once = 1 if draft is None or law.model.causal else draft.ahead
            for conditions, rows, draws in chunks(law, samples, at_once, drawn=draft is None):
                count = draws.stop - draws.start
                if draft is None:
                    order, used = self._draw(conditions, rows, count, generator)
                else:
                    code, used = drafting.drawn(law, conditions, rows, count, generator, report)
                    order = conditions.decode(law.model, code)
                if order.shape[:2] == size:  # no writing in place, which ``vmap`` cannot do
                    drawn = order.clone()
                else:
                    drawn = order.new_empty((*size, law.n)) if drawn is None else drawn
                    drawn[draws, rows] = order
                if nfe is not None:
                    nfe[draws, rows] = used
        return torch.empty((*size, law.n), dtype=torch.int64, device=law.device) if drawn is None else drawn

    def stratified(self, samples: int, generator: torch.Generator | None) -> Tensor:
        """Orders ``(samples, rows, n)``, those of a row stratified: see :class:`StratifiedDraw`.

        Each follows the law; together they are spread evenly, in whatever chunks they are drawn, so that a
        mean over them has less noise. An autoregressive model is asked for no position past the end of the
        longest list: lists of 10 then take a fifth of the time that lists of 50 do.
        """
        law, present = self._law, self._law.conditions.present
        causal = law.model.causal
        length = int(present.sum(-1).max()) if causal and present is not None and len(present) else law.n
        drawn = torch.empty((samples, law.conditions.rows, law.n), dtype=torch.int64, device=law.device)
        with evaluating(law.model):
            for conditions, rows, draws in chunks(law, samples):
                if draws.start == 0:
                    spread = StratifiedDraw(samples, conditions.rows, length, generator, law.device)
                walk = law._walk(conditions, draws.stop - draws.start, spread.part(draws), generator)
                steps = islice(walk, 1 + length if causal else None)  # the first is the start
                drawn[draws, rows] = conditions.decode(law.model, last(steps).code)
        return drawn

    def path(self, shape: torch.Size, generator: torch.Generator | None) -> Iterator[tuple[Tensor, Tensor]]:
        """See :meth:`PermutationLaw.path`."""
        law, model = self._law, self._law.model
        whole = torch.Size((*shape, *law.batch_shape, law.n))
        steps = law._walk(dataclasses.replace(law.conditions), shape.numel(), Draw(generator), generator)
        while True:
            with torch.no_grad(), evaluating(model):
                step = next(steps, None)
                if step is None:
                    return
                hidden = step.code == model.network.mask_value
                revealed = torch.where(hidden, model.first_values, step.code)
                order = law.conditions.decode(model, revealed)
            yield step.code.masked_fill(hidden, -1).view(whole), order.view(whole)

    def _draw(
        self, conditions: Conditions, rows: slice, samples: int, generator: torch.Generator | None
    ) -> tuple[Tensor, Tensor]:
        """Orders ``(samples, rows, n)`` and the evaluations each took; the next draw may overwrite them."""
        law = self._law
        weights = weights_key(law.model, law.device.type)
        if weights != self._weights:
            self._forget(weights)
        if self._ready[0] == rows and self._ready[1] is not None:
            conditions = self._ready[1]
        self._ready = rows, conditions

        def walk() -> tuple[Tensor, Tensor]:
            return _walked(law, conditions, samples, generator)

        # Lists of several lengths, fixed values and bounds on the entropy make the host wait for the device.
        waits = law.nfe is None or conditions.fixed is not None or conditions.present is not None
        if waits or not dispatch.records(law.device, 0):
            return walk()
        first = draw_for(law, conditions, samples, generator, weights) if can_share(conditions) else None
        with torch.cuda.device(law.device):
            key = (rows.start, rows.stop, samples, generator, *thread_and_stream())
            return self._recorder.run(key, walk, generator, first)


def can_share(conditions: Conditions) -> bool:
    """Whether the context is all that tells this law from others of its model."""
    context = conditions.context
    return (
        context is not None
        and context.present is None
        and conditions.reference is None
        and dispatch.records(context.tokens.device, context.tokens.shape[:-1].numel())
    )


def draw_for(
    law: "PermutationLaw",
    conditions: Conditions,
    samples: int,
    generator: torch.Generator | None,
    weights: Any,
) -> Callable[[], tuple[Tensor, Tensor]]:
    """Draws for one context, recorded if laws like this one have been asked for as many before."""
    context = conditions.context
    assert context is not None

    def walk(tokens: Tensor) -> tuple[Tensor, Tensor]:
        same = Conditions(conditions.rows, dataclasses.replace(context, tokens=tokens))
        return _walked(law, same, samples, generator)

    key = (type(law), law.unmasking, samples, generator, conditions.rows, context.aligned)
    return lambda: recorder_of(law.model).run(key, walk, context.tokens, generator, weights)


def _walked(
    law: "PermutationLaw", conditions: Conditions, samples: int, generator: torch.Generator | None
) -> tuple[Tensor, Tensor]:
    step = last(law._walk(conditions, samples, Draw(generator), generator))
    return conditions.decode(law.model, step.code), step.nfe
