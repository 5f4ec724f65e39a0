"""What is called, recorded and replayed, with a stand-in for CUDA graphs; test_gpu.py has real ones."""

from contextlib import nullcontext

import pytest
import torch
from torch import nn
from torch.utils._pytree import tree_leaves

import factorank as fr
from factorank.kernels import dispatch
from factorank.kernels.gpu import graphs
from factorank.kernels.gpu.graphs import (
    KEPT,
    Recorder,
    TensorRecorder,
    replayed,
    weights_key,
)
from factorank.models import chunks
from tests.models.naive import small_model


def same(ours, theirs):
    return all(torch.equal(a, b) for a, b in zip(ours, theirs, strict=True))


class Graph:
    """Counts its replays."""

    def __init__(self, events):
        self.events = events

    def replay(self):
        self.events.append("replay")


@pytest.fixture
def events(monkeypatch):
    """What happens, in order: calls of functions, recordings and replays."""
    happened = []

    def record(function, generator):
        happened.append("record")
        return Graph(happened), function()

    monkeypatch.setattr(graphs, "_record", record)
    return happened


def counted(events, value=7):
    def function():
        events.append("call")
        return value

    return function


def test_the_second_time_is_recorded_and_later_ones_replayed(events):
    recorder = Recorder()
    assert [recorder.run("a", counted(events), None) for _ in range(4)] == [7] * 4
    assert events == ["call", "record", "call", "replay", "replay", "replay"]


def test_the_first_time_can_be_another_function(events):
    recorder = Recorder()
    assert recorder.run("a", counted(events), None, lambda: 8) == 8
    assert recorder.run("a", counted(events), None, lambda: 8) == 7
    assert events == ["record", "call", "replay"]


def test_what_was_used_last_is_kept_longest(events):
    recorder = Recorder()
    for key in range(KEPT):
        recorder.run(key, counted(events), None)
    recorder.run(0, counted(events), None)
    recorder.run("new", counted(events), None)
    assert [key in recorder for key in (0, 1, 2, "new")] == [True, False, True, True]


def test_what_cannot_be_recorded_is_called(events, monkeypatch):
    monkeypatch.setattr(graphs, "_record", lambda function, generator: "never")
    recorder = Recorder()
    assert [recorder.run("a", counted(events), None) for _ in range(3)] == [7] * 3
    assert events == ["call"] * 3


def test_a_function_that_fails_is_tried_anew(events):
    recorder = Recorder()

    def failing():
        raise ValueError("no")

    recorder.run("a", counted(events), None)
    for _ in range(2):
        with pytest.raises(ValueError, match="no"):
            recorder.run("a", failing, None)
    assert recorder.run("a", counted(events), None) == 7


def test_recordings_of_tensors_have_a_tensor_of_their_own_by_shape_thread_and_stream(events, monkeypatch):
    places = iter([(0, 0)] * 3 + [(0, 1)] * 2 + [(1, 0)])
    monkeypatch.setattr(graphs, "thread_and_stream", lambda: next(places))
    recorder, addresses = TensorRecorder(), []

    def function(tensor):
        addresses.append(tensor.data_ptr())
        return 2 * tensor

    zeros, ones = torch.zeros(3), torch.ones(3)
    for tensor in (zeros, ones, torch.ones(4), zeros, ones, ones):
        result = recorder.run("double", function, tensor, None, "weights")
        assert torch.equal(result, 2 * tensor)
    assert events == ["record", "replay", "record", "replay"]
    assert len(set(addresses)) == 4
    assert addresses[0] == addresses[1]
    assert addresses[3] == addresses[4]


def test_on_the_cpu_functions_are_called():
    model = nn.Linear(3, 3)
    inputs = torch.randn(5, 3)
    for _ in range(3):
        assert torch.equal(replayed(model, "forward", model, inputs, 5), model(inputs))


def test_the_key_of_the_weights_tells_of_every_change():
    model = nn.Linear(2, 2)
    keys = [weights_key(model, "cpu")]
    assert weights_key(model, "cpu") == keys[0]
    with torch.no_grad():
        model.bias.add_(1)
    keys.append(weights_key(model, "cpu"))
    old, model.weight = model.weight, nn.Parameter(torch.zeros(2, 2))
    keys.append(weights_key(model, "cpu"))
    with torch.autocast("cpu", torch.bfloat16):
        keys.append(weights_key(model, "cpu"))
    assert len(set(keys)) == 4
    del old


# The whole way, with stand-ins that run again what they have recorded, into the memory of the first result.


class Again:
    def __init__(self, function):
        self.function, self.result = function, function()

    def replay(self):
        for old, new in zip(tree_leaves(self.result), tree_leaves(self.function()), strict=True):
            old.copy_(new)


@pytest.fixture
def recordings(monkeypatch):
    """Everything is recorded on the CPU; the list of what has been."""
    recorded = []

    def record(function, generator):
        states = [] if generator is None else [generator.get_state()]
        recorded.append(Again(function))
        for state in states:  # recording runs nothing
            generator.set_state(state)
        return recorded[-1], recorded[-1].result

    monkeypatch.setattr(graphs, "_record", record)
    monkeypatch.setattr(torch.cuda, "device", lambda device: nullcontext())
    for module in (graphs, chunks):
        monkeypatch.setattr(module, "thread_and_stream", lambda: (0, 0))
    monkeypatch.setattr(dispatch, "records", lambda device, tokens: not dispatch.is_plain("recording"))
    return recorded


@pytest.mark.parametrize(
    "options", [{"nfe": 1}, {"nfe": 3}, {"nfe": 2, "unmask": "confident"}, {"objective": "autoregressive"}]
)
def test_recorded_draws_for_new_contexts_are_those_of_the_generator(options, recordings):
    objective = options.get("objective", "masked")
    how = {name: value for name, value in options.items() if name != "objective"}
    model = small_model(5, "lehmer", objective, context=fr.ItemContext(9, 16))
    contexts = [torch.randint(9, (6, 5)) for _ in range(5)]
    generator = torch.Generator()

    def drawn():
        laws = [model.distribution(items, **how) for items in contexts]
        return [
            law.sample((20,), generator=generator.manual_seed(i)) for i, law in enumerate(laws) for _ in "abc"
        ]

    before = model.network.head.bias.detach().clone()
    recorded = drawn()
    assert len(recordings) == 1 + len(contexts)  # one for all contexts, and each law's own
    with torch.no_grad():
        model.network.head.bias[:, 0] += 1
    changed = drawn()
    assert not same(recorded, changed)
    with dispatch.plain("recording"):
        assert same(changed, drawn())
    with torch.no_grad():
        model.network.head.bias.copy_(before)
    assert same(recorded, drawn())


def test_replays_of_several_functions_and_shapes_do_not_mix(recordings):
    model = nn.Linear(3, 3)
    plain, double = model, lambda tensor: (2 * model(tensor), tensor + 1)
    for _ in range(4):
        for rows in (2, 5):
            inputs = torch.randn(rows, 3)
            results = [
                replayed(model, "plain", plain, inputs, rows),
                *replayed(model, "two", double, inputs, rows),
            ]
            expected = [model(inputs), 2 * model(inputs), inputs + 1]
            assert same(results, expected)
    assert len(recordings) == 4
    for _ in range(3):
        assert replayed(model, "plain", plain, torch.empty(0, 3), 0).shape == (0, 3)
    assert len(recordings) == 4
