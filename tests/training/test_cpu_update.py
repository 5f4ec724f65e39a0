"""On a CPU: one call does what torch's clipping and AdamW and the moving average do."""

import pytest
import torch

from factorank.training.cpu_update import CompiledUpdate
from factorank.training.ema import Average
from factorank.training.update import Rule, TorchUpdate

SHAPES = [(5000,), (70, 33), (1,), (64, 128), (3, 1, 7), (0, 4)]


def made(kind, clip, ema):
    torch.manual_seed(0)
    named = [(f"w{i}", torch.nn.Parameter(torch.randn(shape))) for i, shape in enumerate(SHAPES)]
    average = None if ema is None else Average([weight for _, weight in named], ema)
    rule = Rule(1e-2, (0.9, 0.99), 0.1, clip, average)
    if kind == "torch":
        return TorchUpdate(named, torch.device("cpu"), rule, capturable=False)
    return CompiledUpdate(named, rule)


def run(update, steps, first=0):
    norms = []
    for step in range(first, first + steps):
        generator = torch.Generator().manual_seed(step)
        for i, (_, weight) in enumerate(update.named):
            weight.grad = torch.randn(weight.shape, generator=generator) / (step + 1)
            if i == 1 and isinstance(update, CompiledUpdate):  # torch's fused AdamW takes it as if contiguous
                weight.grad = weight.grad.T.contiguous().T
            if i == 2 and step % 2 == 0:
                weight.grad = None  # not reached by this step's loss
        if update.average is not None:
            update.average.prepare(step)
        update.set_lr(1e-2 / (step + 1))
        norm = torch.zeros(())
        update.apply(norm)
        norms.append(float(norm))
    return norms


def alike(ours, theirs):
    for (_, a), (_, b) in zip(ours.named, theirs.named, strict=True):
        torch.testing.assert_close(a, b, atol=1e-6, rtol=1e-5)
    if ours.average is not None:
        for a, b in zip(ours.average.tensors, theirs.average.tensors, strict=True):
            torch.testing.assert_close(a, b, atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("clip", [None, 1.0, 1e4])
@pytest.mark.parametrize("ema", [None, 0.9])
def test_equals_torch(clip, ema):
    ours, theirs = made("ours", clip, ema), made("torch", clip, ema)
    assert run(ours, 20) == pytest.approx(run(theirs, 20), rel=1e-5)
    alike(ours, theirs)


def test_state_goes_over_and_back():
    ours, theirs = made("ours", 1.0, None), made("torch", 1.0, None)
    run(theirs, 5)
    ours.load_state({name: value.clone() for name, value in theirs.state().items()})
    with torch.no_grad():
        for (_, a), (_, b) in zip(ours.named, theirs.named, strict=True):
            a.copy_(b)
    run(ours, 5, first=5)
    run(theirs, 5, first=5)
    alike(ours, theirs)
    assert ours.state().keys() == theirs.state().keys()
    fresh = made("torch", 1.0, None)
    fresh.load_state(ours.state())
    for name, value in ours.state().items():
        torch.testing.assert_close(fresh.state()[name], value)


def test_autograd_notices_that_weights_have_changed():
    update = made("ours", None, None)
    weight = update.named[3][1]
    loss = weight.square().sum()
    run(update, 1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()
