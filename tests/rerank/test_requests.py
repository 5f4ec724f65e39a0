"""Requests: an answer depends on what is asked, not on how; what has no effect is said."""

import random
import warnings

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import factorank as fr
from factorank.data.ratings import Ratings, load_ratings
from factorank.errors import RankerWarning
from factorank.rerank import item_features
from factorank.rerank.catalogue import Catalogue
from factorank.rerank.keys import item_keys
from factorank.rerank.observations import as_list, unknown_item
from factorank.rerank.request import lists_of_arrays, read_request
from tests.rerank.small import SMALL, ranker, ratings


def test_features_of_new_items_are_in_the_units_of_the_table(priced, tmp_path):
    priced.save(tmp_path)
    for chosen in (priced, fr.Ranker.load(tmp_path)):
        for price, better in ((950, "new"), (12, 4)):
            answer = chosen.rerank(["new", 4], new={"new": {"price": price}}, k=1)
            assert answer.items[0] == better
            assert answer.top[0] > 0.8
        middle = chosen.rerank([0, 9, "new"], new={"new": [1 + 111 * 4.5]}, k=1)
        assert middle.items == [9, "new", 0]


def test_a_mean_rating_of_a_new_item_is_in_the_units_of_the_ratings():
    data = ratings()
    wide = Ratings.from_rows(
        [data.user_ids[u] for u in data.users.tolist()],
        [data.ids[i] for i in data.items.tolist()],
        [20 * value for value in data.values.tolist()],
    )
    setting = fr.rerank.preset("small", **SMALL | {"features": ("mean",)})
    chosen = fr.Ranker.fit(wide, 0.0, setting=setting, device="cpu")
    (row, _) = chosen.catalogue.feature_row("new", {"mean rating": 60.0})
    assert row == pytest.approx(60 * wide.scale)


@pytest.mark.parametrize(
    "options", [{}, {"references": 1}, {"by": "mode"}, {"by": "sample"}, {"by": "place"}]
)
@pytest.mark.parametrize("objective", ["masked", "autoregressive"])
def test_the_order_of_items_changes_nothing(objective, options, masked, causal):
    chosen = masked if objective == "masked" else causal
    shuffled = random.Random(0)
    for trial in range(12):
        items = shuffled.sample(range(100, 112), 6)
        rated = {item: float(shuffled.choice([3, 4])) for item in shuffled.sample(items, 3)}
        asked = [chosen.rerank(items, rated, k=2, **options)]
        shuffled.shuffle(items)
        rated = dict(shuffled.sample(list(rated.items()), 3))
        asked.append(chosen.rerank(iter(items) if trial % 2 else items, rated, k=2, **options))
        assert asked[0].items == asked[1].items
        torch.testing.assert_close(asked[0].top, asked[1].top)
        torch.testing.assert_close(asked[0].place, asked[1].place)


def test_the_order_of_new_items_changes_nothing(priced):
    new = {name: {"price": 500} for name in "abcd"}  # all alike: only their keys tell them apart
    answers = {tuple(priced.rerank(list(names), new=new).items) for names in ("abcd", "dcba", "bdac")}
    assert len(answers) == 1
    of_numpy = priced.rerank(np.array(["a", "b", "c", "d"]), new={np.str_(name): new[name] for name in new})
    assert tuple(of_numpy.items) in answers
    seeds = {
        tuple(priced.rerank(list("abcd"), new=new, generator=torch.Generator().manual_seed(s)).items)
        for s in range(9)
    }
    assert len(seeds) > 3


@given(st.lists(st.integers(-(2**62), 2**62), min_size=1, max_size=20, unique=True), st.integers(0, 2**62))
def test_keys_belong_to_items(identities, seed):
    keys = item_keys(torch.tensor(identities), torch.tensor(seed))
    assert ((keys >= 0) & (keys < 1)).all()
    for identity, key in zip(identities, keys.tolist(), strict=True):
        assert float(item_keys(torch.tensor(identity), torch.tensor(seed))) == key


def split_mix(number):
    """The first number of the generator SplitMix64 with this seed, by its definition on whole numbers."""
    number = (number + 0x9E3779B97F4A7C15) % 2**64
    number = (number ^ (number >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
    number = (number ^ (number >> 27)) * 0x94D049BB133111EB % 2**64
    return number ^ (number >> 31)


@given(st.integers(-(2**62), 2**62), st.integers(0, 2**62))
def test_keys_are_those_of_split_mix(identity, seed):
    assert split_mix(0) == 0xE220A8397B1DCDAF  # as its authors give it
    expected = (split_mix(split_mix(seed) + identity) >> 11) / 2**53
    assert float(item_keys(torch.tensor(identity), torch.tensor(seed))) == expected


def test_keys_are_uniform_and_differ_between_seeds():
    keys = item_keys(torch.arange(2000), torch.arange(4)[:, None])
    for row in keys:
        counts = torch.histc(row, 20, 0, 1)
        assert ((counts - 100).square() / 100).sum() < 50  # chi-squared with 19 degrees of freedom
    correlation = torch.corrcoef(keys)
    assert (correlation - torch.eye(4)).abs().max() < 0.1


def test_iterators_are_read_whole(masked):
    listed = masked.rerank([103, 101, 110], [110, 101])
    assert masked.rerank(iter([103, 101, 110]), iter([110, 101])).items == listed.items
    assert masked.rerank(name for name in (103, 101, 110)).items == masked.rerank([103, 101, 110]).items
    many = masked.rerank(iter(row) for row in ([103, 101], [105, 106]))
    assert [sorted(answer.items) for answer in many] == [[101, 103], [105, 106]]
    shown = masked.rerank([103, 101, 110], forbidden=(item for item in (101, 110)))
    assert shown.items == [103]
    each = masked.rerank([[103, 101], [105, 106]], forbidden=[iter([101]), iter([105])])
    assert each.items == [[103], [106]]


def test_frames_of_one_user_are_read(masked):
    import pandas
    import polars

    asked, rated = [100, 104, 107, 109], {109: 5.0, 100: 2.0}
    columns = {"movieId": list(rated), "rating": list(rated.values()), "user": [7, 7]}
    wanted = masked.rerank(asked, rated)
    for frame in (pandas.DataFrame(columns), polars.DataFrame(columns), polars.LazyFrame(columns)):
        assert masked.rerank(asked, frame).items == wanted.items
        assert masked.rerank([asked, asked], [frame, frame])[1].items == wanted.items
        assert masked.recommend(frame, 3).items == masked.recommend(rated, 3).items
    order = pandas.DataFrame({"item": [109, 100]})
    assert masked.rerank(asked, order).items == masked.rerank(asked, [109, 100]).items
    assert masked.rerank(pandas.DataFrame(columns)).items == masked.rerank([109, 100]).items
    part = pandas.DataFrame({"item": asked}, index=[5, 6, 8, 9])["item"]  # some rows of a table
    assert masked.rerank(part).items == masked.rerank(asked).items
    for wrong, message in (
        (pandas.DataFrame({"what": [1]}), "has a column of items, such as 'item', .*; this one has what"),
        (pandas.DataFrame(columns | {"user": [7, 8]}), "several users in 'user'"),
        (pandas.DataFrame(columns | {"movieId": [109, 109]}), "rates 109 more than once"),
        (pandas.Series({109: 105.0, 100: 102.0}), r"to_dict\(\) makes ratings by item"),
        (pandas.Series({"item 3": 105, "item 4": 102}), r"to_dict\(\) makes ratings by item"),
    ):
        with pytest.raises(fr.FactorankError, match=message):
            masked.rerank(asked, wrong)


def test_what_has_no_effect_is_said(masked, priced):
    with pytest.warns(RankerWarning, match="list 1 has one rating, of 105"):
        masked.rerank([[100, 101], [105, 106]], [{100: 5, 101: 3}, {105: 4}])
    with pytest.warns(RankerWarning, match="new describes 'other', which no list asks for"):
        priced.rerank([1, 2, "mine"], new={"mine": [3.0], "other": [4.0]})
    with pytest.warns(RankerWarning, match="new describes 2, which was trained on"):
        priced.rerank([1, 2], new={2: [3.0]})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        masked.rerank([[100, 101], [105, 106]], [[100], {105: 4, 106: 3}])


def test_a_model_left_in_training_mode_answers_as_in_eval_mode(masked):
    wanted = masked.rerank([100, 104, 107, 109], [109, 100])
    masked.model.train()
    try:
        got = masked.rerank([100, 104, 107, 109], [109, 100])
        assert masked.model.training
    finally:
        masked.model.eval()
    torch.testing.assert_close(wanted.top, got.top, rtol=0, atol=0)


def test_what_items_and_users_have_in_common_is_left_out_of_the_rest():
    data = ratings(400, items=40, least=20, taste=0.0)
    relevance = data.relevance(data.values).double()
    means, rest = item_features.residuals(data)

    def mean_of(values, labels):
        return torch.zeros(int(labels.max()) + 1).double().index_add_(0, labels, values) / labels.bincount()

    for labels in (data.items.long(), data.users):
        assert mean_of(rest, labels).abs().max() < 0.15 * relevance.std()
    assert (means - mean_of(relevance, data.items.long())).abs().max() < 0.1 * relevance.std()


def test_factors_of_many_items_are_near_those_of_all(monkeypatch):
    data = ratings(400, items=40, least=20, taste=3.0)
    _, rest = item_features.residuals(data)
    every = item_features.factors(rest, data, 2)
    monkeypatch.setattr(item_features, "MOST_ITEMS", 25)
    some = item_features.factors(rest, data, 2)
    first, second = every @ every.T, some @ some.T
    likeness = (first * second).sum() / (first.norm() * second.norm())
    assert likeness > 0.95
    assert fr.Ranker.fit(data, 0.1, setting=fr.rerank.preset("small", **SMALL), device="cpu").rerank(
        [100, 139]
    )


def test_the_latest_rating_counts(tmp_path):
    rows = [("a", "x", 1, 30), ("a", "x", 5, 10), ("a", "y", 2, 20), ("b", "x", 3, 5), ("b", "x", 4, 5)]
    lines = ["user,item,rating,timestamp", *(",".join(map(str, row)) for row in rows)]
    (tmp_path / "table.csv").write_text("\n".join(lines) + "\n")
    users, items, values, times = map(list, zip(*rows, strict=True))
    dates = [f"2024-01-{time:02} 10:00:00" for time in times]
    (tmp_path / "dates.csv").write_text(
        "user,item,rating,date\n"
        + "\n".join(f"{u},{i},{v},{d}" for u, i, v, d in zip(users, items, values, dates, strict=True))
    )
    for table in (
        Ratings.from_rows(users, items, values, times),
        load_ratings(tmp_path / "table.csv"),
        load_ratings(tmp_path / "dates.csv"),
    ):
        assert table.values.tolist() == [1, 2, 4]
        assert table.repeated == 2
        assert table.times.argsort().tolist() == [2, 1, 0]
    table.save(tmp_path / "saved.safetensors")
    assert Ratings.load(tmp_path / "saved.safetensors").times.tolist() == table.times.tolist()
    assert table.of_users(torch.tensor([1])).times.tolist() == table.times[2:].tolist()
    assert Ratings.from_rows(users, items, values).values.tolist() == [5, 2, 4]  # the last row
    with pytest.raises(fr.RatingsError, match="times are numbers or dates"):
        Ratings.from_rows(users, items, values, ["late"] * 5)
    with pytest.raises(fr.RatingsError, match="5 users, 5 items and 5 ratings, 2 times"):
        Ratings.from_rows(users, items, values, [1, 2])


def test_a_column_that_is_no_time_is_left_out_unless_it_is_named(tmp_path):
    (tmp_path / "table.csv").write_text("user,item,rating,time\na,x,1,noon\na,y,2,late\n")
    assert load_ratings(tmp_path / "table.csv").times is None
    with pytest.raises(fr.RatingsError, match="row 2 has no time in 'time'"):
        load_ratings(tmp_path / "table.csv", time="time")


def test_tables_in_memory():
    import pandas
    import polars

    columns = {"user": ["a", "a", "b"], "item": [7, 8, 7], "rating": [1.0, 2.0, 3.0]}
    columns["timestamp"] = [3, 2, 1]
    for table in (columns, pandas.DataFrame(columns), polars.DataFrame(columns), polars.LazyFrame(columns)):
        read = fr.data.ratings.as_ratings(table)
        assert (read.ids, read.user_ids, read.values.tolist()) == ([7, 8], ["a", "b"], [1, 2, 3])
        assert read.times.tolist() == [3, 2, 1]
    with pytest.raises(fr.RatingsError, match="no column is recognised as the item"):
        fr.data.ratings.as_ratings({"user": [1], "what": [2], "rating": [3]})
    with pytest.raises(fr.RatingsError, match="row 2 has the user nan"):
        fr.data.ratings.as_ratings(pandas.DataFrame(columns | {"user": ["a", float("nan"), "b"]}))
    with pytest.raises(fr.RatingsError, match="not list"):
        fr.data.ratings.as_ratings([1, 2])
    chosen = ranker()
    assert chosen.rerank(pandas.Series([103, 104])).items == chosen.rerank([103, 104]).items


def test_padded_lists_are_read_without_their_pads(masked):
    padded = torch.tensor([[103, 100, 107, -1], [101, 102, 110, 104]])
    observed = torch.tensor([[107, -1], [104, 101]])
    assert as_list(padded[0]) == [103, 100, 107]
    found = lists_of_arrays(masked.catalogue, 8, 8, padded, observed)
    assert found is not None  # by the quick way, not the loop that explains faults
    assert found.items[:, :4].tolist() == [[3, 0, 7, -1], [1, 2, 10, 4]]
    assert found.observed.tolist() == [[2, -1], [3, 0]]
    names = [["103", "100", "107"], ["101", "102", "110", "104"]], [["107"], ["104", "101"]]
    lists, _, _ = read_request(masked.catalogue, 8, 8, *names, {}, 0, "order", None)
    assert torch.equal(lists.items, found.items)  # by names the same
    assert torch.equal(lists.observed, found.observed)


def test_without_a_generator_the_seed_is_0(masked):
    items, generator = list(range(100, 108)), torch.Generator()
    for ask in (
        lambda **how: masked.rerank(items, references=1, **how),
        lambda **how: masked.recommend(k=4, references=1, **how),
    ):
        same, other = (ask(generator=generator.manual_seed(seed)) for seed in (0, 1))
        assert torch.equal(ask().place, same.place)
        assert not torch.equal(ask().place, other.place)


def test_an_unknown_item_is_refused_with_the_first_four_features(masked):
    names = ["price", "length", "year", "weight", "colour"]
    said = unknown_item(5, "the list", Catalogue([1], features=names))
    assert said.endswith("new={5: …} (price, length, year, weight, …)")
    said = unknown_item(5, "the list", Catalogue([1], features=names[:4]))
    assert said.endswith("new={5: …} (price, length, year, weight)")


def test_the_largest_entry_of_each_factor_is_positive():
    data = ratings(400, items=40, least=20, taste=3.0)
    _, rest = item_features.residuals(data)
    every = item_features.factors(rest, data, 4)
    assert (every.gather(0, every.abs().argmax(0, keepdim=True)) > 0).all()


def test_the_quick_way_takes_ids_of_62_bits():
    assert Catalogue([2**62 - 1, -5]).sorted_ids is not None
    for ids in ([2**62, 5], [-(2**62)], ["a", 5], []):
        assert Catalogue(ids).sorted_ids is None
