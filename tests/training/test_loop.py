"""The loop of a run: time, early stopping, held-out scores, the watcher."""

import itertools
import json
import math
import time
from types import SimpleNamespace

import pytest
import torch

from factorank.errors import TrainingError
from factorank.training import train
from factorank.training.random_streams import random_streams, stream_seed
from tests.training.stand_in import ORDERS, QUICK, lines, make, same_weights


@pytest.fixture
def clock(monkeypatch):
    """Time passes by five milliseconds whenever someone looks, however busy the machine is."""
    ticks = itertools.count()
    monkeypatch.setattr(time, "perf_counter", lambda: 0.005 * next(ticks))


@pytest.mark.usefixtures("clock")
def test_annealing_on_time_goes_on_where_it_was(tmp_path):
    """Each call has max_seconds; a second call anneals what the first left, a third has nothing to do."""
    options = {
        "steps": 10**9,
        "schedule": "time",
        "warmup": 0,
        "log_every": 1,
        "batch_size": 20,
        "device": "cpu",
    }
    options |= {"out": tmp_path, "max_seconds": 0.5}
    first = train(make(), ORDERS, callbacks=[lambda run: "stop" if run.done == 4 else None], **options)
    assert first.stopped == "callback"
    second = train(make(), ORDERS, **options)
    assert second.stopped == "max_seconds"
    rates = [line["lr"] for line in lines(second) if "lr" in line]
    assert rates == sorted(rates, reverse=True)
    assert rates[-1] < 0.1 * rates[0] < 0.5 * rates[3]
    third = train(make(), ORDERS, **options)
    assert (third.stopped, third.steps) == ("max_seconds", second.steps)


@pytest.mark.usefixtures("clock")
def test_max_seconds_stops_with_a_checkpoint(tmp_path):
    result = train(make(), ORDERS, out=tmp_path, **QUICK | {"steps": 10**9}, max_seconds=0.2, warmup=1)
    assert result.stopped == "max_seconds"
    assert result.steps > 0
    assert (tmp_path / "checkpoints" / str(result.steps)).is_dir()
    assert "goes on" in str(result)


@pytest.mark.usefixtures("clock")
def test_seconds_are_those_of_all_calls(tmp_path):
    options = {"batch_size": 20, "schedule": "constant", "warmup": 1, "device": "cpu", "out": tmp_path}
    first = train(make(), ORDERS, steps=2, **options)
    assert 0 < first.seconds < 0.5
    second = train(make(), ORDERS, steps=4, **options)
    assert first.seconds < second.seconds < 1
    told = [line["seconds"] for line in lines(second)]
    assert told == sorted(told)
    assert 0 < told[0] < first.seconds < told[-1] < second.seconds


def test_patience_keeps_the_best_weights(tmp_path):
    """Two random halves share nothing: learning one by heart makes the other less likely."""
    options = {"held_out": ORDERS[30:], "held_out_every": 5, "patience": 3, "steps": 3000, "lr": 1e-2}
    options |= {"schedule": "constant", "batch_size": 30, "device": "cpu", "ema": 0.9, "out": tmp_path}
    model, again = make(dropout=0.0, width=24), make(1, dropout=0.0, width=24)
    result = train(model, ORDERS[:30], **options)
    assert result.stopped == "patience"
    scores = {line["step"]: line["held_out"] for line in lines(result) if "held_out" in line}
    assert result.held_out == min(scores.values())
    assert scores[result.held_out_step] == result.held_out
    assert result.steps == result.held_out_step + 15
    repeated = train(again, ORDERS[:30], **options)  # the run is over: its result comes back
    assert (repeated.steps, repeated.stopped, repeated.held_out) == (
        result.steps,
        "patience",
        result.held_out,
    )
    assert same_weights(model, again)


def test_the_model_ends_with_the_weights_of_the_reported_score():
    model = make(masked=False)
    result = train(model, ORDERS[:40], held_out=ORDERS[40:], held_out_every=5, lr=0.1, **QUICK)
    assert result.held_out_step in (5, 10, 12)
    assert model.loss(ORDERS[40:]).mean().item() == pytest.approx(result.held_out, rel=1e-6)


def test_a_watcher_sees_the_averaged_weights_and_changes_nothing(tmp_path):
    seen = []

    def watch(model):
        assert not model.training
        seen.append([weight.detach().clone() for weight in model.parameters()])
        return {"norm": float(sum(weight.abs().sum() for weight in seen[-1]))}

    watched, alone = make(), make()
    result = train(watched, ORDERS, watch=watch, held_out_every=5, out=tmp_path / "run", lr=1e-2, **QUICK)
    train(alone, ORDERS, lr=1e-2, **QUICK)
    assert same_weights(watched, alone)
    lines = [json.loads(line) for line in result.history.read_text().splitlines()]
    assert [line["step"] for line in lines if "norm" in line] == [5, 10, 12]
    assert result.held_out is None
    last = [weight.detach() for weight in watched.parameters()]
    assert all(torch.equal(a, b) for a, b in zip(seen[-1], last, strict=True))
    assert not all(torch.equal(a, b) for a, b in zip(seen[0], last, strict=True))


def test_a_loss_that_is_not_finite_stops_the_run(tmp_path):
    model = make()
    loss = model.loss
    calls = []

    def breaking(order, context=None, *, generator=None):
        calls.append(1)
        return loss(order, generator=generator) * (math.nan if len(calls) > 6 else 1.0)

    model.loss = breaking
    with pytest.raises(TrainingError, match="the loss became nan before step 6; lower lr"):
        train(model, ORDERS, out=tmp_path, log_every=3, checkpoint_every=3, **QUICK)
    assert sorted(path.name for path in (tmp_path / "checkpoints").iterdir()) == ["0", "3"]
    assert not model.training


def test_silent_unless_on_a_terminal_or_asked(capfd):
    train(make(), ORDERS, **QUICK)
    assert capfd.readouterr() == ("", "")
    train(make(), ORDERS, progress=True, log_every=2, held_out=0.2, **QUICK)
    out, err = capfd.readouterr()
    assert out == ""
    assert "step 12/12" in err
    assert "bits, held-out" in err
    assert "0:00 left" in err


def test_seeds_of_streams_have_63_bits():
    seeds = [stream_seed(0, "masks", rank) for rank in range(64)]
    assert 2**62 <= max(seeds) < 2**63


@pytest.mark.parametrize("whole_step", [True, False])
def test_processes_share_the_masks_of_a_whole_step_and_nothing_else(whole_step):
    with torch.random.fork_rng():
        one, other = (
            random_streams(5, SimpleNamespace(rank=rank, device=torch.device("cpu")), whole_step=whole_step)
            for rank in (0, 1)
        )
    assert (one["masks"].initial_seed() == other["masks"].initial_seed()) == whole_step
    assert one["draws"].initial_seed() != other["draws"].initial_seed()
    assert one["masks"].initial_seed() == stream_seed(5, "masks", 0)  # those of a process alone
    assert one["masks"].initial_seed() != one["draws"].initial_seed()
