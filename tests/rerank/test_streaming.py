"""Answers for the users of a parquet table: part by part, resumed without loss or repetition."""

import polars
import pytest

import factorank as fr
from factorank.rerank import streaming
from factorank.rerank.streaming import predict_table
from factorank.signals import Terminated
from tests.rerank.small import ranker


@pytest.fixture
def users(tmp_path):
    rows = [
        {
            "user": f"u{i}",
            "items": [100 + (i + j) % 12 for j in range(4)],
            "observed": [100 + (i + 3) % 12, 100 + i % 12],
        }
        for i in range(25)
    ]
    rows[7]["items"] = [100, 999]
    polars.DataFrame(rows).write_parquet(tmp_path / "users.parquet")
    return tmp_path / "users.parquet"


def read(folder):
    return polars.concat([polars.read_parquet(file) for file in sorted(folder.glob("part-*.parquet"))])


def test_answers_are_those_of_the_ranker(masked, users, tmp_path):
    steps = list(predict_table(masked, users, tmp_path / "out", k=2, rows=10))
    assert steps == [(10, 25), (20, 25), (25, 25)]
    answers = read(tmp_path / "out").to_dicts()
    assert [row["user"] for row in answers] == [f"u{i}" for i in range(25)]
    for row, asked in zip(answers, polars.read_parquet(users).to_dicts(), strict=True):
        if row["user"] == "u7":
            assert row["items"] is None
            assert "999, which the ranker has not been trained on" in row["error"]
            continue
        wanted = masked.rerank(asked["items"], asked["observed"], k=2)
        assert row["items"] == wanted.items
        assert row["top"] == pytest.approx(wanted.top.tolist(), abs=1e-5)
        assert row["error"] is None


def test_a_stopped_run_goes_on_and_other_answers_are_refused(masked, users, tmp_path, monkeypatch):
    out = tmp_path / "out"
    whole = tmp_path / "whole"
    list(predict_table(masked, users, whole, rows=10))
    next(predict_table(masked, users, out, rows=10))  # stopped after the first part
    assert [file.name for file in out.glob("part-*")] == ["part-00000.parquet"]
    written = (out / "part-00000.parquet").stat().st_mtime_ns
    list(predict_table(masked, users, out, rows=10))
    assert (out / "part-00000.parquet").stat().st_mtime_ns == written
    assert read(out).equals(read(whole))
    shared = tmp_path / "shared"
    for parts in ([2, 0], [1]):  # by two machines
        list(predict_table(masked, users, shared, rows=10, parts=parts))
    assert read(shared).equals(read(whole))
    with pytest.raises(fr.FactorankError, match=r"other answers \(k differ\)"):
        list(predict_table(masked, users, out, rows=10, k=3))
    with pytest.raises(fr.FactorankError, match=r"other answers \(ranker differ\)"):
        list(predict_table(ranker(seed=5), users, out, rows=10))
    with pytest.raises(fr.FactorankError, match="parts 0 to 2, not 3"):
        list(predict_table(masked, users, out, rows=10, parts=[3]))
    (out / "answers.json").unlink()
    with pytest.raises(fr.FactorankError, match=r"holds parts but no answers\.json"):
        list(predict_table(masked, users, out, rows=10))


def test_another_table_of_the_same_size_is_refused(masked, users, tmp_path):
    frame, plain = polars.read_parquet(users), {"compression": "uncompressed", "statistics": False}
    frame.write_parquet(users, **plain)
    size = users.stat().st_size
    next(predict_table(masked, users, tmp_path / "out", rows=10))
    frame.with_columns(observed=polars.col("observed").list.reverse()).write_parquet(users, **plain)
    assert users.stat().st_size == size
    with pytest.raises(fr.FactorankError, match=r"other answers \(users differ\)"):
        list(predict_table(masked, users, tmp_path / "out", rows=10))


@pytest.mark.parametrize("damage", [lambda data: data[:-9], lambda data: data[:97] + bytes(20) + data[117:]])
def test_a_damaged_table_is_refused(damage, masked, users, tmp_path):
    users.write_bytes(damage(users.read_bytes()))
    with pytest.raises(fr.RatingsError, match=r"users\.parquet: no parquet file, or a damaged one: "):
        list(predict_table(masked, users, tmp_path / "out", rows=10))


def test_a_signal_while_a_table_is_read_is_no_damage(masked, users, tmp_path, monkeypatch):
    def stopped(file):
        raise Terminated

    monkeypatch.setattr(polars, "scan_parquet", stopped)
    with pytest.raises(Terminated):
        list(predict_table(masked, users, tmp_path / "out", rows=10))


def test_columns_that_hold_no_lists_are_refused(masked, users, tmp_path):
    polars.DataFrame({"user": [1], "items": [3]}).write_parquet(users)
    with pytest.raises(fr.RatingsError, match="the column items holds Int64, and lists are needed"):
        list(predict_table(masked, users, tmp_path / "out"))


def test_recommendations_ratings_and_faults(masked, tmp_path):
    frame = polars.DataFrame(
        {
            "user": [1, 2, 3],
            "observed": [[103, 101], [104], [105, 105]],
            "ratings": [[5.0, 2.0], [3.0, 1.0], [4.0, 2.0]],
        }
    )
    frame.write_parquet(tmp_path / "users.parquet")
    list(predict_table(masked, tmp_path / "users.parquet", tmp_path / "out", k=3))
    first, second, third = read(tmp_path / "out").to_dicts()
    assert first["items"] == masked.recommend({103: 5.0, 101: 2.0}, 3).items
    assert second["error"] == "user 2 has 1 observed items and 2 ratings"
    assert third["error"] == "user 3 rates 105 more than once"
    frame.drop("observed").write_parquet(tmp_path / "bad.parquet")
    with pytest.raises(fr.RatingsError, match="the columns user and items or observed are needed"):
        list(predict_table(masked, tmp_path / "bad.parquet", tmp_path / "other"))


def test_parts_of_faulty_or_empty_rows_have_the_types_of_the_others(masked, tmp_path):
    rows = [{"user": i, "items": [100, 101], "observed": [103, 102]} for i in range(6)]
    rows[0]["items"] = rows[1]["items"] = [5]
    rows[4] = {"user": 4, "items": [], "observed": []}
    rows[5] = {"user": 5, "items": None, "observed": None}
    polars.DataFrame(rows).write_parquet(tmp_path / "users.parquet")
    list(predict_table(masked, tmp_path / "users.parquet", tmp_path / "out", rows=2))
    schemas = [polars.read_parquet_schema(file) for file in sorted(tmp_path.glob("out/part-*"))]
    assert schemas[0] == schemas[1] == schemas[2]
    assert schemas[0]["items"] == polars.List(polars.Int64)
    assert read(tmp_path / "out")["items"].to_list()[4] == []
    assert streaming.faulty_rows(tmp_path / "out") == 2
    asked = polars.DataFrame({"user": ["a"], "observed": [["item 3", "item 5"]]})
    asked.write_parquet(tmp_path / "more.parquet")
    list(predict_table(masked, tmp_path / "more.parquet", tmp_path / "recommended", k=2))
    assert read(tmp_path / "recommended").schema == schemas[0] | {"user": polars.String}
    with pytest.raises(fr.FactorankError, match="k is 1 to 4, not 9"):  # that is no fault of a row
        list(predict_table(masked, tmp_path / "more.parquet", tmp_path / "too many", k=9))


def test_the_command(masked, users, tmp_path, run):
    masked.save(tmp_path / "mine")
    code, out, err = run("rerank", "predict", "mine", "--users", users, "--out", "answers", "--rows", 20)
    assert code == 0
    assert "written to answers; rows with an error: 1\n" in out
    assert "25 of 25 users" in err
    assert len(read(tmp_path / "answers")) == 25
    for options, message in (
        (["--users", users], "--users needs --out"),
        ([], "either --user or --users is needed"),
    ):
        code, _, err = run("rerank", "predict", "mine", *options)
        assert (code, message in err) == (2, True)


def test_parts_hold_8192_rows_unless_told_otherwise(masked, tmp_path, monkeypatch):
    seen = []
    monkeypatch.setattr(
        streaming, "begin_answers", lambda *given, rows, **options: seen.append(rows) or 1 / 0
    )
    with pytest.raises(ZeroDivisionError):
        next(streaming.predict_table(masked, "users.parquet", tmp_path))
    assert seen == [8192]
