"""One contract over every code, objective, way of unmasking and NFE: the law is what the definition says."""

import numpy as np
import pytest
import torch

import factorank as fr
from factorank.errors import ModelError
from factorank.models.unmasking import UNMASK
from tests.models.naive import (
    all_orders,
    all_sequences,
    assert_drawn_from,
    autoregressive_log_prob,
    confident_log_prob,
    cut,
    free_positions,
    partition_log_prob,
    random_probs,
    small_model,
)

CODES = ["inline", "lehmer", "left-lehmer", "fisher-yates", "insertion"]


def log_probs_by_definition(model, law, orders):
    if model.objective == "autoregressive":
        return autoregressive_log_prob(model, orders)
    if law.unmask == "random":
        return random_probs(model, orders, law.nfe).log()
    if law.unmask == "confident":
        return confident_log_prob(model, orders, law.nfe)
    places = free_positions(model)
    return partition_log_prob(
        model, orders, cut(places[::-1] if law.unmask == "right-to-left" else places, law.nfe)
    )


LAWS = [("masked", unmask, nfe) for unmask in UNMASK for nfe in (1, 2, 3, 4)]


CASES = [(code, *law, "before") for code in CODES for law in [*LAWS, ("autoregressive", None, None)]]
CASES += [("lehmer", "masked", "confident", 2, "after"), ("insertion", "autoregressive", None, None, "after")]


@pytest.mark.parametrize(("code", "objective", "unmask", "nfe", "norm"), CASES)
def test_law(code, objective, unmask, nfe, norm):
    n = 3 if code == "inline" else 4  # inline has n^n sequences
    model = small_model(n, code, objective, norm=norm)
    law = model.distribution(nfe=None if nfe is None else min(nfe, n), unmask=unmask)
    sequences = all_sequences(model)
    truth = log_probs_by_definition(model, law, sequences)
    assert truth.exp().sum().item() == pytest.approx(1, abs=1e-5)

    generator = torch.Generator().manual_seed(1)
    if unmask == "random" and law.nfe > 1:
        with pytest.raises(ModelError, match="mixture over all partitions"):
            law.log_prob(sequences)
        estimate = law.log_prob_estimate(sequences, samples=300, generator=generator)
        assert (estimate.exp() - truth.exp()).abs().max() < 0.02
        assert (law.log_prob_bound(sequences, samples=300, generator=generator) < truth + 0.05).all()
    else:
        torch.testing.assert_close(law.log_prob(sequences), truth, atol=1e-4, rtol=1e-4)
        torch.testing.assert_close(law.log_prob_bound(sequences), law.log_prob(sequences))

    samples = law.sample((4000,), generator=generator)
    assert samples.shape == (4000, n)
    assert samples.dtype == torch.int64
    assert_drawn_from(samples, sequences, truth.exp())
    assert law.support.check(samples).all()
    outside = ~fr.is_permutation(sequences)
    if model.code.factorized:
        assert fr.is_permutation(samples).all()
        assert law.leak() == 0
    else:
        exact = truth.exp()[outside].sum().item()
        assert exact > 0.1
        assert law.leak(samples=4000, generator=generator).item() == pytest.approx(exact, abs=0.05)
        if law.exact:
            assert law.leak().item() == pytest.approx(exact, abs=1e-5)


@pytest.mark.parametrize("objective", ["masked", "autoregressive"])
@pytest.mark.parametrize("code", CODES)
@pytest.mark.parametrize("n", [1, 2, 5])
def test_shapes_of_any_batch(code, objective, n):
    model = small_model(n, code, objective)
    law = model.distribution()
    for shape in [(), (3,), (2, 0), (2, 3)]:
        samples = law.sample(shape)
        assert samples.shape == (*shape, n)
        if objective == "autoregressive":
            assert law.log_prob(fr.random_permutations(n, shape)).shape == shape
        assert model.loss(fr.random_permutations(n, shape, dtype=torch.int32)).shape == shape
    assert law.mode.shape == (n,)


@pytest.mark.parametrize("code", CODES)
@pytest.mark.parametrize("objective", ["masked", "autoregressive"])
def test_gradients_reach_every_parameter(code, objective):
    for context in (None, fr.ItemContext(7, 16)):
        model = small_model(4, code, objective, context=context)
        items = None if context is None else torch.tensor([3, 0, 6, 2])
        model.loss(fr.random_permutations(4, (64,)), items).sum().backward()
        model.zero_grad()
        unmask = "left-to-right" if objective == "masked" else None
        model.distribution(items, unmask=unmask).log_prob(all_orders(4)).sum().backward()
        for name, parameter in model.named_parameters():
            assert parameter.grad is not None, name
            assert parameter.grad.abs().sum() > 0, name


@pytest.mark.parametrize("objective", ["masked", "autoregressive"])
def test_laws_are_without_dropout(objective):
    model = small_model(4, "lehmer", objective, dropout=0.5).train()
    unmask = "left-to-right" if objective == "masked" else None
    law = model.distribution(unmask=unmask)
    orders = all_orders(4)
    assert torch.equal(law.log_prob(orders), law.log_prob(orders))
    assert model.network.transformer.training
    one, other = (model.loss(orders, generator=torch.Generator().manual_seed(0)) for _ in range(2))
    assert not torch.equal(one, other)


@pytest.mark.parametrize("objective", ["masked", "autoregressive"])
def test_the_same_seed_draws_the_same(objective):
    law = small_model(6, "fisher-yates", objective).distribution()
    one, other = (law.sample((50,), generator=torch.Generator().manual_seed(3)) for _ in range(2))
    assert torch.equal(one, other)


@pytest.mark.parametrize("objective", ["masked", "autoregressive"])
def test_chunks_do_not_change_the_law(objective, monkeypatch):
    model = small_model(4, "insertion", objective, context=fr.ItemContext(9, 16))
    items = torch.stack([torch.randperm(9)[:4] for _ in range(5)])
    unmask = "left-to-right" if objective == "masked" else None
    law = model.distribution(items, unmask=unmask)
    orders = fr.random_permutations(4, (7, 5))
    whole, modes = law.log_prob(orders), law.mode
    monkeypatch.setattr("factorank.models.chunks.CHUNK", {"cpu": 33 * 4 * 64})  # 33 rows at a time
    torch.testing.assert_close(law.log_prob(orders), whole)
    assert torch.equal(law.mode, modes)
    samples = law.sample((1000,), generator=torch.Generator().manual_seed(0))
    sequences = all_orders(4)
    for row in range(5):
        assert_drawn_from(samples[:, row], sequences, law.log_prob(sequences[:, None])[:, row].detach().exp())


def test_counts_of_network_evaluations(monkeypatch):
    model = small_model(6, "lehmer")
    calls = []
    real = model.network.hidden
    monkeypatch.setattr(model.network, "hidden", lambda *a: calls.append(a[0].shape) or real(*a))
    for nfe in range(1, 7):
        for unmask in UNMASK:
            calls.clear()
            model.distribution(nfe=nfe, unmask=unmask).sample((10,))
            assert len(calls) == min(nfe, 5)  # the last value is certain
            assert calls[0] == (1, 6)  # the first evaluation is the same for every sample


def test_refusals():
    masked, causal = small_model(4, "lehmer"), small_model(4, "lehmer", "autoregressive")
    for bad in (0, 5, 2.0, True, "2", [], [1, 0, 2], [3.0], [True, 2]):
        with pytest.raises(ModelError, match=r"nfe is a whole number from 1 to 4, not .*; or a list"):
            masked.distribution(nfe=bad)
    with pytest.raises(ModelError, match="unmask is one of"):
        masked.distribution(unmask="best")
    for request in ({"nfe": 2}, {"unmask": "random"}, {"unmask": "confident"}, {"entropy_bound": 0.5}):
        with pytest.raises(ModelError, match="one at a time"):
            causal.distribution(**request)
    assert causal.distribution(nfe=4, unmask="left-to-right").nfe == 4
    law = masked.distribution(nfe=1)
    with pytest.raises(fr.PermutationError, match="holds 1 twice"):
        law.log_prob(torch.tensor([1, 1, 0, 2]))
    with pytest.raises(ModelError, match="orders 4 items"):
        law.log_prob(torch.arange(5))
    with pytest.raises(ModelError, match="takes no context"):
        masked.distribution(torch.arange(4))
    with pytest.raises(ModelError, match="holds a negative number"):
        masked.loss(torch.tensor([1, 0, 2, -1]))
    with pytest.raises(ModelError, match="values of a sequence are"):
        small_model(4, "inline").distribution(nfe=1).log_prob(torch.tensor([1, 1, 4, 0]))
    for shape in (3, (-1,), (2.0,), "3"):
        for draw in (law.sample, law.sample_with_nfe, lambda shape: next(law.path(shape))):
            with pytest.raises(ModelError, match="a shape is a tuple of whole numbers"):
                draw(shape)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"objective": "diffusion"}, "the objective is 'masked' or"),
        ({"heads": 3}, "width must be a multiple of the heads: width=16, heads=3"),
        *(
            ({name: value}, rf"{name} \(.*\) is a whole number of at least 1, not {value!r}")
            for name in ("n", "width", "depth", "heads")
            for value in (0, -2, 5.0, "4", True, None)
        ),
        *(
            ({"dropout": value}, f"dropout is a share, a number from 0 to below 1, not {value!r}")
            for value in (2, -0.1, 1.0, float("nan"), "a", True, None)
        ),
    ],
)
def test_constructor_refuses(arguments, message):
    with pytest.raises(ModelError, match=message):
        fr.PermutationModel(**{"n": 4, "code": "lehmer", "width": 16, "heads": 2, **arguments})


def test_constructor_takes_whole_numbers_of_numpy():
    model = fr.PermutationModel(np.int64(4), "lehmer", width=np.int32(16), depth=1, heads=2)
    assert [type(value) for value in (model.config()["n"], model.width)] == [int, int]
