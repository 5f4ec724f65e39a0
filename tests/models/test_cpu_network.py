"""On CPUs the loss without a context is one step of autograd: the same numbers as operator by operator."""

import pytest
import torch

import factorank as fr
from factorank.models import PermutationModel, attention, cpu_blocks, cpu_network


def made(n=6, code="insertion", objective="masked", dtype=torch.float32, **options):
    torch.manual_seed(n)
    model = PermutationModel(n, code, objective, width=8, depth=2, heads=2, **options).to(dtype)
    for weight in model.parameters():
        torch.nn.init.normal_(weight, std=0.4)
    return model


def lists(n, rows, shortest=None):
    orders = fr.random_permutations(n, (rows,), generator=torch.Generator().manual_seed(0))
    if shortest is None:
        return orders
    length = shortest + torch.arange(rows) % (n + 1 - shortest)
    short = torch.full_like(orders, -1)
    for row, one in enumerate(length.tolist()):
        short[row, :one] = orders[row][orders[row] < one]
    return short


def losses(model, orders, weights, fast, monkeypatch):
    monkeypatch.setattr(attention, "FAST", fast)
    model.zero_grad()
    torch.manual_seed(2)
    loss = model.loss(orders, generator=torch.Generator().manual_seed(1))
    (loss * weights).sum().backward()
    return [loss.detach(), *(weight.grad.clone() for weight in model.parameters())]


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize(("objective", "masks"), [
    ("masked", "any"), ("masked", "suffix"), ("masked", "all"), ("autoregressive", "any"),
])  # fmt: skip
@pytest.mark.parametrize("shortest", [None, 1])
@pytest.mark.parametrize("even", [True, False])
def test_short_lists_and_rows_that_count_differently(objective, masks, shortest, even, threads, monkeypatch):
    monkeypatch.setattr(cpu_blocks, "GRAIN", 1)
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads)
    model, orders = made(objective=objective, masks=masks, dropout=0.2).train(), lists(6, 40, shortest)
    weights = torch.full((40,), 0.3) if even else torch.linspace(-1, 2, 40)
    got = losses(model, orders, weights, True, monkeypatch)
    for one, other in zip(got, losses(model, orders, weights, False, monkeypatch), strict=True):
        torch.testing.assert_close(one, other, rtol=2e-5, atol=2e-6 * float(other.abs().max()) + 1e-7)


def test_a_list_without_items(monkeypatch):
    model, orders = made(), lists(6, 16, 0)
    assert (orders < 0).all(-1).any()
    got = losses(model, orders, torch.ones(16), True, monkeypatch)
    for one, other in zip(got, losses(model, orders, torch.ones(16), False, monkeypatch), strict=True):
        torch.testing.assert_close(one, other, rtol=2e-5, atol=2e-6 * float(other.abs().max()) + 1e-7)


@pytest.mark.parametrize("objective", ["masked", "autoregressive"])
def test_gradients_are_those_of_the_function(objective):
    model, orders = made(3, "lehmer", objective, torch.float64), lists(3, 8)
    names = [name for name, _ in model.named_parameters()]

    def loss(*weights):
        return torch.func.functional_call(
            model,
            dict(zip(names, weights, strict=True)),
            (orders,),
            {"generator": torch.Generator().manual_seed(0)},
        )

    assert cpu_network.weights_for(model.network, orders, None) is not None
    assert torch.autograd.gradcheck(loss, tuple(model.parameters()))


def test_without_gradients_the_losses_are_the_same_and_a_graph_can_be_walked_twice():
    model, orders = made(), lists(6, 20)
    loss = model.loss(orders, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        assert torch.equal(model.loss(orders, generator=torch.Generator().manual_seed(1)), loss)
    weights = list(model.parameters())
    first = torch.autograd.grad(loss.mean(), weights, retain_graph=True)
    assert all(map(torch.equal, first, torch.autograd.grad(loss.mean(), weights, retain_graph=True)))
    with torch.no_grad():  # the gradients stay those of the weights that gave the losses
        weights[0].mul_(2)
    assert all(map(torch.equal, first, torch.autograd.grad(loss.mean(), weights, retain_graph=True)))
    uneven = torch.full((20,), 0.05)
    uneven[0] *= 1 + 1e-6  # a pass of its own
    for one, other in zip(first, torch.autograd.grad(loss, weights, uneven), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


def test_weights_that_do_not_learn_get_no_gradient():
    model, orders = made(), lists(6, 20)
    model.network.values.requires_grad_(False)
    model.loss(orders).mean().backward()
    assert model.network.values.weight.grad is None
    assert model.network.places.grad is not None
    model.requires_grad_(False)
    assert not model.loss(orders).requires_grad


def test_values_outside_the_tables_do_not_reach_outside_of_memory():
    network = made(3, "lehmer").network
    code = torch.zeros(8, 3, dtype=torch.int64)
    code[1, 0], code[2, 2] = 10**9, -1
    loss = cpu_network.causal_loss(network, network.weights(), code, None)
    assert loss.isnan().tolist() == [False, True, True, *[False] * 5]


def test_the_weights_are_the_parameters_in_their_order():
    network = made().network
    for one in (network, network.transformer):
        assert len(one.weights()) == len(list(one.parameters()))
        assert {id(weight) for weight in one.weights()} == {id(weight) for weight in one.parameters()}
    assert all(map(torch.equal, network.transformer.weights(), network.transformer.parameters()))
