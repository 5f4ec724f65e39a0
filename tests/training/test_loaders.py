"""What a user brings: loaders, iterables, optimizers with groups of weights, callbacks, and more steps."""

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from factorank.errors import TrainingError
from factorank.training import train
from tests.training.stand_in import ORDERS, make, same_weights

OPTIONS = {"device": "cpu", "progress": False}
CONTEXT = torch.linspace(-1, 1, len(ORDERS))


def loaders():
    pairs = TensorDataset(ORDERS, CONTEXT)
    return {
        "shuffled": DataLoader(pairs, batch_size=16, shuffle=True),
        "own generator": DataLoader(
            pairs, batch_size=16, shuffle=True, generator=torch.Generator().manual_seed(3)
        ),
        "orders alone": DataLoader(TensorDataset(ORDERS), batch_size=25),
        "list": [(ORDERS[:20], CONTEXT[:20]), (ORDERS[20:27], CONTEXT[20:27])],
        "iterator": iter([ORDERS[i : i + 5] for i in range(40)]),
    }


@pytest.mark.parametrize("name", loaders())
def test_resuming_goes_on_with_the_same_batches(tmp_path, name):
    """The batches differ in size, and the run is stopped inside of an epoch."""
    whole, parts = make(), make()
    before = torch.get_rng_state()
    expected = train(whole, loaders()[name], steps=13, schedule="constant", **OPTIONS)
    assert torch.equal(torch.get_rng_state(), before)
    for steps in (3, 9, 13):
        options = {"steps": steps, "schedule": "constant", "warmup": 1, "out": tmp_path, **OPTIONS}
        result = train(parts, loaders()[name], **options)
    assert result.steps == expected.steps == 13
    assert same_weights(whole, parts)


def test_every_epoch_has_every_row_once_and_another_order():
    rows = []

    class Watched(type(make())):
        def loss(self, order, context=None, *, generator=None):
            if self.training:
                rows.append(context.clone())
            return super().loss(order, context, generator=generator)

    train(Watched(), loaders()["shuffled"], steps=8, **OPTIONS)
    first, second = torch.cat(rows[:4]), torch.cat(rows[4:8])
    assert torch.equal(first.sort().values, CONTEXT)
    assert torch.equal(second.sort().values, CONTEXT)
    assert not torch.equal(first, second)


def test_an_iterator_that_ends():
    with pytest.raises(TrainingError, match="ended after 2 batches"):
        train(make(), iter([ORDERS[:5], ORDERS[5:9]]), steps=3, **OPTIONS)


def groups(model):
    return torch.optim.SGD(
        [{"params": [model.head.weight], "lr": 0.5}, {"params": [model.embed.weight]}], lr=0.1, momentum=0.9
    )


def test_groups_keep_their_rates_and_the_rest_stays():
    model, start = make(), make()
    rates = []
    train(
        model, ORDERS, steps=4, batch_size=20, optimizer=groups, schedule="constant", warmup=2, ema=None,
        callbacks=[lambda run: rates.append([g["lr"] for g in run.step.update.optimizer.param_groups])],
        **OPTIONS,
    )  # fmt: skip
    assert rates == [[0.25, 0.05], [0.5, 0.1], [0.5, 0.1], [0.5, 0.1]]
    assert torch.equal(model.mix[0].weight, start.mix[0].weight)
    assert not torch.equal(model.head.weight, start.head.weight)


def test_one_step_is_that_of_the_users_own_loop():
    model, own = make(dropout=0.0, masked=False), make(dropout=0.0, masked=False)
    options = {"schedule": "constant", "warmup": 0, "ema": None, "clip": None}
    train(model, [ORDERS], steps=2, optimizer=groups, **options, **OPTIONS)
    optimizer = groups(own)
    for _ in range(2):
        optimizer.zero_grad()
        own.loss(ORDERS).mean().backward()
        optimizer.step()
    assert same_weights(model, own)


@pytest.mark.parametrize("kind", ["sgd", "adagrad", "instance"])
def test_resuming_with_an_optimizer_of_ones_own(tmp_path, kind):
    def make_optimizer(model):
        if kind == "sgd":
            return groups(model)
        return torch.optim.Adagrad(model.parameters(), lr=0.05)

    def chosen(model):
        return make_optimizer(model) if kind == "instance" else make_optimizer

    options = {"schedule": "constant", "warmup": 2, "batch_size": 20, **OPTIONS}
    whole, parts = make(), make()
    train(whole, ORDERS, steps=10, optimizer=chosen(whole), **options)
    for steps in (4, 10):
        train(parts, ORDERS, steps=steps, optimizer=chosen(parts), out=tmp_path, **options)
    assert same_weights(whole, parts)


def test_what_is_no_optimizer_is_refused():
    for optimizer, match in (
        (lambda model: 3, "a int is none"),
        (lambda model: torch.optim.LBFGS(model.parameters()), "a LBFGS needs a closure"),
        (torch.optim.SGD([torch.zeros(2, requires_grad=True)], lr=1.0), "1 of the tensors.*not weights"),
        (3, "optimizer is one of 'adamw', 'muon', not 3"),
    ):
        with pytest.raises(TrainingError, match=match):
            train(make(), ORDERS, steps=1, optimizer=optimizer, **OPTIONS)


def test_a_class_is_no_optimizer_yet():
    with pytest.raises(TrainingError, match=r"not the class Adam, but lambda model: Adam\(model\.param"):
        train(make(), ORDERS, steps=1, optimizer=torch.optim.Adam, **OPTIONS)


def test_a_callback_that_says_something_else():
    with pytest.raises(TrainingError, match="returns 'stop' to end the run, or nothing, not 'halt'"):
        train(make(), ORDERS, steps=2, callbacks=[lambda run: "halt"], **OPTIONS)
    assert train(make(), ORDERS, steps=2, callbacks=[lambda run: run.done], **OPTIONS).steps == 2


def test_a_callback_sees_every_step_and_can_stop():
    losses = []

    def callback(run):
        losses.append(run.last_loss)
        return "stop" if run.done == 5 else None

    result = train(make(), ORDERS, steps=20, batch_size=20, log_every=3, callbacks=[callback], **OPTIONS)
    assert (result.steps, result.stopped, len(losses)) == (5, "callback", 5)
    assert result.unit == "nats per order"
    assert "bits per order" in str(result)
    assert result.loss == pytest.approx(losses[-1])


def test_more_steps_go_on_from_where_the_run_was(tmp_path):
    """With a schedule that depends on the plan as well; fewer steps than were planned are another run."""
    options = {"batch_size": 20, "out": tmp_path, **OPTIONS}
    train(make(), ORDERS, steps=10, **options)
    model, steps = make(), []
    result = train(model, ORDERS, steps=16, callbacks=[lambda run: steps.append(run.done)], **options)
    assert (result.steps, steps) == (16, list(range(11, 17)))
    with pytest.raises(TrainingError, match="steps is 16 there and 10 here"):
        train(make(), ORDERS, steps=10, **options)
    assert train(make(), ORDERS, steps=16, **options).steps == 16
