"""Draws of a law, and what it keeps from one to the next.

On a GPU a draw of a small model is hundreds of short kernels, and the host takes longer to launch them than
the device to run them. The second time a law is asked for as many samples, from the same generator and with
the same weights, its draw is recorded as a CUDA graph; from then on it is replayed in one launch. A law that
is made for one context and asked once has no second time: what is recorded there is the draw of the model for
contexts of that shape, into whose memory each context is copied.
"""

import dataclasses
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from factorank.models.choosers import Draw
from factorank.models.given import Given, last

if TYPE_CHECKING:
    from factorank.models.law import PermutationLaw

Walk = Callable[[], tuple[Tensor, Tensor]]
KEPT = 4
"""How many recorded draws a law keeps, and a model of all its laws; each holds the memory of its kernels."""
MOST_TOKENS = 2**17
"""Tokens of a context for which a model records draws: beyond, the device takes longer than the host."""


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
        narrow = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else None
        weights = (weights_key(law.model), narrow)
        if weights != self._weights:
            self._forget(weights)
        if self._ready[0] == rows and self._ready[1] is not None:
            given = self._ready[1]
        self._ready = rows, given

        def walk() -> tuple[Tensor, Tensor]:
            step = last(law._walk(given, samples, Draw(generator), generator))
            return law._decode(given, step.code), step.nfe

        # Lists of several lengths, fixed values and bounds on the entropy make the host wait for the device.
        waits = law.nfe is None or given.fixed is not None or given.present is not None
        if device != "cuda" or waits or torch.cuda.is_current_stream_capturing():
            return walk()
        first: Walk | None = None
        if can_share(given):
            first = _shared.setdefault(law.model, Shared()).draw_for(law, given, samples, generator, weights)
        return self._recorder.run((rows.start, rows.stop, samples, generator), walk, generator, first)


def can_share(given: Given) -> bool:
    """Whether the context is all that tells this law from others of its model."""
    known = given.known
    return (
        known is not None
        and known.present is None
        and given.reference is None
        and known.tokens.shape[:-1].numel() <= MOST_TOKENS
    )


class Shared:
    """The recorded draws of a model for contexts of some shapes."""

    def __init__(self) -> None:
        self._forget(None)

    def _forget(self, weights: Any) -> None:
        self._weights, self._recorder = weights, Recorder()
        self._given: dict[Any, Given] = {}

    def draw_for(
        self,
        law: "PermutationLaw",
        given: Given,
        samples: int,
        generator: torch.Generator | None,
        weights: Any,
    ) -> Walk:
        """Draws for one context, recorded if laws like this one have been asked for as many before."""

        def draw() -> tuple[Tensor, Tensor]:
            assert given.known is not None
            if weights != self._weights:
                self._forget(weights)
            tokens = given.known.tokens
            about = (given.rows, tokens.shape, tokens.dtype, given.known.aligned)
            key = (type(law), law.nfe, law.unmask, samples, generator, *about)
            if key not in self._recorder:
                self._given = {old: one for old, one in self._given.items() if old in self._recorder}
                known = dataclasses.replace(given.known, tokens=torch.empty_like(tokens))
                self._given[key] = Given(given.rows, known)
            fixed = self._given[key]
            assert fixed.known is not None
            fixed.known.tokens.copy_(tokens)

            def walk() -> tuple[Tensor, Tensor]:
                # A copy: what a walk keeps in it would be that of the first context.
                step = last(law._walk(dataclasses.replace(fixed), samples, Draw(generator), generator))
                return law._decode(fixed, step.code), step.nfe

            return self._recorder.run(key, walk, generator)

        return draw


_shared: weakref.WeakKeyDictionary[nn.Module, Shared] = weakref.WeakKeyDictionary()


class Recorder:
    """Runs draws, and records those that come again."""

    def __init__(self) -> None:
        self._seen: dict[Any, tuple[torch.cuda.CUDAGraph, tuple[Tensor, Tensor]] | None] = {}

    def __contains__(self, key: Any) -> bool:
        return key in self._seen

    def run(
        self, key: Any, draw: Walk, generator: torch.Generator | None, first: Walk | None = None
    ) -> tuple[Tensor, Tensor]:
        """What ``draw`` gives, the first time by calling it, or ``first`` in its place, later by a replay
        that overwrites the last."""
        if key not in self._seen:
            while len(self._seen) >= KEPT:
                del self._seen[next(iter(self._seen))]
            self._seen[key] = None
            return (first or draw)()
        found = self._seen[key]
        if found is None:
            found = self._seen[key] = self._record(draw, generator)
        graph, result = found
        graph.replay()
        return result

    def _record(
        self, draw: Walk, generator: torch.Generator | None
    ) -> tuple[torch.cuda.CUDAGraph, tuple[Tensor, Tensor]]:
        graph = torch.cuda.CUDAGraph()
        if generator is not None and generator not in torch.cuda.default_generators:
            graph.register_generator_state(generator)
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            states = [one.get_state() for one in _generators(generator)]
            draw()  # what the libraries keep for a stream is made now, not while recording
            for one, state in zip(_generators(generator), states, strict=True):
                one.set_state(state)
        torch.cuda.current_stream().wait_stream(stream)
        with torch.cuda.graph(graph, stream=stream, capture_error_mode="thread_local"):
            result = draw()
        return graph, result


def weights_key(model: nn.Module) -> tuple[int, ...]:
    """Changes whenever a weight is changed in place or replaced."""
    return tuple(part for weight in model.parameters() for part in (weight.data_ptr(), weight._version))


def _generators(generator: torch.Generator | None) -> list[torch.Generator]:
    if generator is not None:
        return [generator]
    return [torch.cuda.default_generators[torch.cuda.current_device()]]
