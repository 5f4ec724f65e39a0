"""The re-ranking experiment: the same lists for all, NDCG by r, bits, calibration, and files."""

import json
import math
from dataclasses import replace

import pytest
import torch
from scipy.stats import sem

import factorank as fr
from factorank.errors import FactorankError
from factorank.experiments import rerank
from factorank.experiments.rerank_leads import compared
from factorank.figures import draw
from factorank.rerank import evaluation as rerank_scores
from factorank.rerank.evaluation import (
    Asked,
    bits,
    calibration,
    default_rs,
    make_lists,
    over_users,
    ranked,
    reference_change,
    score_ranker,
    score_row,
)
from tests.rerank.made import SMALL, ranker, ratings

SETTING = fr.rerank.preset("small", **SMALL)


@pytest.fixture(scope="module")
def data():
    return ratings(120)


@pytest.fixture(scope="module")
def masked():
    return ranker()


def test_lists_are_the_same_for_all_methods_and_orders_agree_with_relevance(data):
    first, again = (make_lists(data, 6, seed=3, lists=200) for _ in range(2))
    assert torch.equal(first.items, again.items)
    assert torch.equal(first.order, again.order)
    assert len(first.items) >= 200
    sorted_relevance = first.relevance.gather(-1, first.order)
    assert bool((sorted_relevance.diff() <= 0).all())
    for r in (0, 1, 3, 6):
        observed = first.observed(r)
        assert observed.shape == (len(first.items), r)
        assert torch.equal(observed.sort(-1).values, torch.arange(r).expand_as(observed))
        assert bool((first.relevance.gather(-1, observed).diff() <= 0).all())


def test_ndcg_of_the_unobserved_items_alone(data):
    from sklearn.metrics import ndcg_score

    lists = make_lists(data, 6, lists=50)
    order = torch.stack([torch.randperm(6) for _ in lists.items])
    (row,) = score_row(lists, order, r=2, ks=[3])
    score = -order.argsort(-1)
    gains = torch.exp2(lists.relevance) - 1
    values = torch.tensor(
        [ndcg_score(g[None], s[None], k=3) for g, s in zip(gains[:, 2:], score[:, 2:], strict=True)]
    )
    mean, error = over_users(values, lists.users)
    assert row["ndcg_unobserved"] == pytest.approx(mean, abs=1e-5)
    assert row["ndcg_unobserved_se"] == pytest.approx(error, abs=1e-5)
    whole = torch.tensor([ndcg_score(g[None], s[None], k=3) for g, s in zip(gains, score, strict=True)])
    assert row["ndcg"] == pytest.approx(over_users(whole, lists.users)[0], abs=1e-5)


def test_users_count_once():
    mean, error = over_users(torch.tensor([1.0, 0.0, 0.5, 0.5, 0.5]), torch.tensor([7, 7, 9, 9, 9]))
    assert (mean, error) == (0.5, 0.0)


@pytest.mark.parametrize("name", ["default", "paper", "small"])
@pytest.mark.parametrize("objective", ["masked", "autoregressive"])
def test_rows_say_the_call_that_makes_them(name, objective):
    chosen = fr.rerank.preset(name, objective=objective, told="ratings", features=("mean", "taste"), seed=3)
    asked, usual = Asked(references=16, samples=32), rerank.Evaluation()
    names = {"run": lambda settings, *_, measured=usual: (settings, measured), "data": 0, "out": 1}
    names |= {"preset": fr.rerank.preset, "Evaluation": rerank.Evaluation, "Asked": Asked}
    for measured in (usual, rerank.Evaluation(ns=(20,), on="validation", asked=asked)):
        call = rerank.call_of(chosen, measured).removeprefix("factorank.experiments.rerank.")
        assert eval(call, names) == ([chosen], measured)
        assert call.startswith(f"run([preset('{name}', ")


def test_leads_are_paired_over_users_and_the_seeds_that_both_have():
    ours = {f"{seed}/6/2/5": torch.rand(40) for seed in range(3)} | {"0/6/3/5": torch.rand(40)}
    theirs = {f"{seed}/6/2/5": torch.rand(40) for seed in range(2)} | {"0/6/3/5": torch.rand(39)}
    (row,) = compared(ours, theirs)
    each = [(ours[f"{s}/6/2/5"] - theirs[f"{s}/6/2/5"]).double().numpy() for s in range(2)]
    each = sum(each) / 2
    assert (row["n"], row["r"], row["k"], row["seeds"], row["users"]) == (6, 2, 5, 2, 40)
    assert row["lead"] == pytest.approx(each.mean(), abs=1e-6)
    assert row["lead_se"] == pytest.approx(sem(each), abs=1e-6)


def test_options_of_baselines_are_passed_on_and_told(data):
    rows = rerank.baseline_rows(
        "score-and-sort",
        data,
        rerank.Evaluation(ns=(6,), rs=(1,), ks=(3,), lists=20),
        options={"steps": 2, "width": 8, "device": "cpu"},
    )
    assert json.loads(rows[0]["settings"]) == {"steps": 2, "width": 8, "device": "cpu", "dropout": 0.1}


def test_ranges_of_r():
    assert default_rs(10) == list(range(9))
    for n in (20, 50, 100):
        assert default_rs(n)[0] == 0
        assert default_rs(n)[-1] == n - 2


@pytest.mark.parametrize("objective", ["masked", "autoregressive"])
def test_none_and_one_observed_are_the_same(objective, data, masked):
    asked = masked if objective == "masked" else ranker(objective)
    lists = make_lists(data, 6, lists=60)
    how = Asked(references=2, samples=16)
    none, one = (ranked(asked, lists, r, how) for r in (0, 1))
    assert torch.equal(none[0], one[0])
    assert torch.equal(none[1], one[1])
    assert bits(asked, lists, 0, how) == bits(asked, lists, 1, how)


def test_bits_of_an_untrained_law_and_of_observed_items(masked, data):
    lists = make_lists(data, 6, lists=60)
    values = [bits(masked, lists, r, Asked()) for r in (0, 2, 4, 6)]
    assert values == sorted(values, reverse=True)
    assert values[-1] == 0
    assert values[0] == pytest.approx(math.log2(720), rel=0.4)


def test_calibration_of_a_law_that_is_true(masked, data):
    """Lists whose true order is drawn from the law itself: what is stated must hold."""
    from factorank.rerank.place_probabilities import law_given, reference_of
    from factorank.training.data import stream_seed

    lists = make_lists(data, 6, lists=6000)
    generator = torch.Generator().manual_seed(stream_seed(0, "references"))
    reference = reference_of(lists.given(0, masked), torch.rand((1, 8), generator=generator)[0])
    law = law_given(masked.model, lists.given(0, masked), reference)
    drawn = law.sample(generator=torch.Generator().manual_seed(0))[:, :6]
    lists.order = reference.gather(-1, drawn)
    _, places = ranked(masked, lists, 0, Asked(references=1))
    bins = list(calibration(places, lists, 0, [2]))
    assert sum(row["count"] for row in bins) == lists.items.numel()
    for row in bins:
        error = math.sqrt(max(row["stated"] * (1 - row["stated"]), 1e-4) / row["count"])
        assert abs(row["hit"] - row["stated"]) < 5 * error


def test_how_far_the_law_depends_on_the_reference(masked, data):
    lists = make_lists(data, 6, lists=60)
    change = reference_change(masked, lists, r=3, k=2)
    assert 0 == change["observed"] < change["all"] < 1
    change = reference_change(ranker(known="random"), lists, r=3, k=2)
    assert 0 < change["observed"] < change["all"] < 1


def test_a_run_is_written_resumed_and_drawn(data, tmp_path):
    settings = [SETTING, fr.rerank.preset("small", **SMALL | {"objective": "autoregressive"})]
    measured = rerank.Evaluation(ns=(5, 8), ks=(3, 5, 10), lists=30, asked=Asked(references=2, samples=8))
    rows = rerank.run(settings, data, tmp_path, measured=measured, device="cpu")
    before = {file: file.stat().st_mtime_ns for file in tmp_path.glob("*/rows.jsonl")}
    assert len(before) == 2
    again = rerank.run(settings, data, tmp_path, measured=measured, device="cpu")
    assert again == rows
    assert before == {file: file.stat().st_mtime_ns for file in tmp_path.glob("*/rows.jsonl")}
    with pytest.raises(fr.FactorankError, match="rows of another measured; choose another folder"):
        rerank.run(settings, data, tmp_path, measured=replace(measured, lists=40), device="cpu")
    with pytest.raises(fr.FactorankError, match="rows of another data"):
        rerank.run(settings, ratings(110), tmp_path, measured=measured, device="cpu")
    wider = replace(settings[0], width=2 * settings[0].width)
    with pytest.raises(fr.FactorankError, match="rows of another setting"):
        rerank.run([wider], data, tmp_path, measured=measured, device="cpu")
    rows = rerank.evaluate_baselines(["mean-rating"], data, tmp_path, measured=measured)
    assert rows == rerank.evaluate_baselines(["mean-rating"], data, tmp_path, measured=measured)
    with pytest.raises(fr.FactorankError, match="rows of another seeds"):
        rerank.evaluate_baselines(["mean-rating"], data, tmp_path, measured=measured, seeds=(0, 1))
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
    found = [json.loads(line) for line in (tmp_path / "rerank-leads.jsonl").read_text().splitlines()]
    means = {
        (row["method"], row["objective"], row["n"], row["r"], row["k"]): row["ndcg_unobserved"]
        for row in rows
    }
    assert len(found) == 2 * len(next(iter(by_method.values())))
    for row in found:
        cell = row["n"], row["r"], row["k"]
        lead = means["factorank", row["objective"], *cell] - means["mean-rating", None, *cell]
        assert row["lead"] == pytest.approx(lead, abs=1e-6)
        assert (row["baseline"], row["seeds"]) == ("mean-rating", 1)
        assert 0 <= row["lead_se"] < 0.2
    for name in ("rerank", "rerank-calibration"):
        draw(name, tmp_path / f"{name}.jsonl", tmp_path / f"{name}.png")
        assert (tmp_path / f"{name}.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("code", ["inline", "lehmer", "left-lehmer", "fisher-yates"])
def test_other_codes_without_observations(code, data):
    changes = SMALL | {"code": code, "n": 6, "shortest": 6, "masks": "all"}
    asked = fr.Ranker.fit(data, 0.2, setting=fr.rerank.preset("small", **changes), device="cpu")
    lists = make_lists(data, 6, lists=20)
    rows, _ = score_ranker(asked, lists, [0, 1], [5], Asked(references=2, samples=8))
    assert [row["r"] for row in rows] == [0, 1]
    with pytest.raises(fr.errors.ModelError, match="insertion"):
        ranked(asked, lists, 3, Asked())
    if code != "left-lehmer":
        with pytest.raises(fr.errors.ModelError, match="exactly 6 items"):
            asked.rerank([100, 101])


def test_the_papers_layout_ranks_lists_of_n(data):
    changes = SMALL | {"n": 6, "width": 16, "depth": 1, "heads": 2}
    setting = fr.rerank.preset("paper", **changes | {"shortest": None})
    asked = fr.Ranker.fit(data, 0.2, setting=setting, device="cpu")
    assert not asked.model.context.aligned
    rows, _ = score_ranker(asked, make_lists(data, 6, lists=20), [0, 3], [5], Asked(references=2))
    assert len(rows) == 2
    with pytest.raises(fr.FactorankError, match="set shortest=None"):
        fr.Ranker.fit(data, 0.2, setting=fr.rerank.preset("paper", **changes), device="cpu")


def test_what_cannot_be_measured_is_said(masked, data):
    with pytest.raises(fr.FactorankError, match=r"n = \(50,\) can be measured: users have up to 12"):
        rerank.evaluate(masked, data, rerank.Evaluation(ns=(50,)))


def test_numbers_observed_that_no_list_can_have(masked):
    with pytest.raises(FactorankError, match=r"of n = 8 items 0 to 6 can be observed, not r = \(7, 9\)"):
        rerank.evaluate(masked, ratings(), rerank.Evaluation(ns=(8,), rs=(7, 9), on="validation", lists=5))


def test_more_is_drawn_where_less_is_left(monkeypatch):
    asked, drawn = ranker("autoregressive"), []
    answers = asked.answers
    monkeypatch.setattr(
        asked,
        "answers",
        lambda *rest, **how: (drawn.append(how["samples"]), answers(*rest, **how | {"samples": 2}))[1],
    )
    monkeypatch.setattr(rerank_scores, "DRAWN", 24)
    lists = make_lists(ratings(), 8, lists=4)
    for r in (0, 4, 6):
        rerank_scores.ranked(asked, lists, r, Asked(references=1))
    assert drawn == [3, 6, 12]
