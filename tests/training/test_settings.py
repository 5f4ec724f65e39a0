"""Settings: one object or options, schedules, and what is refused."""

import inspect
import math
from dataclasses import fields

import pytest
import torch

from factorank.errors import FactorankError, TrainingError
from factorank.training import TrainSettings, train
from tests.training.stand_in import ORDERS, QUICK, lines, make, same_weights


def test_options_are_the_settings():
    """The options of the signature and the fields of the settings are one list."""
    names = [field.name for field in fields(TrainSettings)]
    parameters = inspect.signature(train).parameters
    assert list(parameters) == ["model", "data", "settings", "held_out", "watch", "callbacks", *names]
    for name in names:
        assert f"\n    {name}: " in train.__doc__
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
    "no device": ({"device": 1.5}, "device is .*, not 1.5"),
    "absent device": ({"device": "cuda:99"}, "device='cuda:99', but torch sees [0-9]+ CUDA devices here"),
    "share": ({"held_out": 1.0}, "leaves none"),
    "held-out n": ({"held_out": torch.arange(4)[None]}, "the held-out data have 4"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_settings_are_refused_before_anything_is_touched(tmp_path, case):
    options, message = BAD[case]
    model = make()
    wide = case in ("held-out n", "no device")  # refused before training looks at them
    with pytest.raises(FactorankError if wide else TrainingError, match=message):
        train(model, ORDERS, **QUICK | {"out": tmp_path / "run"} | options)
    assert not (tmp_path / "run").exists()
    assert same_weights(model, make())
