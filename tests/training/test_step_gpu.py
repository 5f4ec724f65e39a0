"""The captured step on a GPU: the same losses as the eager one, whatever the data come from."""

import json

import pytest
import torch

from factorank.models import PermutationModel
from factorank.permutations import random_cyclic
from factorank.training import train

pytestmark = pytest.mark.gpu


def make(objective="masked", **options):
    torch.manual_seed(0)
    shape = {"n": 7, "code": "fisher-yates", "width": 32, "depth": 2, "heads": 4, "dropout": 0.1}
    return PermutationModel(objective=objective, **shape | options)


def orders(rows=700):
    return random_cyclic(7, (rows,), generator=torch.Generator().manual_seed(1))


def capturable(size, generator):
    return random_cyclic(7, (size,), generator=generator)


capturable.capturable = True


class Items(torch.utils.data.Dataset):
    def __len__(self):
        return 700

    def __getitem__(self, index):
        return orders()[index]


DATA = {
    "tensor": orders,
    "function": lambda: lambda size, generator: random_cyclic(7, (size,), generator=generator),
    "captured function": lambda: capturable,
    "dataset": Items,
}


def losses(out):
    lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    return torch.tensor([[line["loss"], line["grad_norm"], line["lr"]] for line in lines if "loss" in line])


def run(out, data, capture, model=None, **options):
    model = make() if model is None else model
    settings = {"steps": 50, "batch_size": 64, "log_every": 1, "device": "cuda", "warmup": 5, "ema": 0.9}
    result = train(model, data, out=out, capture=capture, **settings | options)
    return model, result


@pytest.mark.parametrize("kind", DATA)
def test_captured_and_eager_steps_agree(tmp_path, kind):
    """700 rows in batches of 64 are ten steps an epoch: 50 steps see five of them."""
    models = []
    for capture in (True, False):
        model, result = run(tmp_path / str(capture), DATA[kind](), capture)
        assert result.steps == 50
        models.append(model)
    torch.testing.assert_close(losses(tmp_path / "True"), losses(tmp_path / "False"), rtol=2e-3, atol=2e-3)
    x = orders(32).cuda()
    scores = [m.loss(x, generator=torch.Generator("cuda").manual_seed(0)) for m in models]
    torch.testing.assert_close(*scores, rtol=1e-2, atol=1e-2)


@pytest.mark.parametrize("code", ["lehmer", "left-lehmer", "insertion", "inline"])
@pytest.mark.parametrize("objective", ["masked", "autoregressive"])
def test_every_law_can_be_captured(tmp_path, code, objective):
    for capture in (True, False):
        run(tmp_path / str(capture), orders(), capture, make(objective, code=code), steps=20)
    torch.testing.assert_close(losses(tmp_path / "True"), losses(tmp_path / "False"), rtol=2e-3, atol=2e-3)


@pytest.mark.parametrize("options", [{"precision": "bf16"}, {"accumulate": 2}, {"clip": None, "ema": None}])
def test_options_of_a_captured_step(tmp_path, options):
    for capture in (True, False):
        run(tmp_path / str(capture), orders(), capture, **options)
    torch.testing.assert_close(losses(tmp_path / "True"), losses(tmp_path / "False"), rtol=0.02, atol=0.02)


def test_a_captured_run_resumes(tmp_path):
    """Scores and checkpoints between replays change nothing, and a resumed run goes on as the whole one."""
    run(tmp_path / "whole", orders(), True)
    stops = {"checkpoint_every": 7, "held_out": orders(40), "held_out_every": 9}
    run(tmp_path / "scored", orders(), True, **stops)
    torch.testing.assert_close(losses(tmp_path / "whole"), losses(tmp_path / "scored"), rtol=1e-3, atol=1e-3)
    for path in sorted((tmp_path / "scored/checkpoints/50").iterdir()):
        path.unlink()
    (tmp_path / "scored/checkpoints/50").rmdir()
    _, result = run(tmp_path / "scored", orders(), True, make(dropout=0.1), **stops)
    assert result.steps == 50
    torch.testing.assert_close(losses(tmp_path / "whole"), losses(tmp_path / "scored"), rtol=2e-3, atol=2e-3)


def test_auto_falls_back_to_eager_steps_where_a_step_cannot_be_captured(tmp_path):
    model = make()
    loss = model.loss

    def waiting(order, context=None, **random):
        result = loss(order, context, **random)
        result.sum().item()
        return result

    model.loss = waiting
    with pytest.warns(UserWarning, match="the step runs eagerly because it cannot be captured"):
        _, result = run(tmp_path / "waiting", orders(), "auto", model)
    assert result.steps == 50
    run(tmp_path / "eager", orders(), False)
    torch.testing.assert_close(losses(tmp_path / "waiting"), losses(tmp_path / "eager"), rtol=2e-3, atol=2e-3)


def test_compiled_and_captured(tmp_path):
    run(tmp_path / "plain", orders(), True, make(dropout=0.0), steps=30)
    run(tmp_path / "compiled", orders(), True, make(dropout=0.0), steps=30, compile=True)
    torch.testing.assert_close(
        losses(tmp_path / "plain"), losses(tmp_path / "compiled"), rtol=5e-3, atol=5e-3
    )
