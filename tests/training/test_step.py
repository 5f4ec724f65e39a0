"""One step: accumulation, average, decay, clipping, precision."""

import torch

from factorank.training import train
from tests.training.stand_in import ORDERS, QUICK, lines, make, same_weights


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
