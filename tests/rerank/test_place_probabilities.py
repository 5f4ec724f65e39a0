"""The law of a list given the observed items: its places, exact and drawn."""

import itertools
import math

import pytest
import torch

from factorank.models import PermutationLaw
from factorank.rerank import Lists, Query
from factorank.rerank.lists import list_reference
from factorank.rerank.place_probabilities import AT_ONCE, list_law, place_probabilities
from factorank.rerank.reranking import mean_place
from tests.models.naive import all_orders, assert_drawn_from


def some_lists(n, model_n, observed, rows=3):
    items = torch.stack([torch.randperm(12)[:n] for _ in range(rows)])
    items = torch.nn.functional.pad(items, (0, model_n - n), value=-1)
    return Lists(items, torch.tensor(observed, dtype=torch.int64).expand(rows, -1))


@pytest.mark.parametrize("observed", [[], [2], [3, 0], [1, 3, 2], [2, 0, 1, 3]])
@pytest.mark.parametrize("n", [4, 5])
def test_places_are_those_of_all_orders_weighted_by_the_law(masked, n, observed):
    torch.manual_seed(0)
    lists = some_lists(n, 8, observed)
    reference = list_reference(lists, torch.rand(8))
    law = list_law(masked.model, lists, reference)
    orders = torch.tensor(list(itertools.permutations(range(n))))
    padded = torch.nn.functional.pad(orders, (0, 8 - n), value=-1)
    probability = law.log_prob(padded[:, None].expand(-1, 3, -1)).exp().T  # (rows, orders)
    torch.testing.assert_close(probability.sum(-1), torch.ones(3))
    places = law.marginals()
    for item, place in itertools.product(range(n), repeat=2):
        wanted = probability[:, orders[:, place] == item].sum(-1)
        torch.testing.assert_close(places[:, item, place], wanted)
    named = reference[:, :n].gather(-1, orders.expand(3, -1, -1).reshape(3, -1)).view(3, -1, n)
    for row in range(3):
        for order, weight in zip(named[row].tolist(), probability[row].tolist(), strict=True):
            if weight > 0:
                assert [item for item in order if item in observed] == observed


def test_samples_agree_with_exact_places(masked, causal):
    torch.manual_seed(0)
    lists = some_lists(6, 8, [4, 1, 0])
    law = list_law(masked.model, lists, list_reference(lists, torch.rand(8)))
    exact = law.marginals()
    drawn = law.sample((20_000,), generator=torch.Generator().manual_seed(1))
    share = (drawn[..., :6, None] == torch.arange(6)).float().mean(0).transpose(-1, -2)
    assert (share - exact[:, :6, :6]).abs().max() < 5 * 0.5 / math.sqrt(20_000)
    generator = torch.Generator().manual_seed(0)
    ((_, places),) = place_probabilities(causal.model, lists, Query(samples=50), generator=generator)
    torch.testing.assert_close(places[:, :6, :6].sum(-1), torch.ones(3, 6))
    torch.testing.assert_close(places[:, :6, :6].sum(-2), torch.ones(3, 6))


def test_parts_hold_as_many_lists_as_their_references_allow(masked, monkeypatch):
    monkeypatch.setitem(AT_ONCE, "cpu", 100)
    lists, generator = some_lists(6, 8, [4], rows=9), torch.Generator().manual_seed(0)
    parts = place_probabilities(masked.model, lists, Query(references=3), generator=generator)
    assert [rows for rows, _ in parts] == [slice(0, 4), slice(4, 8), slice(8, 9)]


def test_draws_are_shared_out_over_the_references(causal, monkeypatch):
    drawn, marginals = [], PermutationLaw.marginals

    def counting(law, samples, generator):
        drawn.append((law.batch_shape[0], samples))
        return marginals(law, samples=samples, generator=generator)

    monkeypatch.setattr(PermutationLaw, "marginals", counting)
    lists, generator = some_lists(6, 8, [4, 1]), torch.Generator().manual_seed(0)
    for references, samples in ((1, 5), (2, 3), (5, 1)):
        query = Query(samples=5, references=references)
        list(place_probabilities(causal.model, lists, query, generator=generator))
        assert drawn.pop() == (3 * references, samples)


def test_mean_places_are_exact_under_autocast(generator):
    places = torch.rand(4, 50, 50, generator=generator).softmax(-1)
    exact = places.double() @ torch.arange(50.0).double()
    with torch.autocast("cpu", torch.bfloat16):
        mean = mean_place(places)
    assert mean.dtype == torch.float32
    torch.testing.assert_close(mean, exact.float())


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
