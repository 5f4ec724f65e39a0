"""The re-ranking experiment: runs that are resumed and not measured twice, their rows, files and figures."""

import json
from dataclasses import replace

import pytest

import factorank as fr
from factorank.experiments import rerank
from factorank.figures import draw
from factorank.rerank import Query
from factorank.rerank.evaluation import Evaluation
from factorank.rerank.users import split_users
from tests.rerank.small import SMALL, ratings

SETTING = fr.rerank.preset("small", **SMALL)


@pytest.fixture(scope="module")
def data():
    return ratings(120)


@pytest.mark.parametrize("name", ["default", "paper", "small"])
@pytest.mark.parametrize("objective", ["masked", "autoregressive"])
def test_rows_say_the_call_that_makes_them(name, objective):
    chosen = fr.rerank.preset(name, objective=objective, told="ratings", features=("mean", "taste"), seed=3)
    query, usual = Query(references=16, samples=32), Evaluation()
    names = {"run": lambda settings, *_, evaluation=usual, on="test": (settings, evaluation, on)}
    names |= {"data": 0, "out": 1, "preset": fr.rerank.preset, "Evaluation": Evaluation, "Query": Query}
    for evaluation, on in ((usual, "test"), (Evaluation(ns=(20,), query=query), "validation")):
        call = rerank.call_of(chosen, evaluation, on).removeprefix("factorank.experiments.rerank.")
        assert eval(call, names) == ([chosen], evaluation, on)
        assert call.startswith(f"run([preset('{name}', ")


def test_options_of_baselines_are_passed_on_and_recorded(data):
    rows = rerank.baseline_rows(
        "score-and-sort",
        split_users(data),
        Evaluation(ns=(6,), rs=(1,), ks=(3,), lists=20),
        options={"steps": 2, "width": 8, "device": "cpu"},
    )
    assert json.loads(rows[0]["settings"]) == {"steps": 2, "width": 8, "device": "cpu", "dropout": 0.1}


def test_a_run_is_written_resumed_and_drawn(data, tmp_path):
    settings = [SETTING, fr.rerank.preset("small", **SMALL | {"objective": "autoregressive"})]
    query = Query(references=2, samples=8)
    evaluation = Evaluation(ns=(5, 8), ks=(3, 5, 10), lists=30, query=query)
    rows = rerank.run(settings, data, tmp_path, evaluation=evaluation, device="cpu")
    before = {file: file.stat().st_mtime_ns for file in tmp_path.glob("*/rows.jsonl")}
    assert len(before) == 2
    again = rerank.run(settings, data, tmp_path, evaluation=evaluation, device="cpu")
    assert again == rows
    assert before == {file: file.stat().st_mtime_ns for file in tmp_path.glob("*/rows.jsonl")}
    with pytest.raises(fr.FactorankError, match="rows of another evaluation; choose another folder"):
        rerank.run(settings, data, tmp_path, evaluation=replace(evaluation, lists=40), device="cpu")
    with pytest.raises(fr.FactorankError, match="rows of another data"):
        rerank.run(settings, ratings(110), tmp_path, evaluation=evaluation, device="cpu")
    wider = replace(settings[0], width=2 * settings[0].width)
    with pytest.raises(fr.FactorankError, match="rows of another setting"):
        rerank.run([wider], data, tmp_path, evaluation=evaluation, device="cpu")
    rows = rerank.evaluate_baselines(["mean-rating"], data, tmp_path, evaluation=evaluation)
    assert rows == rerank.evaluate_baselines(["mean-rating"], data, tmp_path, evaluation=evaluation)
    with pytest.raises(fr.FactorankError, match="rows of another seeds"):
        rerank.evaluate_baselines(["mean-rating"], data, tmp_path, evaluation=evaluation, seeds=(0, 1))
    assert {row["method"] for row in rows} == {"factorank", "mean-rating"}
    for row in rows:
        assert 0 <= row["ndcg_unobserved"] <= 1
        for name in ("data", "n", "r", "k", "layout", "objective", "code", "seed", "command", "device"):
            assert name in row
    by_method = {}
    for row in rows:
        by_method.setdefault((row["method"], row["objective"]), set()).add((row["n"], row["r"], row["k"]))
    assert len({frozenset(cells) for cells in by_method.values()}) == 1
    written = [json.loads(line) for line in (tmp_path / "rerank.jsonl").read_text().splitlines()]
    assert written == rows
    leads = [json.loads(line) for line in (tmp_path / "rerank-leads.jsonl").read_text().splitlines()]
    means = {
        (row["method"], row["objective"], row["n"], row["r"], row["k"]): row["ndcg_unobserved"]
        for row in rows
    }
    assert len(leads) == 2 * len(next(iter(by_method.values())))
    for row in leads:
        cell = row["n"], row["r"], row["k"]
        lead = means["factorank", row["objective"], *cell] - means["mean-rating", None, *cell]
        assert row["lead"] == pytest.approx(lead, abs=1e-6)
        assert (row["baseline"], row["seeds"]) == ("mean-rating", 1)
        assert 0 <= row["lead_se"] < 0.2
    for name in ("rerank", "rerank-calibration"):
        draw(name, tmp_path / f"{name}.jsonl", tmp_path / f"{name}.png")
        assert (tmp_path / f"{name}.png").read_bytes().startswith(b"\x89PNG")
