"""Draws of a law, and what it keeps from one to the next.

On a GPU draws that come again are replayed: see :mod:`factorank.kernels.gpu.graphs`. What comes again is a
law that is asked for as many samples, from the same generator and with the same weights. A law that is made
for one context and asked once has no second time: what is recorded there is the draw of the model for
contexts of that shape.
"""

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from factorank.kernels import dispatch
from factorank.kernels.gpu.graphs import Recorder, place, recorder_of, weights_key
from factorank.models.conditions import Given, last
from factorank.models.unmasking import Draw

if TYPE_CHECKING:
    from factorank.models.law import PermutationLaw


class Sampler:
    """Draws of a law.

    Kept for as long as no weight changes: the first evaluation of a masked model, or the encoded items of an
    autoregressive one, and on a GPU recordings.
    """

    def __init__(self, law: "PermutationLaw") -> None:
        self._law = law
        self._forget(None)

    def _forget(self, weights: Any) -> None:
        self._weights, self._recorder = weights, Recorder()
        self._ready: tuple[slice | None, Given | None] = (None, None)

    def draw(
        self, given: Given, rows: slice, samples: int, generator: torch.Generator | None
    ) -> tuple[Tensor, Tensor]:
        """Orders ``(samples, rows, n)`` and the evaluations each took; the next draw may overwrite them."""
        law, device = self._law, self._law._device.type
        weights = weights_key(law.model, device)
        if weights != self._weights:
            self._forget(weights)
        if self._ready[0] == rows and self._ready[1] is not None:
            given = self._ready[1]
        self._ready = rows, given

        def walk() -> tuple[Tensor, Tensor]:
            return _walked(law, given, samples, generator)

        # Lists of several lengths, fixed values and bounds on the entropy make the host wait for the device.
        waits = law.nfe is None or given.fixed is not None or given.present is not None
        if waits or not dispatch.records(law._device, 0):
            return walk()
        first = draw_for(law, given, samples, generator, weights) if can_share(given) else None
        with torch.cuda.device(law._device):
            key = (rows.start, rows.stop, samples, generator, *place())
            return self._recorder.run(key, walk, generator, first)


def can_share(given: Given) -> bool:
    """Whether the context is all that tells this law from others of its model."""
    known = given.known
    return (
        known is not None
        and known.present is None
        and given.reference is None
        and dispatch.records(known.tokens.device, known.tokens.shape[:-1].numel())
    )


def draw_for(
    law: "PermutationLaw", given: Given, samples: int, generator: torch.Generator | None, weights: Any
) -> Callable[[], tuple[Tensor, Tensor]]:
    """Draws for one context, recorded if laws like this one have been asked for as many before."""
    known = given.known
    assert known is not None

    def walk(tokens: Tensor) -> tuple[Tensor, Tensor]:
        return _walked(law, Given(given.rows, dataclasses.replace(known, tokens=tokens)), samples, generator)

    key = (type(law), law.nfe, law.unmask, samples, generator, given.rows, known.aligned)
    return lambda: recorder_of(law.model).run(key, walk, known.tokens, generator, weights)


def _walked(
    law: "PermutationLaw", given: Given, samples: int, generator: torch.Generator | None
) -> tuple[Tensor, Tensor]:
    step = last(law._walk(given, samples, Draw(generator), generator))
    return law._decode(given, step.code), step.nfe
