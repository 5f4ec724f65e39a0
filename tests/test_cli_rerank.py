"""``factorank rerank``: fit, predict and eval on a small table."""

import json

import pytest

from tests.rerank.made import ratings


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
    code, out, err = run("rerank", "fit", table, *options)
    assert (code, err) == (0, "")
    assert "80 users, 12 items" in out

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

    code, out, err = run("rerank", "eval", "mine", "--n", 10, "--lists", 20, "--baselines", "mean-rating")
    assert (code, err) == (0, "")
    assert "mean-rating" in out
    assert max(map(len, out.splitlines())) <= 100
    rows = [json.loads(line) for line in (tmp_path / "mine/eval/rerank.jsonl").read_text().splitlines()]
    assert {row["method"] for row in rows} == {"factorank", "mean-rating"}
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
    from factorank.rerank.users import read_user

    (tmp_path / "me.csv").write_text(content)
    with pytest.raises(RatingsError, match=message):
        read_user(tmp_path / "me.csv")


def test_missing_run(run):
    code, _, err = run("rerank", "predict", "nowhere", "--user", "me.csv")
    assert code == 2
    assert "there is no ranker in nowhere" in err
