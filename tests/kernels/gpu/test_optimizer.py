"""On a GPU: two launches do what torch's clipping and AdamW and the moving average do."""

import pytest
import torch

from factorank.training import TrainSettings
from factorank.training.optimizers.adamw import TorchUpdate
from factorank.training.optimizers.average import Average

pytestmark = pytest.mark.gpu

SHAPES = [(5000,), (70, 33), (1,), (64, 128), (3, 1, 7)]


def make_update(kind, clip, ema):
    torch.manual_seed(0)
    named = [
        (f"w{i}", torch.nn.Parameter(torch.randn(shape, device="cuda"))) for i, shape in enumerate(SHAPES)
    ]
    average = None if ema is None else Average([weight for _, weight in named], ema)
    settings = TrainSettings(steps=1, lr=1e-2, betas=(0.9, 0.99), weight_decay=0.1, clip=clip)
    if kind == "torch":
        return TorchUpdate(named, torch.device("cuda"), settings, average, capturable=True)
    from factorank.training.optimizers.fused import FusedUpdate

    return FusedUpdate(named, torch.device("cuda"), settings, average)


def run(update, steps, first=0):
    norms = []
    for step in range(first, first + steps):
        generator = torch.Generator("cuda").manual_seed(step)
        for i, (_, weight) in enumerate(update.named):
            weight.grad = torch.randn(weight.shape, device="cuda", generator=generator) / (step + 1)
            if i == 2 and step == 0:
                weight.grad = None  # not reached by this step's loss
        if update.average is not None:
            update.average.prepare(step)
        update.set_lr(1e-2 / (step + 1))
        norm = torch.zeros((), device="cuda")
        update.apply(norm)
        norms.append(float(norm))
    return norms


@pytest.mark.parametrize("clip", [None, 1.0])
@pytest.mark.parametrize("ema", [None, 0.9])
def test_equals_torch(clip, ema):
    ours, theirs = make_update("fused", clip, ema), make_update("torch", clip, ema)
    assert run(ours, 20) == pytest.approx(run(theirs, 20), rel=1e-5)
    for i, ((_, a), (_, b)) in enumerate(zip(ours.named, theirs.named, strict=True)):
        if i != 2:  # torch counts the steps of each weight, we those of the run
            torch.testing.assert_close(a, b, atol=1e-5, rtol=1e-5)
    if ema is not None:
        for a, b in zip(ours.average.tensors[3:], theirs.average.tensors[3:], strict=True):
            torch.testing.assert_close(a, b, atol=1e-5, rtol=1e-5)


def test_state_goes_over_and_back():
    ours, theirs = make_update("fused", 1.0, None), make_update("torch", 1.0, None)
    run(ours, 5)
    run(theirs, 5)
    ours.load_state({name: value.clone() for name, value in theirs.state().items() if "w2" not in name})
    for (_, a), (_, b) in zip(ours.named, theirs.named, strict=True):
        a.data.copy_(b.data)
    run(ours, 5, first=5)
    run(theirs, 5, first=5)
    for i, ((_, a), (_, b)) in enumerate(zip(ours.named, theirs.named, strict=True)):
        if i != 2:
            torch.testing.assert_close(a, b, atol=1e-5, rtol=1e-5)
    assert ours.state().keys() == theirs.state().keys()
