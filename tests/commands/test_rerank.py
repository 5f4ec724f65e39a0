"""``factorank rerank``: fit, predict and eval on a small table."""

import json
from dataclasses import replace

import pytest
import torch

import factorank as fr
from factorank.baselines.rankers import RANKERS
from factorank.commands._rerank_text import lead_text, some_of
from factorank.figures.rerank import calibration_figure, rerank_figure
from tests.rerank.small import SMALL, ranker, ratings


@pytest.fixture
def table(tmp_path):
    data = ratings(80)
    lines = ["user,item,rating"]
    lines += [
        f"{data.user_ids[user]},{data.ids[item]},{value}"
        for user, item, value in zip(data.users, data.items, data.values, strict=True)
    ]
    (tmp_path / "table.csv").write_text("\n".join(lines) + "\n")
    return tmp_path / "table.csv"


def test_fit_predict_and_eval(table, run, tmp_path):
    options = ["--preset", "small", "--n", 10, "--steps", 4, "--min-user-ratings", 8, "--out", "mine"]
    code, out, _ = run("rerank", "fit", table, *options)
    assert code == 0
    assert "training the preset small on lists of 10 (" in out
    assert "): 4 steps, about " in out
    assert (
        "on validation users, against mean-rating, ease, matrix-factorisation: ahead in"
        in out.splitlines()[-1]
    )
    assert "table: 80 users, 12 items" in out
    assert "left out" not in out
    options[3] = 9
    code, _, err = run("rerank", "fit", table, *options)
    assert code == 2
    assert "mine holds another run: model.config.n is 10 there and 9 here; " in err
    assert err.endswith("; other data (held_out.checksum); choose another folder as --out\n")

    (tmp_path / "me.csv").write_text("item,rating\n103,5\n101,1\n102,3\n110,\n")
    code, out, err = run("rerank", "predict", "mine", "--user", "me.csv", "--items", "111", "--k", 2)
    assert (code, err) == (0, "")
    assert "expected place" in out
    assert "top 2" in out
    place = {name: out.index(name) for name in ("* 103", "* 102", "* 101", "110", "111")}
    assert place["* 103"] < place["* 102"] < place["* 101"]

    (tmp_path / "order.csv").write_text("item\n101\n103\n")
    code, out, _ = run("rerank", "predict", "mine", "--user", "order.csv", "--items", "104")
    assert out.index("* 101") < out.index("* 103")
    assert "sorted by expected gain" in out
    assert "top 1\n" in out  # of three items, not all of them
    command = ("rerank", "predict", "mine", "--user", "order.csv", "--by", "place", "--k", 2)
    for file in ("answer.csv", "answer.json"):
        code, out, err = run(*command, "--items", "104", "--out", file)
        assert (code, err) == (0, "")
        assert "sorted by expected place" in out
    rows = json.loads((tmp_path / "answer.json").read_text())
    assert sorted(row["item"] for row in rows) == ["101", "103", "104"]
    assert [row["place"] for row in rows] == [1, 2, 3]
    assert sum(row["expected_place"] for row in rows) == pytest.approx(6, abs=1e-3)
    assert sum(row["top_2"] for row in rows) == pytest.approx(2, abs=1e-3)
    lines = (tmp_path / "answer.csv").read_text().splitlines()
    assert lines[0] == "place,item,name,expected_place,low,high,top_2,given"
    assert [line.split(",")[1] for line in lines[1:]] == [row["item"] for row in rows]

    for more, message in (
        (["--out", "answer.txt"], "--out is a file .csv or .json, not answer.txt"),
        (["--out", "no/answer.csv"], "there is no folder no for --out no/answer.csv"),
        (
            ["--items", "x"],
            "holds 'x', which the ranker has not been trained on; Ranker.rerank takes features of new",
        ),
        (["--nfe", "3"], "--nfe 3 needs a ranker with reference='random', as the preset 'paper' has"),
    ):
        code, _, err = run(*command, *more)
        assert code == 2
        assert message in err

    code, _, err = run("rerank", "eval", "mine", "--baselines", "foo")
    assert code == 2
    assert "there is no baseline 'foo'; there are popularity, " in err

    code, out, err = run("rerank", "eval", "mine", "--n", 10, "--lists", 20, "--baselines", "mean-rating")
    assert (code, err) == (0, "")
    assert "mean-rating" in out
    assert max(map(len, out.splitlines())) <= 80
    rows = [json.loads(line) for line in (tmp_path / "mine/eval/rerank.jsonl").read_text().splitlines()]
    assert {row["method"] for row in rows} == {"factorank", "mean-rating"}
    assert {row["by_time"] for row in rows} == {False}
    assert (tmp_path / "mine/eval/rerank.png").exists()
    assert (tmp_path / "mine/eval/rerank-calibration.png").exists()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("name\n1\n", "me.csv:1: expected the columns item and rating"),
        ("item,rating\n1,5\n1,4\n", "me.csv:3: '1' was on an earlier line already"),
        ("item,rating\n1,good\n", "me.csv:2: '1' is rated 'good', which is no number"),
        ("item,rating\n,3\n", "me.csv:2: there is no item"),
        ("item,rating\n1,inf\n", "me.csv:2: '1' is rated 'inf'"),
    ],
)
def test_a_bad_file_of_a_user_is_named(content, message, tmp_path):
    from factorank.errors import RatingsError
    from factorank.rerank import read_user

    (tmp_path / "me.csv").write_text(content)
    with pytest.raises(RatingsError, match=message):
        read_user(tmp_path / "me.csv")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (
            "who,item,rating\n1,2,3\n",
            "recognised as the user; there are who, item, rating. Say --user COLUMN",
        ),
        ("user,item,rating\n1,2,\n", "row 2 has no rating, "),
        ("user,item,rating\n1,2,\n", "--missing drop leaves them out"),
        (
            "user,item,rating\n1,2,3\n1,3,good\n",
            "t.csv: row 3 has the rating 'good' in 'rating', which is no number",
        ),
    ],
)
def test_a_bad_table_is_refused_in_options(content, message, run, tmp_path):
    (tmp_path / "t.csv").write_text(content)
    code, _, err = run("rerank", "fit", "t.csv")
    assert code == 2
    assert message in err


def test_eval_of_equal_ratings_and_of_a_run_of_the_library(run, tmp_path):
    equal = replace(ratings(80), values=torch.full((len(ratings(80).values),), 4.0))
    setting = fr.rerank.preset("small", **SMALL)
    fr.Ranker.fit(equal, 0.2, setting=setting, device="cpu", out=tmp_path / "mine")
    measured = ("rerank", "eval", "mine", "--n", 8, 30, "--lists", 20, "--r", 0, 3)
    code, out, err = run(*measured, "--fillers", 0, 0.9)
    assert (code, err) == (0, "")
    assert "the run has no test users; measured on the validation users" in out
    assert "s.e." in out
    assert "no lists with a share of 0.9 not rated: nobody" in out
    assert "no lists of 30: the ranker does not take them, or nobody has rated so many" in out
    rows = [json.loads(line) for line in (tmp_path / "mine/eval/rerank.jsonl").read_text().splitlines()]
    assert {row["ndcg"] for row in rows} == {1.0}
    assert {row["on"] for row in rows} == {"validation"}
    code, _, err = run(*measured, "--on", "test")
    assert code == 2
    assert "the run has no test users; it has train, validation" in err
    fr.Ranker.fit(equal, 0.0, setting=setting, device="cpu", out=tmp_path / "other")
    code, _, err = run("rerank", "eval", "other", "--n", 8)
    assert code == 2
    assert "no validation users to tune baselines on" in err


def lead(r, value, baseline="mean-rating"):
    return {"baseline": baseline, "n": 20, "r": r, "k": 10, "lead": value, "lead_se": 0.01}


def test_being_behind_the_mean_rating_is_announced():
    assert "MEAN RATING" not in lead_text([lead(0, -0.005), lead(5, 0.03), lead(10, -0.1, "ease")])
    assert "NOT BETTER THAN THE MEAN RATING" in lead_text([lead(0, -0.03), lead(5, 0.02)])
    some = lead_text([lead(0, -0.03), lead(5, 0.1), lead(5, -0.05, "ease")]).splitlines()
    assert some[-2].startswith("BEHIND THE MEAN RATING OF EACH ITEM at n = 20, r = 0: train longer")
    assert some[-1].endswith("ahead in 0 of 2 cells, by -0.0500 to -0.0300")


def test_ease_is_left_out_of_a_large_catalogue_unless_it_is_named(run, tmp_path, monkeypatch):
    monkeypatch.setattr("factorank.rerank.evaluation.scores.MOST_ITEMS", 11)
    setting = fr.rerank.preset("small", **SMALL)
    fr.Ranker.fit(ratings(), 0.2, setting=setting, device="cpu", out=tmp_path / "mine")
    code, out, _ = run("rerank", "eval", "mine", "--n", 8, "--r", 0, 2, "--lists", 20)
    assert code == 0
    assert "ease is left out: 12 items" in out
    assert "  matrix-factorisation" in out
    assert "  ease  " not in out
    code, out, err = run(
        "rerank", "eval", "mine", "--n", 8, "--r", 0, 2, "--lists", 20, "--baselines", "ease"
    )
    assert (code, err) == (0, "")
    assert "  ease  " in out
    assert "left out" not in out
    assert "rerank.png is drawn where mean-rating is among the baselines" in out
    code, out, err = run("rerank", "eval", "mine", "--n", 8, "--r", 0, 2, "--lists", 20, "--baselines")
    assert (code, err) == (0, "")
    assert "  factorank, masked" in out


def test_items_that_were_shown_and_not_chosen_are_not_counted_as_chosen(run, tmp_path):
    rows = [f"{user},{item},{int(item % 2 == user % 2)}" for user in range(40) for item in range(12)]
    (tmp_path / "clicks.csv").write_text("\n".join(["user,item,clicks", *rows]) + "\n")
    options = ["--n", 8, "--steps", 1, "--out", "mine"]
    code, out, _ = run("rerank", "fit", "clicks.csv", "--implicit", *options)
    assert code == 0
    assert "40 users, 12 items, 240 items chosen\n" in out


def test_repeated_ratings_are_counted(table, run):
    table.write_text(table.read_text() + "".join(table.read_text().splitlines(keepends=True)[1:3]))
    options = ["--preset", "small", "--n", 10, "--steps", 1, "--min-user-ratings", 8, "--out", "mine"]
    code, out, _ = run("rerank", "fit", table, *options, "--max-seconds", 1e-3)
    assert code == 0
    assert "2 rows left out: the user rates the item again later" in out


def test_serve_starts_the_service_of_a_run(run, tmp_path, monkeypatch):
    pytest.importorskip("fastapi")
    from factorank.rerank import serving

    started = {}
    monkeypatch.setattr(serving, "listen", lambda host, port: started.update(port=port) or [])
    monkeypatch.setattr(serving.Server, "run", lambda self, _: started.update(app=self.closing.app))
    monkeypatch.setattr("torch.set_num_threads", lambda threads: None)
    code, _, err = run("rerank", "serve", "mine")
    assert code == 2
    assert "mine" in err
    ranker().save(tmp_path / "mine")
    code, out, err = run("rerank", "serve", "mine", "--port", 8123)
    assert (code, err) == (0, "")
    assert "serving mine at http://127.0.0.1:8123" in out
    assert started["port"] == 8123
    assert started["app"].title == "factorank"
    code, _, err = run("rerank", "serve", "mine", "--batch", 0)
    assert (code, "--batch is at least 1, not 0" in err) == (2, True)


def test_columns_of_a_table_of_scores():
    assert some_of([0, 1, 2], 8) == [0, 1, 2]
    assert some_of(list(range(9)), 8) == [0, 1, 2, 3, 4, 5, 6, 8]
    assert some_of([0, 1, 2, 3, 5, 8, 10, 15, 18], 6) == [0, 1, 3, 5, 10, 18]
    assert some_of([0, 1, 3], 1) == [0, 3]


@pytest.mark.parametrize("sizes", [(10,), (10, 20)])
def test_legends_and_labels_lie_within_the_figures(sizes, tmp_path, monkeypatch):
    """With all that they can hold."""
    drawn = []

    def look(figure, path):
        figure.canvas.draw()
        words = [*figure.legends, *(text for axis in figure.axes for text in axis.texts)]
        assert words
        drawn.extend((figure.bbox, each.get_window_extent()) for each in words)

    monkeypatch.setattr("factorank.figures.rerank.save", look)
    both, ks = ("masked", "autoregressive"), (1, 3, 5, 10)
    common = [
        {"data": "table", "method": "factorank", "objective": objective, "n": n, "k": k, "r": 0}
        | {"ndcg_unobserved": 0.5, "bin": 0, "stated": 0.5, "hit": 0.5, "count": 3}
        for objective in both
        for n in sizes
        for k in ks
    ]
    rows = [row | {"layout": layout} for row in common for layout in ("aligned", "prefix")]
    rows += [row | {"method": name} for row in common[:8] for name in RANKERS]
    results = tmp_path / "rows.jsonl"
    results.write_text("".join(json.dumps(row) + "\n" for row in rows))
    rerank_figure(results, tmp_path / "a.png")
    results.write_text("".join(json.dumps(row) + "\n" for row in common))
    calibration_figure(results, tmp_path / "b.png")
    for page, legend in drawn:
        assert legend.x0 >= page.x0
        assert legend.x1 <= page.x1
        assert legend.y0 >= page.y0


def test_lists_with_fillers_are_not_mixed_into_the_figure(tmp_path, monkeypatch):
    lines = []

    def look(figure, path):
        lines.extend(line.get_ydata().tolist() for line in figure.axes[0].lines[1:])

    monkeypatch.setattr("factorank.figures.rerank.save", look)
    common = {"data": "table", "n": 20, "k": 10, "layout": "aligned", "objective": "masked"}
    scores = {("factorank", 0.0): 0.7, ("factorank", 0.5): 0.1, ("mean-rating", 0.0): 0.6}
    rows = [
        common | {"method": method, "fillers": fillers, "r": r, "ndcg_unobserved": score}
        for (method, fillers), score in (scores | {("mean-rating", 0.5): 0.4}).items()
        for r in (0, 5)
    ]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    rerank_figure(tmp_path / "rows.jsonl", tmp_path / "a.png")
    assert lines[0] == pytest.approx([10.0, 10.0])


def test_missing_run(run):
    code, _, err = run("rerank", "predict", "nowhere", "--user", "me.csv")
    assert code == 2
    assert "nowhere does not hold a ranker: ranker.json is missing" in err
