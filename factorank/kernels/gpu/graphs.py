"""Recordings of what a model computes again and again: CUDA graphs.

On a GPU a small model is hundreds of short kernels, and the host takes longer to launch them than the device
to run them. The second time that the same is asked for it is recorded as a graph; from then on it is replayed
in one launch. What cannot be recorded is called each time, with a warning.
"""

import contextlib
import threading
import warnings
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal, TypeVar

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map

from factorank.kernels import dispatch

T = TypeVar("T")
KEPT = 4
"""How many recordings are kept by one recorder; each holds the memory of its kernels."""
_recording = threading.RLock()


def place() -> tuple[int, int]:
    """The thread and the stream: what is recorded for one must not be overwritten from another."""
    return threading.get_ident(), torch.cuda.current_stream().cuda_stream


class Recorder:
    """Runs functions, and records those that come again."""

    def __init__(self) -> None:
        self._seen: dict[Any, tuple[torch.cuda.CUDAGraph, Any] | Literal["once", "never"]] = {}

    def __contains__(self, key: Any) -> bool:
        return key in self._seen

    def run(
        self,
        key: Any,
        function: Callable[[], T],
        generator: torch.Generator | None,
        first: Callable[[], T] | None = None,
    ) -> T:
        """What ``function`` gives, the first time by calling it, or ``first`` in its place, later by a replay
        that overwrites the last."""
        if key not in self._seen:
            while len(self._seen) >= KEPT:
                del self._seen[next(iter(self._seen))]
            self._seen[key] = "once"
            return (first or function)()
        found = self._seen.pop(key)
        if found == "once":
            found = _record(function, generator)
        self._seen[key] = found  # the last to be forgotten
        if found == "never":
            return function()
        graph, result = found
        graph.replay()
        return result


class TensorRecorder:
    """Runs functions of one tensor and a model's weights, and records those that come again.

    A recording is of a tensor of that shape, into whose memory each one is copied.
    """

    def __init__(self) -> None:
        self._forget(None)

    def _forget(self, weights: Any) -> None:
        self._weights, self._recorder = weights, Recorder()
        self._tensors: dict[Any, Tensor] = {}

    def run(
        self,
        key: Any,
        function: Callable[[Tensor], T],
        tensor: Tensor,
        generator: torch.Generator | None,
        weights: Any,
    ) -> T:
        """What ``function(tensor)`` gives; the next run may overwrite it. ``weights``: ``weights_key``."""
        if weights != self._weights:
            self._forget(weights)
        key = (key, tensor.shape, tensor.dtype, *place())
        if key not in self._recorder:
            self._tensors = {old: one for old, one in self._tensors.items() if old in self._recorder}
            self._tensors[key] = torch.empty_like(tensor)
        own = self._tensors[key]
        own.copy_(tensor)
        return self._recorder.run(key, lambda: function(own), generator)


_recorders: weakref.WeakKeyDictionary[nn.Module, TensorRecorder] = weakref.WeakKeyDictionary()


def recorder_of(model: nn.Module) -> TensorRecorder:
    """The recorder that a model keeps for as long as it lives."""
    return _recorders.setdefault(model, TensorRecorder())


@torch.no_grad()
def replayed(model: nn.Module, key: Any, function: Callable[[Tensor], T], tensor: Tensor, tokens: int) -> T:
    """``function(tensor)``, which ``key`` names among the functions of a model and which handles so many
    tokens.

    On a GPU it is recorded when a tensor of the same shape comes again, so it must not draw random numbers or
    wait for the device. Elsewhere, and while something else is being recorded, it is just called.
    """
    if tensor.numel() == 0 or not dispatch.records(tensor.device, tokens):  # nothing to launch, no graph
        return function(tensor)
    with torch.cuda.device(tensor.device):
        result = recorder_of(model).run(key, function, tensor, None, weights_key(model, "cuda"))
    copied: T = tree_map(lambda one: one.clone() if isinstance(one, Tensor) else one, result)
    return copied


def weights_key(model: nn.Module, device: str) -> Any:
    """Changes whenever a weight is changed in place or replaced, with autocast, and inside of ``plain``."""
    narrow = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else None
    weights = ((weight.data_ptr(), weight._version) for weight in model.parameters())
    return narrow, dispatch.switched_off(), *weights


def _record(
    function: Callable[[], T], generator: torch.Generator | None
) -> tuple[torch.cuda.CUDAGraph, T] | Literal["never"]:
    graph = torch.cuda.CUDAGraph()
    if generator is not None and generator not in torch.cuda.default_generators:
        graph.register_generator_state(generator)
    main, stream, generators = torch.cuda.current_stream(), torch.cuda.Stream(), _generators(generator)
    states = [one.get_state() for one in generators]
    stream.wait_stream(main)
    with _recording, _without_autocast_cache():
        with torch.cuda.stream(stream):
            function()  # what the libraries keep for a stream is made now, not while recording
            for one, state in zip(generators, states, strict=True):
                one.set_state(state)
        main.wait_stream(stream)
        try:
            with torch.cuda.graph(graph, stream=stream, capture_error_mode="thread_local"):
                result = function()
        except (RuntimeError, torch.AcceleratorError) as error:
            recover(main, generators, states)
            warnings.warn(f"this is called kernel by kernel: {error}", UserWarning, stacklevel=2)
            return "never"
    return graph, result


def recover(main: torch.cuda.Stream, generators: Sequence[torch.Generator], states: Sequence[Tensor]) -> None:
    """After a recording that failed: back on the main stream, and the generators to these states."""
    torch.cuda.set_stream(main)  # torch stays on the stream of a capture that fails
    for generator, state in zip(generators, states, strict=True):
        # A capture that fails leaves its generators recording; a fresh state ends that.
        fresh = torch.Generator(generator.device)
        fresh.set_state(state)
        generator.graphsafe_set_state(fresh.graphsafe_get_state())


@contextlib.contextmanager
def _without_autocast_cache() -> Iterator[None]:
    """Weights are narrowed inside of the recording: copies that autocast keeps are gone when it ends."""
    before = torch.is_autocast_cache_enabled()
    torch.set_autocast_cache_enabled(False)
    try:
        yield
    finally:
        torch.set_autocast_cache_enabled(before)


def _generators(generator: torch.Generator | None) -> list[torch.Generator]:
    if generator is not None:
        return [generator]
    return [torch.cuda.default_generators[torch.cuda.current_device()]]
