"""Recommendations: candidates from the whole catalogue, histories of any length, places among candidates."""

import copy

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

import factorank as fr
from factorank.baselines.recommenders import ImplicitFactors, ItemWeights, MostRated
from factorank.data.ratings import Ratings
from factorank.errors import RankerWarning
from factorank.experiments import recommend
from factorank.rerank import first_stage, recommending
from factorank.rerank.first_stage import FirstStage
from factorank.rerank.lists import Lists, list_reference
from factorank.rerank.place_probabilities import list_law
from factorank.rerank.recommending import Histories, candidate_places, drawn_orders, held_back, hit_scores
from factorank.rerank.reranking import Query
from tests.rerank.small import SMALL, ranker, ratings


@pytest.fixture(scope="module")
def grouped():
    """Users of two kinds, who rate items of their kind; 40 items, of which they have seen most."""
    generator = torch.Generator().manual_seed(0)
    rows = []
    for user in range(120):
        own = torch.arange(20) * 2 + user % 2
        for time, item in enumerate(own[torch.randperm(20, generator=generator)[:14]].tolist()):
            rows.append((user, 1000 + item, 1.0 + 4 * (item / 40), 100 * time + user))
    return Ratings.from_rows(*map(list, zip(*rows, strict=True)))


@pytest.fixture(scope="module")
def chosen(grouped):
    return fr.Ranker.fit(grouped, 0.1, setting=fr.rerank.preset("small", **SMALL), device="cpu")


def test_what_is_recommended_is_new_to_the_user_and_suits(chosen):
    even = [1000, 1004, 1008, 1010]
    answer = chosen.recommend(even, k=4)
    assert len(answer.items) == 4
    assert not set(answer.items) & set(even)
    assert all(item % 2 == 0 for item in answer.items)
    assert [ranked.observed for ranked in answer] == [False] * 4
    rated = chosen.recommend({item: 3.0 + item % 3 for item in even}, k=3)
    assert not set(rated.items) & set(even)
    many = chosen.recommend([even, [1001, 1003], []], k=4)
    assert many[0].items == answer.items
    assert all(item % 2 for item in many[1].items)
    banned = answer.items[:2]
    assert not set(chosen.recommend(even, k=4, forbidden=banned).items) & set(banned)
    assert chosen.recommend(k=2).items == chosen.recommend([], k=2).items


def test_a_history_may_be_longer_than_the_lists_of_the_model(chosen):
    history = [1000 + 2 * i for i in range(19)]
    answer = chosen.recommend(history, k=4)
    assert answer.items[0] == 1038  # the one that is left of its kind
    everything = [1000 + i for i in range(40)]
    assert chosen.recommend(everything, k=4).items == []
    assert chosen.recommend(everything[:-2], k=4).items in ([1038, 1039], [1039, 1038])
    shuffled = dict.fromkeys(reversed(history), 4.0)
    assert chosen.recommend(shuffled, k=4).items == chosen.recommend(dict.fromkeys(history, 4.0), k=4).items


def test_a_recommendation_does_not_depend_on_the_histories_of_others(chosen):
    few, many = [1000, 1004], [1001 + 2 * i for i in range(18)]
    parity = {1000 + i: i % 2 for i in range(40)}
    for options in ({}, {"groups": parity, "most": 2}):
        alone = chosen.recommend(few, k=4, **options)
        together = chosen.recommend([few, many, []], k=4, **options)[0]
        assert together.items == alone.items
        torch.testing.assert_close(together.place, alone.place)
        torch.testing.assert_close(together.top, alone.top)


def test_a_list_is_filled_where_the_catalogue_has_too_few_groups(chosen):
    parity = {1000 + i: i % 2 for i in range(40)}
    with pytest.warns(RankerWarning, match="too few groups for 1 of each among the first 4"):
        answer = chosen.recommend([1000, 1004], k=4, groups=parity)
    assert len(set(answer.items)) == 4
    assert {parity[item] for item in answer.items[:2]} == {0, 1}
    assert not {1000, 1004} & set(answer.items)
    with pytest.warns(RankerWarning):
        least = chosen.recommend([1000 + i for i in range(37)], k=4, groups=parity)
    assert sorted(least.items) == [1037, 1038, 1039]


def test_saved_and_refused(chosen, tmp_path):
    chosen.save(tmp_path)
    again = fr.Ranker.load(tmp_path)
    wanted, got = (either.recommend([1002, 1006], k=3) for either in (chosen, again))
    assert wanted.items == got.items
    torch.testing.assert_close(wanted.top, got.top)
    assert again.blend == chosen.blend
    for observed, options, message in (
        ([5], {}, "the history holds 5, which the ranker has not been trained on"),
        ([1000, 1000], {}, "holds 1000 more than once"),
        ([1000], {"k": 5}, "k is 1 to 4, not 5"),
        ([1000], {"forbidden": ["x"]}, "'x'"),
    ):
        with pytest.raises(fr.FactorankError, match=message):
            chosen.recommend(observed, **{"k": 2} | options)
    without = copy.copy(chosen)
    without.first_stage = None
    without.save(tmp_path / "without")
    with pytest.raises(fr.FactorankError, match="no first stage"):
        fr.Ranker.load(tmp_path / "without").recommend([1000], k=2)
    (tmp_path / "first-stage.safetensors").write_bytes(b"nothing")
    with pytest.raises(fr.ModelError, match="7 bytes and should have"):
        fr.Ranker.load(tmp_path)


def test_places_among_candidates_are_those_of_the_law():
    """Of a list without a history the places among the candidates are those of the whole list."""
    masked = ranker(seed=3)
    items = torch.tensor([[3, 1, 7, 5, 9, 0]])
    none = Histories(torch.zeros((1, 0), dtype=torch.int64), torch.zeros((1, 0)))
    drawn = candidate_places(masked, none, items, Query(references=1), torch.Generator().manual_seed(0))
    torch.testing.assert_close(drawn.sum(-1), torch.ones(1, 6))
    torch.testing.assert_close(drawn.sum(-2), torch.ones(1, 6))
    observed = Histories(torch.tensor([[2, 4]]), torch.tensor([[4.0, 2.0]]))
    among = candidate_places(masked, observed, items, Query(references=8), torch.Generator().manual_seed(0))
    torch.testing.assert_close(among.sum(-1), torch.ones(1, 6))
    names = [masked.catalogue.ids[i] for i in (3, 1, 7, 5, 9, 0)]
    whole = masked.rerank(names, [102, 104], references=64)
    place = {ranked.item: ranked.place for ranked in whole}
    pairs = sorted(names, key=place.get)
    mean = dict(zip(names, (among[0] * torch.arange(6)).sum(-1).tolist(), strict=True))
    assert mean[pairs[0]] < mean[pairs[-1]]


def test_draws_by_shared_numbers_follow_the_law(masked, causal):
    lists = Lists(
        torch.tensor([[3, 1, 7, 5, -1, -1, -1, -1], [2, 4, 6, 8, 9, 11, 0, 10]]),
        torch.tensor([[1, 0], [2, 5]]),
    )
    for chosen in (masked, causal):
        reference = list_reference(lists, lists.keys(torch.tensor([5]))[:, 0], kind=chosen.reference)
        law = list_law(chosen.model, lists, reference, None if chosen is causal else 1)
        order = drawn_orders(law, 4000, torch.tensor(7))
        wanted = law.marginals(samples=4000 if chosen is causal else None)
        for row, length in enumerate((4, 8)):
            own = order[:, row, :length]
            assert (order[:, row, length:] == -1).all()
            places = torch.zeros(8, 8)
            for place in range(length):
                places[:, place] = torch.bincount(own[:, place], minlength=8) / 4000
            assert (places - wanted[row])[:length, :length].abs().max() < 0.05
        one, both = (chosen.recommend(asked, k=3) for asked in ([[103, 101]], [[107, 100], [103, 101]]))
        assert one[0].items == both[1].items
        torch.testing.assert_close(one[0].place, both[1].place)


def test_weights_of_the_first_stage_are_those_of_ease(grouped):
    whole = FirstStage.fit(grouped)
    ease = ItemWeights(first_stage.PENALTY).fit(grouped)
    history = torch.tensor([[0, 4, -1], [3, 5, 7]])
    popular = whole.counts
    torch.testing.assert_close(whole.scores(history) - popular, ease.scores(history), rtol=0, atol=2e-3)
    long = torch.arange(30).expand(2, 30)  # read by the product of matrices
    torch.testing.assert_close(whole.scores(long) - popular, ease.scores(long), rtol=0, atol=5e-3)


def test_the_rest_of_a_large_catalogue_is_predicted_from_the_most_rated(grouped, monkeypatch):
    monkeypatch.setattr(first_stage, "MOST_ITEMS", 30)
    monkeypatch.setattr(first_stage, "AT_ONCE", 7)
    some = FirstStage.fit(grouped)
    assert (len(some.head), len(some.tail)) == (30, 10)
    even = torch.tensor([[0, 4, 8, 12]])
    scores = some.scores(even)[0]
    kinds = scores[some.tail].view(-1)[(some.tail % 2 == 0)], scores[some.tail][(some.tail % 2 == 1)]
    assert kinds[0].min() > kinds[1].max()


class Largest(TorchDispatchMode):
    """The largest tensor that is made."""

    numbers = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        if isinstance(result, torch.Tensor):
            self.numbers = max(self.numbers, result.numel())
        return result


def test_many_users_of_a_large_catalogue_fit_into_memory(monkeypatch):
    heads, tails, m, users = 50, 40_000, 8, 30
    generator = torch.Generator().manual_seed(0)
    neighbours = torch.randint(0, heads, (tails, m), generator=generator, dtype=torch.int32)
    tail_weights = torch.rand((tails, m), generator=generator).half()
    stage = FirstStage(
        head=torch.arange(heads),
        weights=torch.zeros(heads, heads).half(),
        tail=torch.arange(heads, heads + tails),
        neighbours=neighbours,
        tail_weights=tail_weights,
        counts=torch.zeros(heads + tails),
    )
    history = torch.randint(0, heads + tails, (users, 5), generator=generator)
    history[:, 0] = torch.arange(users)
    with Largest() as largest:
        scores = stage.scores(history)
    assert largest.numbers <= users * (heads + tails)  # and not that times the neighbours
    for user in range(3):
        mine = torch.zeros(heads).index_fill_(0, history[user][history[user] < heads], 1.0)
        wanted = (mine[neighbours.long()] * tail_weights.float()).sum(-1)
        torch.testing.assert_close(scores[user, heads:], wanted)


def test_learning_from_a_large_catalogue_fits_into_memory(monkeypatch):
    """Half of the ratings are of items that are not among the most rated ones, from few users."""
    monkeypatch.setattr(first_stage, "MOST_ITEMS", 100)
    monkeypatch.setattr(first_stage, "AT_ONCE", 120)
    generator = torch.Generator().manual_seed(0)
    users = torch.arange(100).repeat_interleave(80)
    items = torch.cat([torch.randperm(200, generator=generator)[:80] for _ in range(100)])
    table = Ratings.from_rows(users.tolist(), items.tolist(), [1.0] * len(items))
    with Largest() as largest:
        stage = FirstStage.fit(table)
    assert largest.numbers <= 120 * 120  # a row of 100 numbers for each of 4,000 ratings would be 400,000
    assert bool((stage.tail_weights > 0).any())


def test_a_large_catalogue_takes_fewer_users_at_a_time(chosen, monkeypatch):
    histories, sizes = [[1000 + i, 1004 + i] for i in range(6)], []
    wanted = chosen.recommend(histories, k=3).items
    monkeypatch.setattr(recommending, "SCORES", 2 * len(chosen.catalogue) + 1)
    listed = recommending.candidates_for
    monkeypatch.setattr(
        recommending,
        "candidates_for",
        lambda ranker, part, *rest, **more: (
            sizes.append(len(part.items)) or listed(ranker, part, *rest, **more)
        ),
    )
    assert chosen.recommend(histories, k=3).items == wanted
    assert sizes == [2, 2, 2]


@pytest.mark.parametrize("kind", [MostRated, ItemWeights, ImplicitFactors])
def test_baselines_of_recommendation(kind, grouped):
    fitted = kind() if kind is not ImplicitFactors else kind(rank=4, rounds=3)
    scores = fitted.fit(grouped).scores(torch.tensor([[0, 4, 8], [1, 5, -1]]))
    assert scores.shape == (2, 40)
    if kind is not MostRated:
        assert scores[0, 2::2].mean() > scores[0, 1::2].mean()
        assert scores[1, 3::2].mean() > scores[1, 2::2].mean()


def test_hits_and_held_back_ratings(grouped):
    histories, targets = held_back(grouped, 0.2)
    for user in range(3):
        rows = slice(int(grouped.starts[user]), int(grouped.starts[user + 1]))
        latest = grouped.items[rows][grouped.times[rows].argsort()][-3:]
        assert targets[user] == set(latest.tolist())
        assert not targets[user] & set(histories.items[user].tolist())
    relevance = histories.relevance[0]
    assert (relevance.diff() <= 0).all()
    scores = hit_scores(torch.tensor([[1, 2, 3], [4, 5, -1]]), [{1, 2, 3, 9}, {7}])
    assert scores["recall"].tolist() == [1.0, 0.0]
    assert scores["ndcg"].tolist() == pytest.approx([1.0, 0.0])


def test_the_experiment_by_time(grouped, chosen, tmp_path, monkeypatch):
    monkeypatch.setattr(recommend, "LONGEST", 4)
    rows = recommend.run(grouped, tmp_path / "recommend.jsonl", share=0.15, ranker=chosen)
    assert [row["method"] for row in rows] == ["factorank", "popularity", "als", "ease"]
    by_method = {row["method"]: row["recall"] for row in rows}
    assert by_method["ease"] > by_method["popularity"]
    early, late = grouped.split_by_time(0.15)
    assert early.times.max() < late.times.min()
    assert len(early.items) + len(late.items) == len(grouped.items)
    with pytest.raises(fr.RatingsError, match="between 0 and 1"):
        grouped.split_by_time(1.5)
    with pytest.raises(fr.RatingsError, match="no times"):
        ratings().split_by_time()
