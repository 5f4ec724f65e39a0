"""Files of battles and scores: every layout gives the same board, every fault names its line and column."""

import json

import numpy as np
import polars
import pytest
import torch

import factorank as fr
from factorank.errors import RankingsError
from factorank.leaderboard import BattleTable, ScoreTable, read_board
from tests.leaderboard.test_board import battles


@pytest.fixture(scope="module")
def frame():
    return polars.DataFrame(battles(400))


@pytest.fixture(scope="module")
def scores(frame):
    return fr.Leaderboard.fit(frame).table["score"]


def fitted(path):
    table = read_board(path)
    assert isinstance(table, BattleTable)
    return fr.Leaderboard.fit(table).table["score"]


def test_every_kind_of_file_gives_the_same_board(frame, scores, tmp_path):
    frame.write_csv(tmp_path / "a.csv")
    frame.write_csv(tmp_path / "b.tsv", separator="\t")
    frame.write_csv(tmp_path / "c.csv", separator=";")
    frame.write_parquet(tmp_path / "d.parquet")
    frame.write_ndjson(tmp_path / "e.jsonl")
    frame.write_json(tmp_path / "g.json")
    games = frame.rename({"model_a": "Home", "model_b": "Away", "winner": "Result"})
    games.with_columns(polars.col("Result").replace({"model_a": "home", "model_b": "away"})).write_csv(
        tmp_path / "h.csv"
    )
    frame.group_by(frame.columns).len("count").write_csv(tmp_path / "f.csv")
    for path in sorted(tmp_path.iterdir()):
        np.testing.assert_allclose(fitted(path), scores, atol=1e-9)


def test_winner_and_loser_and_a_table_of_wins(frame, tmp_path):
    decided = frame.filter(polars.col("winner") != "tie")
    won = decided.select(
        winner=polars.when(polars.col("winner") == "model_a")
        .then(polars.col("model_a"))
        .otherwise(polars.col("model_b")),
        loser=polars.when(polars.col("winner") == "model_a")
        .then(polars.col("model_b"))
        .otherwise(polars.col("model_a")),
    )
    won.write_csv(tmp_path / "pairs.csv")
    names = sorted(set(won["winner"]) | set(won["loser"]))
    counts = {
        (a, b): won.filter((polars.col("winner") == a) & (polars.col("loser") == b)).height
        for a in names
        for b in names
    }
    matrix = {"item": names} | {b: [counts[a, b] if a != b else None for a in names] for b in names}
    polars.DataFrame(matrix).write_csv(tmp_path / "matrix.csv")
    wanted = fr.Leaderboard.fit(decided).table["score"]
    for name in ("pairs.csv", "matrix.csv"):
        np.testing.assert_allclose(fitted(tmp_path / name), wanted, atol=1e-9)


def test_one_row_a_pair(frame, scores, tmp_path):
    named = {"model_a": "wins_a", "model_b": "wins_b", "tie": "ties"}
    counts = frame.select("model_a", "model_b").unique()
    for outcome, name in named.items():
        each = frame.filter(polars.col("winner") == outcome).group_by("model_a", "model_b").len(name)
        counts = counts.join(each, on=["model_a", "model_b"], how="left")
    counts.fill_null(0).write_csv(tmp_path / "wide.csv")
    np.testing.assert_allclose(fitted(tmp_path / "wide.csv"), scores, atol=1e-9)


def test_counts_of_several_judges_are_no_copies():
    columns = {"model_a": ["x", "x", "y"], "model_b": ["y", "y", "x"], "winner": ["x", "x", "y"]}
    table = fr.leaderboard.battle_table(columns | {"count": [1, 2, 3], "judge": ["ann", "bob", "ann"]})
    assert table.judges.tolist() == [0, 1, 0]
    with pytest.raises(RankingsError, match="row 1: 'x' against 'y' with this winner is counted already"):
        fr.leaderboard.battle_table(columns | {"count": [1, 2, 3], "judge": ["ann", "ann", "ann"]})


def test_rankings_are_pairs_with_voters_as_judges(tmp_path):
    orders = fr.PlackettLuce(torch.tensor([1.0, 0.5, 0.0])).sample(
        (60,), generator=torch.Generator().manual_seed(0)
    )
    rankings = fr.Rankings.from_orders(orders, ["x", "y", "z"])
    fr.write_rankings(rankings, tmp_path / "votes.soc")
    table = read_board(tmp_path / "votes.soc")
    assert len(table.pairs) == 180
    assert len(set(table.judges.tolist())) == 60
    before = (fr.inverse(orders)[:, 0] < fr.inverse(orders)[:, 1]).sum().item()
    pair = (table.pairs == [table.items.index("x"), table.items.index("y")]).all(1)
    assert (table.outcomes[pair] == 0).sum() == before
    assert fr.Leaderboard.fit(table).table["item"][0] == "x"


def test_scores_by_task_long_and_wide(tmp_path):
    generator = torch.Generator().manual_seed(0)
    values = torch.tensor([0.9, 0.5, 0.4])[:, None] + 0.1 * torch.randn(3, 40, generator=generator)
    items, tasks = ["x", "y", "z"], [f"task {number}" for number in range(40)]
    wide = {"model": items} | {task: values[:, i].tolist() for i, task in enumerate(tasks)}
    polars.DataFrame(wide).write_csv(tmp_path / "wide.csv")
    rows = [
        {"item": item, "task": task, "score": float(values[i, j])}
        for i, item in enumerate(items)
        for j, task in enumerate(tasks)
    ]
    (tmp_path / "long.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    boards = []
    for name in ("wide.csv", "long.jsonl"):
        table = read_board(tmp_path / name)
        assert isinstance(table, ScoreTable)
        boards.append(fr.Leaderboard.from_scores(table))
    np.testing.assert_allclose(boards[0].table["score"], boards[1].table["score"], atol=1e-6)
    assert boards[0].table["item"] == items
    assert boards[0].table["rank_high"][0] == 1
    # The error of a difference is that of paired observations.
    covariance = boards[0].covariance
    paired = (values[0] - values[1]).std() / 40**0.5
    variance = covariance[0, 0] + covariance[1, 1] - 2 * covariance[0, 1]
    assert variance.sqrt().item() == pytest.approx(paired.item(), rel=1e-5)
    again = fr.Leaderboard.from_scores(table, bootstrap=500)
    torch.testing.assert_close(again.covariance, covariance, rtol=0.25, atol=1e-5)
    with pytest.raises(ValueError, match="no battles to add"):
        again.battles_to_separate("x", "y")


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        (
            "a.csv",
            "model_a,model_b,winner\nx,y,model_a\nx,y,tei\n",
            "a.csv: line 3: column 'winner' holds 'tei'",
        ),
        ("a.csv", "model_a,model_b,winner\nx,x,tie\n", "a.csv: line 2: 'x' is compared with itself"),
        ("a.csv", "model_a,model_b,winner,count\nx,y,tie,-1\n", "a.csv: line 2: column 'count' holds '-1'"),
        ("a.csv", "model_a,model_b\nx,y\n", "a.csv: battles need a column 'winner'"),
        (
            "a.csv",
            "model_a,model_b,winner,count\nx,y,tie,nan\n",
            "line 2: column 'count' holds 'nan'; a count",
        ),
        ("a.csv", "model_a,model_b,winner,count\nx,y,tie,\n", "line 2: column 'count' holds None; a count"),
        (
            "a.csv",
            "model_a,model_b,winner,count\nx,y,tie,1\ny,x,tie,2\nx,y,tie,1\n",
            "a.csv: line 4: 'x' against 'y' with this winner is counted already, .*line 2",
        ),
        ("a.csv", "model_a,model_b,winner\nx,y,z\n", "line 2: column 'winner' holds 'z', but a winner is"),
        ("a.csv", "model_a,model_b,winner\nx,,tie\n", "a.csv: line 2: column 'model_b' holds no name"),
        (
            "a.csv",
            "model_a,model_b,wins_a,wins_b,teis\nx,y,1,2,3\n",
            "a.csv: column 'teis' is not understood",
        ),
        ("a.csv", "model_a,model_b,wins_a,wins_b\nx,y,1,-2\n", "a.csv: line 2: column 'wins_b' holds '-2'"),
        (
            "a.csv",
            "model_a,model_b,wins_a,wins_b\nx,y,1,2\nx,y,1,2\n",
            "a.csv: line 3: 'x' against 'y' with this winner is counted already, .*line 2",
        ),
        ("a.csv", "model,t1,t2\nx,1,2\n", "a.csv: a leaderboard ranks at least two items, .* only 'x'"),
        ("a.csv", "model,t1,t2\n", "a.csv: a leaderboard ranks at least two items, .* none"),
        ("a.csv", "item,x,y\nx,3,1\ny,2,\n", "a.csv: line 2: column 'x': 'x' is compared with itself"),
        ("a.csv", "", "a.csv: the file is empty"),
        ("a.jsonl", "{]", "a.jsonl: not a table that can be read"),
        ("a.xlsx", "x", "a leaderboard reads files that end in"),
        ("a.csv", "model,t1,t2\nx,1,2\ny,1,fine\n", "a.csv: line 3: column 't2' holds 'fine', not a score"),
        ("a.csv", "model,t1,t2\nx,1,2\nx,1,2\n", "a.csv: line 3: item 'x' has a row already, .*line 2"),
        ("a.csv", "item,task,score\nx,t,1\nx,t,2\n", "line 3: 'x' has a score on 't' already"),
        ("a.csv", "item,task,score\nx,t,1\ny,u,2\n", "'x' has no score on 'u'"),
        ("a.csv", "item,x,y\nx,,many\ny,2,\n", "a.csv: line 2: column 'y' holds 'many', which is no number"),
    ],
)
def test_a_fault_names_file_line_and_column(tmp_path, name, text, message):
    (tmp_path / name).write_text(text)
    with pytest.raises(RankingsError, match=message):
        read_board(tmp_path / name)
