"""What ``train`` does in one process: learning, data, schedules, early stopping, what it refuses."""

import inspect
import json
import math
from dataclasses import fields
from typing import get_type_hints

import pytest
import torch
from stand_in import make, same_weights
from torch.utils.data import Dataset, IterableDataset, TensorDataset

from factorank.errors import FactorankError, TrainingError
from factorank.permutations import random_permutations
from factorank.training import TrainOptions, TrainSettings, train
from factorank.training.batches import Deal, Shape
from factorank.training.processes import World, world_of
from factorank.training.progress import cut_back

ORDERS = random_permutations(5, (60,), generator=torch.Generator().manual_seed(1))
QUICK = {"steps": 12, "batch_size": 20, "device": "cpu"}


def lines(result):
    return [json.loads(line) for line in result.history.read_text().splitlines()]


def test_learns_and_leaves_the_model_ready(tmp_path):
    model = make(dropout=0.0)
    order = torch.tensor([[3, 1, 4, 0, 2]]).expand(40, 5)
    first = model.loss(order).mean().item()
    result = train(model, order, steps=150, batch_size=20, lr=1e-2, device="cpu", out=tmp_path / "run")
    assert not model.training
    assert result.steps == 150
    assert result.stopped == "steps"
    assert model.loss(order).mean().item() < 0.2 < 1.0 < first
    names = {path.name for path in (tmp_path / "run").iterdir()}
    assert names == {"checkpoints", "config.json", "metrics.jsonl", "model.safetensors", "training.json"}
    assert [line["step"] for line in lines(result)] == [50, 100, 150]
    for line in lines(result):
        assert set(line) == {"step", "seconds", "loss", "bits", "lr", "grad_norm", "rate"}
        assert line["bits"] == pytest.approx(line["loss"] / math.log(2))
    assert lines(result)[-1]["loss"] == result.loss
    assert sorted(path.name for path in (tmp_path / "run" / "checkpoints").iterdir()) == ["0", "150"]


def test_same_seed_same_weights_and_global_generator_untouched():
    before = torch.get_rng_state()
    runs = [make(), make(), make()]
    for model, seed in zip(runs, (3, 3, 4), strict=True):
        train(model, ORDERS, seed=seed, **QUICK)
    assert same_weights(runs[0], runs[1])
    assert not same_weights(runs[0], runs[2])
    assert torch.equal(before, torch.get_rng_state())


def test_an_epoch_reads_each_row_once():
    deal = Deal(23, Shape(5), seed=0, device=torch.device("cpu"))
    epochs = []
    for epoch in range(3):
        rows = []
        for index in range(4):
            deal.prepare(4 * epoch + index)
            rows += deal.indices(0).tolist()
        assert len(set(rows)) == 20
        epochs.append(rows)
    assert epochs[0] != epochs[1] != epochs[2]
    deal.prepare(5)  # stepping back, as a resumed run may, gives the same rows
    assert deal.indices(0).tolist() == epochs[1][5:10]


def test_ranks_and_passes_share_out_one_batch():
    whole = Deal(40, Shape(12), seed=7, device=torch.device("cpu"))
    whole.prepare(4)
    shared = []
    for part in range(2):
        for rank in range(3):
            deal = Deal(40, Shape(2, 2, rank, 3), seed=7, device=torch.device("cpu"))
            deal.prepare(4)
            shared += deal.indices(part).tolist()
    assert shared == whole.indices(0).tolist()


class Items(Dataset):
    def __len__(self):
        return len(ORDERS)

    def __getitem__(self, index):
        return ORDERS[index]


def test_tensor_dataset_and_items_train_alike():
    models = [make(), make(), make()]
    for model, data in zip(models, (ORDERS, TensorDataset(ORDERS), Items()), strict=True):
        train(model, data, **QUICK)
    assert same_weights(models[0], models[1])
    assert same_weights(models[0], models[2])


def test_context_travels_with_its_rows():
    context = ORDERS[:, 0].float()
    seen = []
    model = make()
    loss = model.loss
    model.loss = lambda order, context=None, *, generator=None: (
        seen.append(bool((order[:, 0] == context).all())) or loss(order, context, generator=generator)
    )
    train(model, (ORDERS, context), held_out=(ORDERS[:7], context[:7]), **QUICK)
    assert len(seen) > 12
    assert all(seen)


def test_a_function_makes_batches():
    asked = []

    def data(batch_size, generator):
        asked.append(batch_size)
        return random_permutations(5, (batch_size,), generator=generator)

    models = [make(), make()]
    for model in models:
        train(model, data, **QUICK)
    assert same_weights(*models)
    assert asked[1:13] == [20] * 12


def test_accumulation_is_the_larger_batch():
    models = [make(masked=False, dropout=0.0), make(masked=False, dropout=0.0)]
    train(models[0], ORDERS, **QUICK)
    train(models[1], ORDERS, **QUICK | {"batch_size": 5, "accumulate": 4})
    for one, other in zip(models[0].parameters(), models[1].parameters(), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-6)


def test_ema_is_what_the_model_ends_with():
    """The average lags behind: it lies between the first weights and the last."""
    plain, averaged = make(), make()
    train(plain, ORDERS, ema=None, **QUICK)
    train(averaged, ORDERS, ema=0.9, **QUICK)
    start = make()
    towards, whole = 0.0, 0.0
    for a, b, c in zip(start.parameters(), averaged.parameters(), plain.parameters(), strict=True):
        towards += ((b - a) * (c - a)).sum().item()
        whole += ((c - a) ** 2).sum().item()
    assert 0.3 < towards / whole < 0.99


def test_weight_decay_is_on_matrices_only():
    model = make()
    before = {name: weight.detach().clone() for name, weight in model.named_parameters()}
    model.loss = lambda order, context=None, *, generator=None: (
        0.0 * sum(w.sum() for w in model.parameters()) + (torch.zeros(len(order)))
    )
    train(model, ORDERS, weight_decay=0.5, lr=0.1, schedule="constant", warmup=0, ema=None, **QUICK)
    for name, weight in model.named_parameters():
        expected = before[name] * (1 - 0.1 * 0.5) ** 12 if weight.ndim >= 2 else before[name]
        torch.testing.assert_close(weight.detach(), expected)


def test_clipping_bounds_the_step(tmp_path):
    big = train(make(), ORDERS, out=tmp_path / "a", log_every=1, clip=None, **QUICK)
    small = train(make(), ORDERS, out=tmp_path / "b", log_every=1, clip=1e-3, **QUICK)
    assert (
        lines(big)[0]["grad_norm"] == lines(small)[0]["grad_norm"] > 0.1
    )  # reported as it was, not as clipped
    assert lines(big)[-1]["loss"] != lines(small)[-1]["loss"]


def test_bf16_runs_and_stays_close():
    one, other = make(dropout=0.0), make(dropout=0.0)
    train(one, ORDERS, **QUICK)
    train(other, ORDERS, precision="bf16", **QUICK)
    assert not same_weights(one, other)
    for a, b in zip(one.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=0.01)


@pytest.mark.parametrize("schedule", ["cosine", "constant", "time"])
def test_schedules(tmp_path, schedule):
    result = train(
        make(),
        ORDERS,
        out=tmp_path,
        schedule=schedule,
        warmup=4,
        lr=0.01,
        log_every=1,
        max_seconds=1e6,
        **QUICK,
    )
    rates = [line["lr"] for line in lines(result)]
    assert rates[:4] == pytest.approx([0.0025, 0.005, 0.0075, 0.01])
    if schedule == "constant":
        assert rates[4:] == [0.01] * 8
    else:
        assert rates[4:] == sorted(rates[4:], reverse=True)
        assert rates[-1] < 0.001


def test_annealing_on_time_goes_on_where_it_was(tmp_path):
    """Each call has max_seconds; a second call anneals what the first left."""
    options = {
        "steps": 10**9,
        "schedule": "time",
        "warmup": 0,
        "log_every": 1,
        "batch_size": 20,
        "device": "cpu",
    }
    first = train(make(), ORDERS, out=tmp_path, max_seconds=0.5, **options)
    assert first.stopped == "max_seconds"
    assert lines(first)[-1]["lr"] < 0.1 * lines(first)[0]["lr"]
    second = train(make(), ORDERS, out=tmp_path, max_seconds=0.5, **options)
    assert second.stopped == "max_seconds"
    assert second.steps >= first.steps


def test_max_seconds_stops_with_a_checkpoint(tmp_path):
    result = train(make(), ORDERS, out=tmp_path, **QUICK | {"steps": 10**9}, max_seconds=0.2, warmup=1)
    assert result.stopped == "max_seconds"
    assert result.steps > 0
    assert (tmp_path / "checkpoints" / str(result.steps)).is_dir()
    assert "goes on" in str(result)


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


def test_a_share_is_held_out(tmp_path):
    train(make(), ORDERS, held_out=0.25, out=tmp_path, **QUICK)
    record = json.loads((tmp_path / "training.json").read_text())
    assert record["data"]["rows"] == 45
    assert record["held_out"]["rows"] == 15


def test_padded_lists_are_accepted_where_the_model_accepts_them():
    padded = torch.tensor([[1, 0, 2, -1, -1], [4, 3, 2, 1, 0]]).repeat(10, 1)
    model = make()
    loss = model.loss
    model.loss = lambda order, context=None, *, generator=None: loss(order.clamp(min=0), generator=generator)
    train(model, padded, **QUICK)


BAD = {
    "no steps": ({"steps": 0}, "steps is a whole number of at least 1, not 0"),
    "fraction of a step": ({"steps": 1.5}, "steps is a whole number"),
    "lr nan": ({"lr": math.nan}, "lr is a finite number above 0, not nan"),
    "lr negative": ({"lr": -1.0}, "lr is a finite number above 0"),
    "schedule": ({"schedule": "linear"}, "schedule is one of 'cosine', 'constant', 'time', not 'linear'"),
    "precision": ({"precision": "fp8"}, "precision is one of"),
    "time without limit": ({"schedule": "time"}, "max_seconds"),
    "betas": ({"betas": (0.9, 1.0)}, "betas"),
    "ema": ({"ema": 1.0}, "ema is a finite number at least 0 and below 1"),
    "patience": ({"patience": 3}, "held_out"),
    "resume": ({"resume": "yes"}, "resume is one of True, False, 'must'"),
    "resume nothing": ({"resume": "must"}, "holds no run"),
    "batch": ({"batch_size": 61}, "a step takes 61 rows .* the data have 60"),
    "accumulated batch": ({"accumulate": 4}, "a step takes 80 rows"),
    "capture": ({"capture": True}, "needs one CUDA device"),
    "strategy": ({"strategy": "fsdp"}, "strategy is one of 'ddp', None, not 'fsdp'"),
    "device": ({"device": "gpu"}, "device is 'cpu', 'cuda' or .*, not 'gpu'"),
    "no device": ({"device": 1.5}, "device is 'cpu', 'cuda' or .*, not 1.5"),
    "absent device": ({"device": "cuda:99"}, "device='cuda:99', but torch sees [0-9]+ CUDA devices here"),
    "share": ({"held_out": 1.0}, "leaves none"),
    "held-out n": ({"held_out": torch.arange(4)[None]}, "the held-out data have 4"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_settings_are_refused_before_anything_is_touched(tmp_path, case):
    options, message = BAD[case]
    model = make()
    with pytest.raises(TrainingError if case != "held-out n" else FactorankError, match=message):
        train(model, ORDERS, **QUICK | {"out": tmp_path / "run"} | options)
    assert not (tmp_path / "run").exists()
    assert same_weights(model, make())


BAD_DATA = {
    "empty": (torch.empty(0, 5, dtype=torch.int64), "no rows"),
    "wrong n": (torch.arange(4)[None], "orders 5 items but the data have 4"),
    "not permutations": (torch.tensor([[0, 1, 2, 3, 4], [0, 1, 2, 3, 3]]), "row 1 holds 3 twice"),
    "floats": (torch.rand(3, 5), "float32"),
    "one order": (torch.arange(5), r"orders \(rows, n\)"),
    "hole": (torch.tensor([[0, -1, 1, 2, 3]]), "then -1 to the end"),
    "context": ((torch.arange(5)[None], torch.zeros(2)), "1 orders but a context tensor"),
    "list": ([[0, 1, 2, 3, 4]], "not a list"),
    "iterator": (iter([torch.arange(5)]), "cannot be wound back"),
    "function of another n": (lambda size, generator: torch.arange(4).expand(size, 4), "5 items and made"),
    "function of another size": (lambda size, generator: torch.arange(5).expand(3, 5), "asked for 2 orders"),
}


class Stream(IterableDataset):
    def __iter__(self):
        return iter(ORDERS)


@pytest.mark.parametrize("case", [*BAD_DATA, "stream"])
def test_bad_data_are_refused_before_anything_is_touched(tmp_path, case):
    data, message = (Stream(), "cannot be wound back") if case == "stream" else BAD_DATA[case]
    with pytest.raises(FactorankError, match=message):
        train(make(), data, steps=2, batch_size=1, device="cpu", out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


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


def test_what_has_no_loss_is_refused():
    with pytest.raises(TrainingError, match="a Linear cannot be trained"):
        train(torch.nn.Linear(2, 2), ORDERS, **QUICK)


def test_silent_unless_on_a_terminal_or_asked(capfd):
    train(make(), ORDERS, **QUICK)
    assert capfd.readouterr() == ("", "")
    train(make(), ORDERS, progress=True, log_every=2, held_out=0.2, **QUICK)
    out, err = capfd.readouterr()
    assert out == ""
    assert "step 12/12" in err
    assert "bits, held-out" in err
    assert "0:00 left" in err


def test_one_device_and_no_launcher_is_plain_torch(monkeypatch):
    for name in ("WORLD_SIZE", "RANK", "SLURM_NTASKS"):
        monkeypatch.delenv(name, raising=False)
    for devices in (None, 1):
        settings = TrainSettings(steps=1, devices=devices)
        assert type(world_of(torch.device("cpu"), settings)) is World


def test_history_is_cut_back_to_whole_lines_up_to_a_step(tmp_path):
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"step": 1}\n{"step": 2}\n{"step": 3}\n{"st')
    cut_back(path, 2)
    assert path.read_text() == '{"step": 1}\n{"step": 2}\n'
    path.write_text('{"step": 1}\n{"step": 2')
    cut_back(path, 9)
    assert path.read_text() == '{"step": 1}\n'


def test_options_are_the_settings():
    """The keyword options, those of the signature and the fields of the settings are one list."""
    names = {field.name: field.type for field in fields(TrainSettings)}
    assert get_type_hints(TrainOptions) == names
    parameters = inspect.signature(train).parameters
    assert list(parameters) == ["model", "data", "settings", "held_out", "watch", *names]
    for name in names:
        assert f"\n        {name}: " in train.__doc__
    assert parameters["lr"].default == TrainSettings(steps=1).lr


def test_settings_travel_as_one_object():
    models = [make(), make(), make()]
    settings = TrainSettings(**QUICK, lr=1e-2)
    train(models[0], ORDERS, settings)
    train(models[1], ORDERS, lr=1e-2, **QUICK)
    train(models[2], ORDERS, TrainSettings(**QUICK), lr=1e-2)
    assert same_weights(models[0], models[1])
    assert same_weights(models[0], models[2])
    with pytest.raises(TypeError, match="learning_rate"):
        train(make(), ORDERS, settings, learning_rate=1.0)


def test_errors_name_their_parameter():
    for options, parameter in (({"steps": 0}, "steps"), ({"held_out": 1.0}, "held_out"), ({"lr": -1}, "lr")):
        with pytest.raises(FactorankError) as refused:
            train(make(), ORDERS, **QUICK | options)
        assert refused.value.parameter == parameter
        assert str(refused.value).startswith(parameter)
