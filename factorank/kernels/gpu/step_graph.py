"""A step that is run again and again: eagerly at first, then as the replay of a CUDA graph."""

from collections.abc import Callable, Iterable

import torch

from factorank.kernels.gpu.graphs import capture

EAGER_RUNS = 3
"""Runs before a graph is captured: they make the optimizer's state and cuBLAS's workspaces."""


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
