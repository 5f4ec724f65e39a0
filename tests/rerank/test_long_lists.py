"""Lists longer than the model's: the observed order holds, places are those of an order, chunks compare."""

import random
from dataclasses import replace

import pytest
import torch

import factorank as fr
from factorank.baselines.rankers import MeanRating
from factorank.rerank import long_lists
from tests.rerank.small import SMALL, ratings


@pytest.fixture(scope="module")
def chosen():
    """A ranker of 60 items, the higher the better, for lists of up to 10."""
    data = ratings(200, items=60, least=30, taste=0.0)
    setting = fr.rerank.preset("small", **SMALL | {"n": 10, "steps": 60, "batch_size": 64})
    return fr.Ranker.fit(data, 0.1, setting=setting, device="cpu", lr=0.01)


@pytest.mark.parametrize("count", [0, 2, 6, 30])
def test_long_lists_keep_what_short_ones_do(chosen, count):
    shuffled = random.Random(count)
    items = list(range(100, 160))
    observed = shuffled.sample(items, count)
    answer = chosen.rerank(items, observed, k=10)
    assert sorted(answer.items) == items
    assert [item for item in answer.items if item in observed] == observed
    assert float(answer.top.sum()) == pytest.approx(10, abs=0.05)
    assert float(answer.place.sum()) == pytest.approx(59 * 30, rel=1e-3)
    shuffled.shuffle(items)
    again = chosen.rerank(items, observed, k=10)
    assert again.items == answer.items
    torch.testing.assert_close(again.place, answer.place, rtol=0, atol=1e-3)


def test_items_of_different_chunks_compare(chosen):
    """Items stand by their height, which all chunks see alike."""
    items = list(range(100, 160))
    place = {ranked.item: ranked.place for ranked in chosen.rerank(items)}
    low, high = (sum(place[item] for item in part) / 15 for part in (items[:15], items[15:30]))
    assert low > high + 5


def test_long_and_short_lists_in_one_batch(chosen):
    short, long = [105, 101, 103], list(range(100, 140))
    for lists in ([short, long], [long, short]):
        answers = chosen.rerank(lists, [[], []])
        for asked, answer in zip(lists, answers, strict=True):
            alone = chosen.rerank(asked)
            assert answer.items == alone.items
            torch.testing.assert_close(answer.place[: len(asked)], alone.place, rtol=0, atol=1e-4)


def test_all_observed_and_what_is_refused(chosen):
    everything = random.Random(0).sample(range(100, 160), 40)
    assert chosen.rerank([], everything).items == everything
    with pytest.raises(fr.FactorankError, match="sorted by 'gain' or 'place', not 'mode'"):
        chosen.rerank(list(range(100, 140)), by="mode")


def test_places_of_chunks_stretch_to_those_of_the_list():
    for size, m in ((3, 7), (4, 4), (5, 23)):
        stretch = long_lists._stretch(size, m, torch.device("cpu"))
        torch.testing.assert_close(stretch.sum(1), torch.ones(size))
        torch.testing.assert_close(stretch.sum(0), torch.full((m,), size / m))


def test_long_lists_can_be_measured(chosen):
    data = ratings(80, items=60, least=30, seed=3, taste=0.0)
    mean = MeanRating().fit(data, data, n=10)
    evaluation = fr.rerank.Evaluation((10, 25), (0, 4), (10,), lists=40)
    scores = fr.rerank.evaluate(chosen, data, evaluation, baselines=[mean])
    ours = {(row["n"], row["r"]): row for row in scores.rows if row["method"] == "factorank"}
    assert set(ours) == {(10, 0), (10, 4), (25, 0), (25, 4)}
    assert ours[10, 0]["bits"] > 0
    assert ours[25, 4]["bits"] is None
    assert 0.6 < ours[25, 4]["ndcg_unobserved"] <= 1
    assert {row["n"] for row in scores.calibration} == {25}
    # By default, and sorted by what long lists are not, only what the ranker was trained on is measured.
    for changes in ({"ns": ()}, {"query": fr.rerank.Query(by="mode")}):
        assert evaluation.sizes(data, chosen) == [10, 25]
        assert replace(evaluation, **changes).sizes(data, chosen) == [10]
