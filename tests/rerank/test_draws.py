"""The orders that place probabilities are shares of: each follows the law, and together they are spread."""

import pytest
import torch

from factorank.models import chunks
from factorank.rerank.lists import Lists
from factorank.rerank.place_probabilities import law_places, list_law
from factorank.rerank.reference import list_reference
from tests.models.naive import (
    all_orders,
    assert_drawn_from,
    autoregressive_log_prob,
    confident_log_prob,
    partition_log_prob,
    random_probs,
    small_model,
)
from tests.rerank.small import ranker

LAWS = ["autoregressive", "random", "left-to-right", "confident"]


def a_law(kind, n=4, code="insertion", **options):
    """The law of a random model with n items, and its probabilities of all orders, from the definition."""
    model, orders = (
        small_model(n, code, "autoregressive" if kind == "autoregressive" else "masked"),
        all_orders(n),
    )
    if kind == "autoregressive":
        return model.distribution(**options), autoregressive_log_prob(model, orders).exp()
    law = model.distribution(nfe=2, unmask=kind, **options)
    if kind == "random":
        return law, random_probs(model, orders, 2)
    if kind == "confident":
        return law, confident_log_prob(model, orders, 2).exp()
    return law, partition_log_prob(model, orders, [(0, 1), (2, 3)]).exp()


@pytest.mark.parametrize("code", ["insertion", "lehmer"])
@pytest.mark.parametrize("kind", LAWS)
def test_each_draw_follows_the_law(kind, code, generator):
    """One draw of each of many stratified batches of 5: all orders are as frequent as they are likely."""
    law, probs = a_law(kind, code=code)
    drawn = law.expand((4000,)).stratified(5, generator=generator)
    for sample in (0, 3):
        assert_drawn_from(drawn[sample], all_orders(4), probs.detach())


@pytest.mark.parametrize("kind", LAWS)
def test_places_are_right_on_average_and_vary_less(kind, generator):
    law, probs = a_law(kind)
    orders, rows, samples = all_orders(4), 1500, 16
    places = law_places(law.expand((rows,)), samples=samples, generator=generator)
    ranks = torch.nn.functional.one_hot(orders.argsort(-1), 4).double()
    exact = (probs.double()[:, None, None] * ranks).sum(0)
    spread = places.double().std(0)
    assert ((places.double().mean(0) - exact).abs() <= 4.5 * spread / rows**0.5 + 1e-6).all()
    plain = (exact * (1 - exact) / samples).sqrt()
    assert (spread < 1.1 * plain + 1e-6).all()
    assert spread.square().sum() < 0.6 * plain.square().sum()


@pytest.mark.parametrize("fixed_count", [1, 2, 3])
@pytest.mark.parametrize("chunk", [None, 1, 3])
def test_counts_at_the_first_free_position(fixed_count, chunk, monkeypatch, generator):
    """All samples share its predictions; the chunks they are drawn in do not matter."""
    n, samples = 5, 17
    model, orders = small_model(n, "insertion", "autoregressive"), all_orders(n)
    if chunk is not None:
        widest = n * max(4 * model.width, 2 * n)
        monkeypatch.setitem(chunks.CHUNK, "cpu", chunk * widest)
    fixed = torch.tensor([[0, 1, 1], [0, 0, 2], [0, 1, 0], [0, 0, 0]])[:, :fixed_count]
    law = model.distribution(fixed=torch.nn.functional.pad(fixed, (0, n - fixed_count), value=-1))
    code = model.code.encode(law.stratified(samples, generator=generator))
    assert torch.equal(code[..., :fixed_count], fixed.expand(samples, -1, -1))
    probs = law.log_prob(orders[:, None]).detach().double().exp()
    values = model.code.encode(orders)[:, fixed_count]
    for row in range(4):
        for value in range(fixed_count + 1):
            expected = samples * float(probs[values <= value, row].sum())
            assert abs(int((code[:, row, fixed_count] <= value).sum()) - expected) < 1 + 1e-4


@pytest.mark.parametrize("kind", ["autoregressive", "left-to-right", "confident"])
def test_chunks_of_samples_do_not_change_the_draws(kind, monkeypatch):
    law, _ = a_law(kind)
    law = law.expand((1,))
    drawn = []
    for chunk in (100, 3):
        monkeypatch.setitem(chunks.CHUNK, "cpu", chunk * 4 * 4 * law.model.width)
        drawn.append(law.stratified(20, generator=torch.Generator().manual_seed(0)))
    assert torch.equal(*drawn)


def test_draws_in_bfloat16_are_orders(causal, generator):
    items = torch.stack([torch.randperm(12, generator=generator)[:8] for _ in range(50)])
    lists = Lists(items, torch.tensor([3, 0, 5]).expand(50, -1))
    with torch.autocast("cpu", torch.bfloat16):
        reference = list_reference(lists, torch.rand(8, generator=generator), kind="sorted")
        drawn = list_law(causal.model, lists, reference, None).stratified(21, generator=generator)
    assert torch.equal(drawn.sort(-1).values, torch.arange(8).expand(21, 50, 8))
    place = reference.expand_as(drawn).gather(-1, drawn).argsort(-1)
    assert (place[..., 3] < place[..., 0]).all()
    assert (place[..., 0] < place[..., 5]).all()


@pytest.fixture(scope="module")
def causal():
    return ranker("autoregressive")


@pytest.mark.parametrize("observed", [[], [2, 0]])
@pytest.mark.parametrize("n", [4, 5])
def test_draws_of_short_lists_are_those_of_the_law(causal, n, observed, monkeypatch, generator):
    """Every other list has n items, the others 3: no position past the end of the longest is evaluated."""
    items = torch.tensor([7, 2, 11, 5, 0])[:n].repeat(6000, 1)
    items[1::2, 3:] = -1
    lists = Lists(
        torch.nn.functional.pad(items, (0, 8 - n), value=-1),
        torch.tensor(observed, dtype=torch.int64).expand(6000, -1),
    )
    keys = torch.rand(8, generator=generator)

    def law_of(some):
        return list_law(causal.model, some, list_reference(some, keys, kind="sorted"), None)

    steps = []
    step = causal.model.network.step
    monkeypatch.setattr(
        causal.model.network, "step", lambda *arguments: steps.append(arguments[1]) or step(*arguments)
    )
    drawn = law_of(lists).stratified(3, generator=generator)
    assert set(steps) == set(range(n))
    for first, size in ((0, n), (1, 3)):
        orders = torch.nn.functional.pad(all_orders(size), (0, 8 - size), value=-1)
        probs = law_of(lists.part(slice(first, first + 1))).log_prob(orders[:, None])[:, 0].exp()
        assert_drawn_from(drawn[1, first::2], orders, probs.detach())
