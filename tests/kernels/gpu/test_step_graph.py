"""When a step is run, recorded and replayed, with stand-ins for CUDA; test_step_gpu.py has real steps."""

from contextlib import contextmanager

import pytest
import torch

from factorank.kernels.gpu.graphs import EAGER_RUNS, StepGraph


@pytest.fixture
def events(monkeypatch):
    """What happens, in order."""
    happened = []

    class Stream:
        def __init__(self, device=None):
            self.device = device

        def wait_stream(self, other):
            happened.append("wait")

    class Graph:
        def replay(self):
            happened.append("replay")

        def register_generator_state(self, generator):
            happened.append("register")

    @contextmanager
    def recording(graph, *, stream, capture_error_mode):
        happened.append("begin")
        yield
        happened.append("end")

    @contextmanager
    def on(stream):
        happened.append("side")
        yield
        happened.append("main")

    for name, stand_in in {
        "Stream": Stream,
        "CUDAGraph": Graph,
        "graph": recording,
        "stream": on,
        "current_stream": lambda device=None: Stream(device),
        "set_stream": lambda stream: happened.append("back"),
    }.items():
        monkeypatch.setattr(torch.cuda, name, stand_in)
    return happened


def test_run_recorded_and_replayed(events):
    graph = StepGraph(torch.device("cuda"), [torch.Generator()])  # no generator of the CPU takes part

    def step():
        events.append("step")

    for _ in range(EAGER_RUNS):
        assert not graph.due
        graph.run(step)
    assert events == ["wait", "side", "step", "main", "wait"] * EAGER_RUNS
    assert graph.due
    events.clear()
    graph.record(step)
    assert not graph.due
    for _ in range(2):
        graph.run(step)
    assert events == ["begin", "step", "end", "replay", "replay"]


def test_a_step_that_cannot_be_recorded(events):
    graph = StepGraph(torch.device("cuda"), [])

    def step():
        raise RuntimeError("waits for the device")

    with pytest.raises(RuntimeError, match="waits"):
        graph.record(step)
    assert events == ["begin", "back"]
