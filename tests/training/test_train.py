"""What ``train`` does in one process: it learns, and leaves the model ready."""

import math
from importlib import import_module

import pytest
import torch

from factorank.errors import TrainingError
from factorank.models import PermutationModel
from factorank.training import train
from tests.training.stand_in import ORDERS, QUICK, lines, make, same_weights


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


def test_what_has_no_loss_is_refused():
    with pytest.raises(TrainingError, match="a Linear cannot be trained"):
        train(torch.nn.Linear(2, 2), ORDERS, **QUICK)


def test_masks_are_of_the_whole_step_where_the_model_draws_them_and_batches_are_of_one_size(monkeypatch):
    """Batches of a loader differ in size, and a model without ``noise`` draws for its own rows."""
    training = import_module("factorank.training.train")
    asked, streams = [], training.random_streams

    def watched(*arguments, whole_step):
        asked.append(whole_step)
        return streams(*arguments, whole_step=whole_step)

    monkeypatch.setattr(training, "random_streams", watched)
    ours = PermutationModel(n=5, code="lehmer", objective="masked", width=8, depth=1, heads=1)
    for model, data, size in ((ours, ORDERS, 20), (ours, [ORDERS], None), (make(), ORDERS, 20)):
        train(model, data, steps=1, batch_size=size, device="cpu")
    train(make(), [ORDERS], steps=1, device="cpu")
    assert asked == [True, False, False, False]
