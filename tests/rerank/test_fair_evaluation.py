"""Evaluation with items that were not rated, by time, beside baselines; settings chosen by the data."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

import factorank as fr
from factorank.baselines.rankers import MeanRating
from factorank.data.ratings import Ratings
from factorank.metrics import ndcg
from factorank.rerank import Evaluation, evaluate
from factorank.rerank.choosing import chosen_setting, taste_gains, training_seconds
from factorank.rerank.evaluation import draw_lists, fitted_baselines, leads_over_baselines
from factorank.training.progress import Lines
from tests.rerank.small import SMALL, ratings


@pytest.fixture(scope="module")
def data():
    table = ratings(120, items=30, least=12, seed=5)
    times = torch.randint(0, 10_000, table.items.shape, generator=torch.Generator().manual_seed(0))
    return replace(table, times=times)


@pytest.fixture(scope="module")
def chosen(data):
    return fr.Ranker.fit(data, 0.2, setting=fr.rerank.preset("small", **SMALL), device="cpu")


def rated_by(data, user):
    return set(data.items[data.starts[user] : data.starts[user + 1]].tolist())


@pytest.mark.parametrize("fillers", [0.25, 0.5])
def test_fillers_are_items_that_the_user_has_not_rated(data, fillers):
    lists = draw_lists(data, 8, lists=200, fillers=fillers)
    for r in (0, 2):
        shown = lists.showing(r)
        assert shown.items[:, :r].tolist() == lists.items[:, :r].tolist()
        unrated = 0
        for row, user in enumerate(shown.users.tolist()):
            rated = rated_by(data, user)
            mine = torch.tensor([item in rated for item in shown.items[row].tolist()])
            assert mine.sum() == 8 - round(8 * fillers)
            assert mine[:r].all()
            assert (shown.relevance[row][~mine] == 0).all()
            assert len(set(shown.items[row].tolist())) == 8
            # The order is that of the relevances, and names the same items as before the shuffle.
            assert (shown.relevance[row][shown.order[row]].diff() <= 0).all()
            assert shown.items[row][shown.order[row]].tolist() == lists.items[row][lists.order[row]].tolist()
            unrated += int(not mine[-1])
        assert (
            0.6 * fillers < unrated / len(shown.users) / (8 / (8 - r)) < 1.4 * fillers
        )  # shuffled among the rest


def test_by_time_the_earliest_are_observed(data):
    lists = draw_lists(data, 8, lists=50, by_time=True)
    for row, user in enumerate(lists.users.tolist()):
        rows = slice(int(data.starts[user]), int(data.starts[user + 1]))
        time = dict(zip(data.items[rows].tolist(), data.times[rows].tolist(), strict=True))
        listed = [time[item] for item in lists.items[row].tolist()]
        assert listed == sorted(listed)
    with pytest.raises(fr.FactorankError, match="have no times"):
        draw_lists(replace(data, times=None), 8, by_time=True)
    with pytest.raises(fr.FactorankError, match="shares of 0 to below 1, not 1"):
        draw_lists(data, 8, fillers=1.0)
    with pytest.raises(fr.FactorankError, match="no user to test on has 4 ratings and 36 items unrated"):
        draw_lists(data, 40, fillers=0.9)


def test_evaluate_measures_rankers_and_baselines_on_the_same_lists(chosen, data):
    mean = MeanRating().fit(data, data, n=8)
    evaluation = Evaluation((6, 8), (0, 2), (5,), lists=100, fillers=(0.0, 0.5), by_time=True)
    scores = evaluate(chosen, data, evaluation, baselines=[mean])
    cells = [(row["method"], row["n"], row["fillers"], row["r"]) for row in scores.rows]
    methods = ("factorank", "mean-rating")
    assert len(cells) == len(set(cells))
    wanted = {(m, n, f, r) for m in methods for n in (6, 8) for f in (0.0, 0.5) for r in (0, 2)}
    assert set(cells) == wanted - {(m, 6, 0.5, 2) for m in methods}  # one rated item would be left
    lists = evaluation.draw(data, 8).items
    order = mean.scores(lists, 0).argsort(dim=-1, descending=True, stable=True)
    expected = ndcg(order, evaluation.draw(data, 8).relevance, 5)
    (row,) = (row for row, cell in zip(scores.rows, cells, strict=True) if cell == ("mean-rating", 8, 0.0, 0))
    assert row["ndcg"] == pytest.approx(float(expected.mean()), abs=1e-6)
    assert row["ndcg_se"] > 0
    leads = {(row["n"], row["fillers"], row["r"]): row["lead"] for row in scores.leads()}
    by_cell = {cell: row["ndcg_unobserved"] for cell, row in zip(cells, scores.rows, strict=True)}
    for (n, fillers, r), lead in leads.items():
        gap = by_cell["factorank", n, fillers, r] - by_cell["mean-rating", n, fillers, r]
        assert lead == pytest.approx(gap, abs=1e-6)


def test_tables_of_other_items_are_matched_by_id(chosen, data):
    ids = [data.ids[item] for item in data.items.tolist()]
    users = [data.user_ids[user] for user in data.users.tolist()]
    columns = {"user": [*users, "new"], "item": [*ids, 5], "rating": [*data.values.tolist(), 1.0]}
    evaluation = Evaluation((8,), (2,), (5,), lists=100)
    wanted, got = (evaluate(chosen, table, evaluation).rows for table in (data, columns))
    assert [row["ndcg"] for row in got] == pytest.approx([row["ndcg"] for row in wanted])


def test_baselines_that_take_too_long_are_left_out(data, monkeypatch):
    names = [baseline.name for baseline in fitted_baselines(data, data, 8)]
    assert names == ["mean-rating", "ease", "matrix-factorisation"]
    monkeypatch.setattr("factorank.rerank.evaluation.scores.MOST_ITEMS", 10)
    assert [baseline.name for baseline in fitted_baselines(data, data, 8)] == [
        "mean-rating",
        "matrix-factorisation",
    ]


def test_rankers_of_short_lists_are_compared_too(data):
    """Of lists of 8 there is no NDCG@10."""
    train, validation = data.of_users(torch.arange(0, 60)), data.of_users(torch.arange(60, len(data)))
    ranker = fr.Ranker.fit(train, 0.1, setting=fr.rerank.preset("small", **SMALL), device="cpu")
    rows = leads_over_baselines(ranker, {"train": train, "validation": validation})
    assert {(row["n"], row["k"]) for row in rows} == {(8, 8)}
    assert {row["r"] for row in rows} == {0, 5}


def test_ratings_and_taste_are_read_where_they_help(data):
    open_setting = fr.rerank.preset("small", **SMALL | {"told": None, "features": None})
    strong = ratings(300, items=30, least=20, taste=4.0)
    train, validation, _ = strong.split(validation=0.3, test=0.0)
    gains = taste_gains(train, validation, 2)
    assert gains["ratings"] > 0.01
    setting = chosen_setting(train, validation, open_setting)
    assert (setting.told, setting.features) == ("ratings", ("mean", "factors", "taste"))
    # Users without tastes: what one likes says nothing of the rest.
    generator = torch.Generator().manual_seed(0)
    heights = torch.arange(30) / 8 + torch.randn((400, 30), generator=generator)
    rows = [(u, i, float(heights[u, i].clamp(0, 5))) for u in range(400) for i in range(30)]
    alike = Ratings.from_rows(*map(list, zip(*rows, strict=True)))
    train, validation, _ = alike.split(validation=0.3, test=0.0)
    setting = chosen_setting(train, validation, open_setting)
    assert (setting.told, setting.features) == ("order", ("mean", "factors"))
    kept = replace(open_setting, told="order", features=("mean",))
    assert chosen_setting(train, validation, kept) == kept
    half = chosen_setting(train, validation, replace(open_setting, told="ratings"))
    assert (half.told, half.features) == ("ratings", ("mean", "factors"))
    few = ratings(20, items=6, least=3)
    assert taste_gains(few, few, 2) is None
    given = ratings(60, features=True)
    assert "given" in chosen_setting(given, given, open_setting).features


def test_training_takes_as_long_as_its_steps(data, monkeypatch):
    """By the quickest of three."""
    clock = iter([0.0, 9.0, 20.0, 22.0, 30.0, 33.0])
    monkeypatch.setattr("factorank.rerank.choosing.time", SimpleNamespace(perf_counter=lambda: next(clock)))
    setting = fr.rerank.preset("small", **SMALL | {"steps": 50})
    assert training_seconds(setting, data) == 100


def test_plain_lines_of_progress(capsys, monkeypatch):
    clock = iter([0.0, 1.0, 4.0, 5.0, 40.0, 50.0])
    monkeypatch.setattr("factorank.training.progress.time.monotonic", lambda: next(clock))
    lines = Lines(10, 2)
    for step in range(5):
        if step == 3:
            lines.set_postfix_str("3 bits, 2 steps/s, 00:10 left")
        lines.update()
    assert (
        capsys.readouterr().err
        == "step 4 of 10: 0.5 steps/s, 00:12 left\nstep 6 of 10: 3 bits, 0.1 steps/s, 00:40 left\n"
    )
