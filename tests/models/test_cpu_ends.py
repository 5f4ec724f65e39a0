"""On CPUs embedding and log-probabilities are steps of their own: the same numbers as the plain ones."""

import random

import pytest
import torch

import factorank as fr
from factorank.models import PermutationModel, attention, cpu_blocks, cpu_ends


def results(model, orders, monkeypatch, fast):
    monkeypatch.setattr(attention, "FAST", fast)
    torch.manual_seed(3)
    model.zero_grad()
    loss = model.loss(orders, generator=torch.Generator().manual_seed(1))
    loss.mean().backward()
    return [loss.detach(), *(weight.grad.clone() for weight in model.parameters())]


@pytest.mark.parametrize("code", ["inline", "lehmer", "left-lehmer", "fisher-yates", "insertion"])
@pytest.mark.parametrize("objective", ["masked", "autoregressive"])
@pytest.mark.parametrize(("n", "threads"), [(1, 1), (2, 2), (7, 1), (20, 2)])
def test_losses_and_gradients_equal_the_plain_ones(code, objective, n, threads, monkeypatch):
    torch.manual_seed(n)
    monkeypatch.setattr(cpu_blocks, "GRAIN", 1)
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads)
    model = PermutationModel(n, code, objective, width=12, depth=1, heads=2, dropout=0.1).train()
    torch.nn.init.normal_(model.network.head.bias)
    orders = fr.random_permutations(n, (3, 11), generator=torch.Generator().manual_seed(0))
    got = results(model, orders, monkeypatch, True)
    assert all(map(torch.equal, got, results(model, orders, monkeypatch, True)))
    for one, other in zip(got, results(model, orders, monkeypatch, False), strict=True):
        torch.testing.assert_close(one, other, rtol=2e-5, atol=2e-6 * float(other.abs().max()) + 1e-7)


def test_gradients_are_those_of_the_functions():
    torch.manual_seed(0)
    code = torch.tensor([[0, 2, 1], [3, 3, 0]])
    values, places = (torch.randn(rows, 4, dtype=torch.float64, requires_grad=True) for rows in (4, 3))
    assert torch.autograd.gradcheck(lambda *weights: cpu_ends.embed(code, *weights), (values, places))
    code, allowed = torch.tensor([[0, 1, 0], [2, 0, 0]]), torch.ones(3, 3, dtype=torch.bool).triu().flip(-1)
    shapes = ((2, 3, 4), (4,), (4,), (3, 4), (3, 3))
    inputs = [torch.randn(shape, dtype=torch.float64, requires_grad=True) for shape in shapes]

    def chosen(hidden, gain, shift, *maps):
        return cpu_ends.log_probs(hidden, code, allowed, gain, shift, 1e-5, *maps)

    assert torch.autograd.gradcheck(chosen, inputs)


def test_losses_and_gradients_do_not_depend_on_addresses():
    torch.manual_seed(0)
    model = PermutationModel(5, "lehmer", "autoregressive", width=16, depth=1, heads=2)
    for weight in model.parameters():
        torch.nn.init.normal_(weight, std=0.3)
    orders = fr.random_permutations(5, (10,), generator=torch.Generator().manual_seed(0))
    sizes, held, seen = random.Random(0), [], set()
    for _ in range(200):
        held += [torch.empty(sizes.randrange(1, 60_000)) for _ in range(sizes.randrange(50))]
        sizes.shuffle(held)
        del held[len(held) // 2 :]
        model.zero_grad()
        loss = model.loss(orders)
        loss.sum().backward()
        made = [loss.detach(), *(weight.grad for weight in model.parameters())]
        seen.add(b"".join(one.numpy().tobytes() for one in made))
    assert len(seen) == 1


def test_no_lists_and_long_lists():
    network = PermutationModel(3, "lehmer", width=8, depth=1, heads=2).network
    none = network.head.log_probs(
        torch.zeros(0, 3, 8, requires_grad=True), torch.zeros(0, 3, dtype=torch.int64)
    )
    assert none.shape == (0, 3)
    none.sum().backward()
    assert network.head.weight.grad.abs().sum() == 0
    assert not cpu_ends.fits(torch.zeros(1, 65, dtype=torch.int64), network.places)  # left to the library


def test_values_outside_the_tables_do_not_reach_outside_of_memory():
    network = PermutationModel(3, "lehmer", width=8, depth=1, heads=2).network
    with pytest.raises(IndexError, match=r"0\.\.3 here"):
        network.hidden(torch.tensor([[0, 4, 0]]), None, None)
    with torch.no_grad():
        chosen = network.head.log_probs(torch.zeros(1, 3, 8), torch.tensor([[-1, 0, 3]]))
    assert chosen.isnan().tolist() == [[True, False, True]]
    value = network.head.log_probs(torch.zeros(1, 3, 8), torch.tensor([[0, 2, 0]]))  # not allowed there
    assert value[0, 1] == -torch.inf
