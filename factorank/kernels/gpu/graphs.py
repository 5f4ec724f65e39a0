"""Recordings of what a model computes repeatedly, and of a training step: CUDA graphs.

On a GPU a small model is hundreds of short kernels, and the host takes longer to launch them than the device
to run them. The second time that the same computation is wanted it is recorded as a graph. From then on it is
replayed in one launch. What cannot be recorded is called each time, with a warning.
"""

import contextlib
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Literal, TypeVar

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map

from factorank.errors import warn
from factorank.kernels import dispatch

T = TypeVar("T")
KEPT = 4
"""How many recordings a recorder keeps; each holds the memory of its kernels."""
EAGER_RUNS = 3
"""Runs before a graph is captured: they make the optimizer's state and cuBLAS's workspaces."""
_recording = threading.RLock()


def thread_and_stream() -> tuple[int, int]:
    """The current ones: a recording for one must not be overwritten from another."""
    return threading.get_ident(), torch.cuda.current_stream().cuda_stream


class Recorder:
    """Runs functions, and records those that are run again.

    A key is "once" after its first run, "never" if it cannot be recorded, else a recording.
    """

    def __init__(self) -> None:
        self._recordings: dict[Any, tuple[torch.cuda.CUDAGraph, Any] | Literal["once", "never"]] = {}

    def __contains__(self, key: Any) -> bool:
        return key in self._recordings

    def run(
        self,
        key: Any,
        function: Callable[[], T],
        generator: torch.Generator | None,
        first: Callable[[], T] | None = None,
    ) -> T:
        """The result of ``function``: of a call the first time, of ``first`` if that is passed, and of a
        replay later, which overwrites the last result."""
        if key not in self._recordings:
            while len(self._recordings) >= KEPT:
                del self._recordings[next(iter(self._recordings))]
            self._recordings[key] = "once"
            return (first or function)()
        recording = self._recordings.pop(key)
        if recording == "once":
            recording = _record(function, generator)
        self._recordings[key] = recording  # the last to be dropped
        if recording == "never":
            return function()
        graph, result = recording
        graph.replay()
        return result


class TensorRecorder:
    """Runs functions of one tensor and a model's weights, and records those that are run again.

    A recording reads a tensor of its own, into which the input of each run is copied.
    """

    def __init__(self) -> None:
        self._reset(None)

    def _reset(self, weights: Any) -> None:
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
        """The result of ``function(tensor)``; the next run may overwrite it. ``weights``: ``weights_key``."""
        if weights != self._weights:
            self._reset(weights)
        key = (key, tensor.shape, tensor.dtype, *thread_and_stream())
        if key not in self._recorder:
            self._tensors = {old: kept for old, kept in self._tensors.items() if old in self._recorder}
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
    """``function(tensor)``, named by ``key`` among the functions of a model, on so many tokens in all.

    On a GPU it is recorded when a tensor of the same shape comes again, so it must not draw random numbers or
    wait for the device. Elsewhere, and while something else is being recorded, it is just called.
    """
    if tensor.numel() == 0 or not dispatch.records(tensor.device, tokens):  # no kernels, no graph
        return function(tensor)
    with torch.cuda.device(tensor.device):
        result = recorder_of(model).run(key, function, tensor, None, weights_key(model, "cuda"))
    copied: T = tree_map(lambda leaf: leaf.clone() if isinstance(leaf, Tensor) else leaf, result)
    return copied


def weights_key(model: nn.Module, device: str) -> Any:
    """Changes whenever a weight is changed in place or replaced, with autocast, and inside of ``plain``."""
    narrow = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else None
    weights = ((weight.data_ptr(), weight._version) for weight in model.parameters())
    return narrow, dispatch.switched_off(), *weights


class StepGraph:
    """Runs a step on a GPU, and replays it once it is recorded.

    The step takes and returns nothing. It is tensor operations on fixed addresses that never wait for the
    device, and draws from ``generators``.
    """

    def __init__(self, device: torch.device, generators: Iterable[torch.Generator]) -> None:
        self._device, self._stream = device, torch.cuda.Stream(device)
        self._generators = [generator for generator in generators if generator.device.type == "cuda"]
        self._graph: torch.cuda.CUDAGraph | None = None
        self._runs = 0

    @property
    def due(self) -> bool:
        """Whether the step is to be recorded before its next run."""
        return self._graph is None and self._runs == EAGER_RUNS

    def record(self, step: Callable[[], None]) -> None:
        """Record the step without running it. Where that fails, an error is raised; nothing is changed."""
        self._graph, _ = capture(step, self._stream, self._generators)

    def run(self, step: Callable[[], None]) -> None:
        """Replay the recording, or run the step on the stream of the capture until there is one.

        The libraries then make what they keep per stream.
        """
        if self._graph is not None:
            self._graph.replay()
            return
        self._runs += 1
        main = torch.cuda.current_stream(self._device)
        self._stream.wait_stream(main)
        with torch.cuda.stream(self._stream):
            step()
        main.wait_stream(self._stream)


def capture(
    function: Callable[[], T], stream: torch.cuda.Stream, generators: Sequence[torch.Generator]
) -> tuple[torch.cuda.CUDAGraph, T]:
    """Record a function on a stream: the graph, and the result that its replays overwrite.

    Recording runs nothing. Where it fails, the generators are as before and the error is raised.
    """
    graph = torch.cuda.CUDAGraph()
    main = torch.cuda.current_stream(stream.device)
    states = [generator.get_state() for generator in generators]
    for generator in generators:
        if generator not in torch.cuda.default_generators:  # torch registers its own
            graph.register_generator_state(generator)
    try:
        with torch.cuda.graph(graph, stream=stream, capture_error_mode="thread_local"):
            result = function()
    except (RuntimeError, torch.AcceleratorError):
        torch.cuda.set_stream(main)  # torch stays on the stream of a capture that fails
        for generator, state in zip(generators, states, strict=True):
            # A capture that fails leaves its generators recording; a fresh state ends that.
            fresh = torch.Generator(generator.device)
            fresh.set_state(state)
            generator.graphsafe_set_state(fresh.graphsafe_get_state())
        raise
    return graph, result


def _record(
    function: Callable[[], T], generator: torch.Generator | None
) -> tuple[torch.cuda.CUDAGraph, T] | Literal["never"]:
    if generator is None:
        generator = torch.cuda.default_generators[torch.cuda.current_device()]
    main, stream, state = torch.cuda.current_stream(), torch.cuda.Stream(), generator.get_state()
    stream.wait_stream(main)
    with _recording, _without_autocast_cache():
        with torch.cuda.stream(stream):
            function()  # the libraries make what they keep for a stream now, not while recording
            generator.set_state(state)
        main.wait_stream(stream)
        try:
            return capture(function, stream, [generator])
        except (RuntimeError, torch.AcceleratorError) as error:
            warn(f"this is called kernel by kernel: {error}")
            return "never"


@contextlib.contextmanager
def _without_autocast_cache() -> Iterator[None]:
    """Weights are narrowed inside of the recording: the copies that autocast keeps end with it."""
    before = torch.is_autocast_cache_enabled()
    torch.set_autocast_cache_enabled(False)
    try:
        yield
    finally:
        torch.set_autocast_cache_enabled(before)
