"""A ranker's answers: probabilities that are those of the law, and every way to name items."""

import math
from unittest.mock import Mock

import numpy as np
import pytest
import torch

import factorank as fr
from factorank.rerank import Catalogue, graph
from factorank.rerank.expected_gain import expected_gain, gain_table, sort_by, with_observed_order
from factorank.rerank.reranking import interval
from factorank.sealed import read_sealed, write_sealed
from tests.rerank.small import SMALL, ranker, ratings


@pytest.mark.parametrize("objective", ["masked", "autoregressive"])
def test_one_observed_item_is_the_same_as_none(objective, masked, causal):
    chosen = masked if objective == "masked" else causal
    items = list(range(100, 107))
    none, one = chosen.rerank(items, k=3), chosen.rerank(items, [103], k=3)
    assert none.items == one.items
    torch.testing.assert_close(none.top, one.top, rtol=0, atol=0)
    assert [ranked.observed for ranked in one] == [item == 103 for item in one.items]


@pytest.mark.parametrize("by", ["gain", "place", "mode", "sample"])
@pytest.mark.parametrize("objective", ["masked", "autoregressive"])
def test_the_observed_order_is_kept_exactly(objective, by, masked, causal):
    chosen = masked if objective == "masked" else causal
    chooser = np.random.default_rng(0)
    items = np.stack([chooser.permutation(12)[:8] + 100 for _ in range(40)])
    observed = np.stack([chooser.permutation(row)[:4] for row in items])
    answer = chosen.rerank(items, observed, by=by, samples=8, references=2)
    for row, wanted, ranked in zip(items.tolist(), observed.tolist(), answer.items, strict=True):
        assert sorted(ranked) == sorted(row)
        assert [item for item in ranked if item in wanted] == wanted


def test_an_answer_does_not_depend_on_how_or_with_whom_it_is_asked(masked):
    items, observed = [[100, 105, 111, 103], [101, 102, 110]], [[105, 103], []]
    many = masked.rerank(items, observed, k=2, references=3)
    arrays = masked.rerank(
        np.array([[100, 105, 111, 103], [101, 102, 110, -1]]),
        np.array([[105, 103], [-1, -1]]),
        k=2,
        references=3,
    )
    titles = masked.rerank([f"item {i - 100}" for i in items[0]], ["item 5", "item 3"], k=2, references=3)
    assert titles.items == [f"item {i - 100}" for i in many[0].items]
    for row in range(2):
        alone = masked.rerank(items[row], observed[row], k=2, references=3)
        size = len(items[row])
        for answer in (many[row], arrays[row]):
            assert alone.items == answer.items
            torch.testing.assert_close(alone.top, answer.top[:size])
            torch.testing.assert_close(alone.place, answer.place[:size])
    assert masked.rerank(["100", "105"]).order.tolist() == masked.rerank([100, 105]).order.tolist()


def test_an_answer_as_a_table(masked):
    import pandas
    import polars

    answer = masked.rerank([[100, 105], [101, 102, 110]], [[105], []], k=1)
    for frame in (pandas.DataFrame(answer.table), polars.DataFrame(answer.table)):
        assert list(frame["list"]) == [0, 0, 1, 1, 1]
        assert list(frame["rank"]) == [1, 2, 1, 2, 3]
        assert list(frame["item"]) == [*answer[0].items, *answer[1].items]
        assert list(frame["top"]) == pytest.approx([*answer[0].top[:2].tolist(), *answer[1].top.tolist()])
    assert answer[1].table["item"] == answer[1].items
    assert masked.rerank([]).table["item"] == []


def test_edge_cases(masked):
    assert masked.rerank([]).items == []
    assert masked.rerank([104], k=1).items == [104]
    assert masked.rerank([104], k=1).top.tolist() == [1.0]
    everything = masked.rerank([101, 102, 103], [103, 101, 102], k=1)
    assert everything.items == [103, 101, 102]
    assert everything.place.tolist() == [0.0, 1.0, 2.0]
    assert [(ranked.low, ranked.high) for ranked in everything] == [(0, 0), (1, 1), (2, 2)]
    assert everything.top.tolist() == [1.0, 0.0, 0.0]
    joined = masked.rerank([101, 102], [109, 101])
    assert sorted(joined.items) == [101, 102, 109]
    assert joined.items.index(109) < joined.items.index(101)
    assert masked.rerank([], [109, 101]).items == [109, 101]


def test_ratings_of_a_user_ties_and_nan(masked):
    answer = masked.rerank([], {101: 5.0, 102: 1.0, 103: math.nan, 104: 3.0})
    assert [item for item in answer.items if item != 103] == [101, 104, 102]
    assert {ranked.item: ranked.observed for ranked in answer} == {
        101: True,
        102: True,
        103: False,
        104: True,
    }
    orders = {
        tuple(
            masked.rerank(
                [], {101: 4.0, 102: 4.0, 103: 1.0}, generator=torch.Generator().manual_seed(seed)
            ).items
        )
        for seed in range(20)
    }
    assert orders == {(101, 102, 103), (102, 101, 103)}


@pytest.mark.parametrize(
    ("items", "observed", "message"),
    [
        ([100, "ITEM 7"], None, r"not been trained on \(did you mean 'item 7'\?\)"),
        ([100, 999], None, "holds 999, which the ranker has not been trained on"),
        ([100, "item 0"], None, "holds 'item 0' at place 1 and, as 100, at 0"),
        ([100, 101], [101, 101], "observes 101 more than once"),
        ([100, 101], [101, "item 1"], "observes 101 more than once"),
        ([100], [998], "holds 998"),
        (
            list(range(612)),
            None,
            "has 612 items, observed ones included; up to 500 are ranked",
        ),
        ([[100, 101], [102]], [[100]], "2 lists of items but 1 of observed"),
    ],
)
def test_refusals_name_what_is_wrong(masked, items, observed, message):
    with pytest.raises(fr.FactorankError, match=message):
        masked.rerank(items, observed)


@pytest.mark.parametrize(
    "options", [{"by": "luck"}, {"k": 0}, {"references": 0}, {"samples": 0}, {"level": 1.0}]
)
def test_refused_options(masked, options):
    with pytest.raises(fr.FactorankError):
        masked.rerank([100, 101], **options)


@pytest.mark.parametrize(
    "asked",
    [
        {"items": "12"},
        {"items": [["1", "2"], "12"]},
        {"items": ["1", "2"], "observed": "12"},
        {"items": ["1", "2"], "forbidden": "12"},
    ],
)
def test_text_is_no_list_of_its_characters(asked):
    by_text = ranker()
    by_text.catalogue = Catalogue([str(item) for item in range(12)])
    with pytest.raises(fr.FactorankError, match="a list of items is needed"):
        by_text.rerank(**asked)
    with pytest.raises(fr.FactorankError, match="a list of items is needed"):
        by_text.recommend("12", k=2)


def test_every_id_names_its_item_whatever_the_titles_are():
    catalogue = Catalogue(["a", "b", "c", "d", 7], ["b", "Heat", "Heat", "c", "300"])
    assert [catalogue.index(name) for name in ["a", "b", "c", "d", 7, "7", "300"]] == [0, 1, 2, 3, 4, 4, 4]
    with pytest.raises(fr.FactorankError, match="several items are called 'Heat'"):
        catalogue.index("Heat")
    assert catalogue.names(["b", "c"]) == ["Heat", "Heat"]


def test_faulty_arrays_are_explained_as_lists_are(masked):
    for items, observed, message in (
        ([[100, 100, 101]], [[101]], "at place 1"),
        ([[100, 102, 101]], [[101, 101]], "more than once"),
        ([[100, 102, 777]], [[102]], "777"),
    ):
        with pytest.raises(fr.FactorankError, match=message):
            masked.rerank(np.array(items), np.array(observed))


def test_saved_and_loaded(masked, tmp_path):
    masked.save(tmp_path)
    again = fr.Ranker.load(tmp_path)
    answers = [either.rerank([101, 105, 109, 100], ["item 9", "item 0"]) for either in (masked, again)]
    assert answers[0].items == answers[1].items
    torch.testing.assert_close(answers[0].top, answers[1].top, rtol=0, atol=0)
    assert again.setting == masked.setting
    (tmp_path / "ranker.json").write_text("{}")
    with pytest.raises(fr.errors.ModelError, match="does not describe a ranker"):
        fr.Ranker.load(tmp_path)
    with pytest.raises(fr.errors.ModelError, match="missing"):
        fr.Ranker.load(tmp_path / "nothing")


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("ids", lambda ids: ids[:-1], "11 ids, but the model has 12"),
        ("ids", lambda ids: [*ids, 7], "13 ids, but the model has 12"),
        ("features", lambda names: [*names, "weight"], "features, but the model has"),
        ("gains", lambda gains: gains[:-1], "gains, but the model has"),
        ("ids", lambda ids: [*ids[:-1], None], "ids"),
    ],
)
def test_what_describes_the_items_fits_the_weights(masked, tmp_path, name, change, message):
    """Also where somebody has made the checksums anew."""
    masked.save(tmp_path)
    facts, files = read_sealed(tmp_path, "ranker.json", fr.errors.ModelError, "a ranker")
    write_sealed(tmp_path, "ranker.json", facts | {name: change(facts[name])}, files)
    with pytest.raises(fr.errors.ModelError, match=message):
        fr.Ranker.load(tmp_path)


def test_a_longer_run_that_dies_leaves_the_earlier_ranker(tmp_path, monkeypatch):
    """The same call with more steps goes on in the folder of a ranker, which vouches for its model."""

    def fit(steps):
        setting = fr.rerank.preset("small", **SMALL | {"steps": steps})
        fr.Ranker.fit(ratings(), 0, setting=setting, device="cpu", out=tmp_path / "run")
        return fr.Ranker.load(tmp_path / "run")

    earlier = fit(3)
    with monkeypatch.context() as dying:
        dying.setattr(fr.Ranker, "save", Mock(side_effect=KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            fit(6)
    there = fr.Ranker.load(tmp_path / "run")
    for name, weight in earlier.model.state_dict().items():
        assert torch.equal(weight, there.model.state_dict()[name])
    later = fit(6)
    assert any(
        not torch.equal(weight, later.model.state_dict()[name])
        for name, weight in earlier.model.state_dict().items()
    )


def test_new_items_are_ranked_by_their_features():
    chosen = ranker(features=("mean", "given"), embedding_std=0.0, item_dropout=0.5, steps=150, lr=None)
    table = chosen.model.context.table[3]
    raw = (table * chosen.model.context.scale + chosen.model.context.mean).tolist()
    # With no embedding learnt apart from the features, a copy of an item is like the item itself.
    torch.nn.init.zeros_(chosen.model.context.embedding.weight)
    by_id = chosen.rerank([100, 103, 107, 111], [111, 100])
    as_new = chosen.rerank([100, "new", 107, 111], [111, 100], new={"new": raw})
    assert as_new.items == ["new" if item == 103 else item for item in by_id.items]
    torch.testing.assert_close(as_new.top, by_id.top)
    partly = chosen.rerank([100, "new"], new={"new": {"height": 2.0}})
    assert sorted(map(str, partly.items)) == ["100", "new"]
    with pytest.raises(fr.FactorankError, match="'weight'; the features are mean rating"):
        chosen.rerank(["new"], new={"new": {"weight": 1.0}})
    with pytest.raises(fr.FactorankError, match="1 features; there are 4"):
        chosen.rerank(["new"], new={"new": [1.0]})


def test_training_learns_what_users_prefer():
    """Half of the users like odd items, half even ones: two observed items tell which."""
    setting = fr.rerank.preset("small", **SMALL | {"steps": 300, "batch_size": 128, "width": 32})
    chosen = fr.Ranker.fit(ratings(400, taste=4.0), 0.1, setting=setting, device="cpu")
    items = [108, 109, 110, 111]
    odd = chosen.rerank(items, [103, 101, 102, 100], k=2, references=4)
    even = chosen.rerank(items, [102, 100, 103, 101], k=2, references=4)

    def tops(answer):
        return {ranked.item: ranked.top for ranked in answer}

    for item in items:
        liked, other = (odd, even) if item % 2 else (even, odd)
        assert tops(liked)[item] > tops(other)[item]


def test_a_user_with_fewer_ratings_than_n_is_a_shorter_list():
    data = ratings(least=5)
    setting = fr.rerank.preset("small", **SMALL | {"n": 12, "shortest": 5})
    chosen = fr.Ranker.fit(data, 0.2, setting=setting, device="cpu")
    assert chosen.model.n == 12
    few = data.of_users((data.lengths < 9).nonzero()[:, 0])  # nobody to validate on has n ratings
    assert fr.Ranker.fit(data, few, setting=setting, device="cpu").result.held_out > 0
    with pytest.raises(fr.FactorankError, match="up to 8 ratings, but a list takes 12"):
        fr.Ranker.fit(data, few, setting=fr.rerank.preset("small", **SMALL | {"n": 12, "shortest": 12}))
    with pytest.raises(fr.FactorankError, match="no user has rated two items"):
        fr.Ranker.fit(fr.Ratings.from_rows(["a", "b"], [1, 1], [1.0, 2.0]), 0.0, device="cpu")


def test_gains_and_intervals():
    table = gain_table(torch.tensor([8.0, 4.0, 2.0, 0.0]))
    assert table.shape == (5, 4)  # a row for each length from 0 to n
    assert table[4].tolist() == [8, 4, 2, 0]
    assert table[0].tolist() == [0, 0, 0, 0]
    assert table[2].tolist() == [6, 1, 0, 0]
    places = torch.tensor([[[0.5, 0.5, 0, 0], [0.5, 0.5, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1]]])
    assert expected_gain(places, torch.tensor([4]), table).tolist() == [[6, 6, 2, 0]]
    low, high = interval(torch.tensor([[0.1, 0.1, 0.6, 0.1, 0.1], [1.0, 0, 0, 0, 0]]), 0.8)
    assert (low.tolist(), high.tolist()) == ([1, 0], [3, 0])
    order = torch.tensor([[4, 3, 2, 1, 0]])
    assert with_observed_order(order, torch.tensor([[0, 4, 2]])).tolist() == [[0, 3, 4, 1, 2]]


def test_whole_orders_keep_the_observed_order(generator):
    scores = torch.randint(0, 4, (500, 6), generator=generator).float()
    observed = torch.rand((500, 3), generator=generator).argsort(-1)
    keys = torch.rand((500, 6), generator=generator)
    order = sort_by(scores, observed, torch.ones_like(scores, dtype=torch.bool), keys)
    assert (order.sort(-1).values == torch.arange(6)).all()
    for row in range(500):
        assert [item for item in order[row].tolist() if item < 3] == observed[row].tolist()
        # The unobserved items are by score, and the scores along the list fall.
        shared = scores[row].clone()
        shared[observed[row]] = scores[row, :3].sort(descending=True).values
        assert (shared[order[row]].diff() <= 0).all()


def test_past_the_end_of_a_list_an_answer_holds_nothing(masked):
    answer = masked.rerank([[100, 103, 105, 107], [101, 102]], [[103], []])
    assert answer.order[1, 2:].tolist() == [-1, -1]
    assert answer.top[1, 2:].tolist() == [0, 0]
    assert answer.place[1, 2:].isnan().all()
    assert not answer.observed[1, 2:].any()


def test_the_graph_of_a_ranker_is_made_of_two_lists(masked, causal, monkeypatch):
    made = []
    monkeypatch.setattr(
        graph, "export", lambda module, path, example, **names: made.append((module, *example))
    )
    for chosen in (masked, causal):
        graph.export_ranker(chosen.model, "ranker.onnx")
        module, example = made.pop()
        assert {len(part) for part in example.values()} == {2}
        with torch.no_grad():
            found = module(example)
        assert (found if chosen.model.causal else found[0]).shape[:2] == (2, 8)
