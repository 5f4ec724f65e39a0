"""Leaderboards from tables of battles: the table, the law, ties, judges, bad tables."""

import warnings

import evalica
import numpy as np
import pandas
import polars
import pytest
import torch

import factorank as fr
from factorank.distributions.fitting.errors import FitWarning
from factorank.errors import RankingsError

SCORES = torch.tensor([1.0, 0.9, 0.0, -1.5], dtype=torch.float64)
NAMES = np.array(["delta", "alpha", "bravo", "charlie"])


def battles(rows=2000, seed=0):
    generator = torch.Generator().manual_seed(seed)
    pairs = torch.stack([torch.randperm(4, generator=generator)[:2] for _ in range(rows)])
    outcomes = fr.Davidson(SCORES, nu=0.5).sample(pairs, generator=generator)
    words = np.array(["model_a", "model_b", "tie"])
    return {
        "model_a": NAMES[pairs[:, 0]],
        "model_b": NAMES[pairs[:, 1]],
        "winner": words[outcomes],
    }


@pytest.fixture(scope="module")
def board():
    return fr.Leaderboard.fit(battles())


def test_the_table_is_sorted_and_whole(board):
    table = board.table
    assert table["item"][-2:] == ["bravo", "charlie"]
    assert table["score"] == sorted(table["score"], reverse=True)
    assert sum(table["score"]) == pytest.approx(0, abs=1e-9)
    for low, score, high in zip(table["low"], table["score"], table["high"], strict=True):
        assert low < score < high
    assert table["rank_low"] == [1, 1, 3, 4]
    assert table["rank_high"] == [2, 2, 3, 4]
    for own, joint in (("rank_low", "rank_low_simultaneous"), ("rank_high_simultaneous", "rank_high")):
        assert all(a >= b for a, b in zip(table[own], table[joint], strict=True))
    assert table["tier"] == [1, 1, 2, 3]
    assert sum(table["p_best"]) == pytest.approx(1, abs=1e-5)
    assert sum(table["battles"]) == 4000
    assert sum(table["expected_rank"]) == pytest.approx(10)


def test_the_law_is_that_of_the_true_order(board):
    number = {name: place for place, name in enumerate(board.items)}
    first = board.law.marginals()[:, 0]
    assert [float(first[number[name]]) for name in board.table["item"]] == board.table["p_best"]
    assert [board.items[item] for item in board.law.mode] == board.table["item"]
    turned = board.law.condition([number[name] for name in reversed(board.table["item"][:2])])
    places = fr.inverse(turned.sample((50,), generator=torch.Generator().manual_seed(0)))
    assert (places[:, number[board.table["item"][1]]] < places[:, number[board.table["item"][0]]]).all()


def test_frames_counts_and_names_of_winners_say_the_same(board):
    columns = battles()
    named = dict(columns)
    named["winner"] = np.select(
        [columns["winner"] == "model_a", columns["winner"] == "model_b"],
        [columns["model_a"], columns["model_b"]],
        "draw",
    )
    frame = polars.DataFrame(columns)
    counted = frame.group_by(["model_a", "model_b", "winner"]).len("count")
    record = np.rec.fromarrays(list(columns.values()), names=list(columns))
    plain = np.column_stack(list(columns.values()))
    for table in (
        named,
        frame,
        counted,
        record,
        plain,
        {key.upper(): value for key, value in columns.items()},
    ):
        again = fr.Leaderboard.fit(table)
        assert again.table["item"] == board.table["item"]
        np.testing.assert_allclose(again.table["score"], board.table["score"], atol=1e-9)


@pytest.mark.parametrize("ties", ["davidson", "rao-kupper", "half"])
def test_all_laws_of_ties_and_the_bootstrap(ties):
    columns = battles(800)
    board = fr.Leaderboard.fit(columns, ties)
    again = fr.Leaderboard.fit(columns, ties, bootstrap=200)
    torch.testing.assert_close(board.scores, again.scores)
    ratio = again.covariance.diagonal().sqrt() / board.covariance.diagonal().sqrt()
    assert ((ratio - 1).abs() < 0.25).all()
    judged = fr.Leaderboard.fit(columns | {"judge": np.arange(800) % 40}, ties)
    assert judged.table["item"] == board.table["item"]


def test_battles_that_would_separate_do(board):
    best, second = board.table["item"][:2]
    more = board.battles_to_separate(best, second)
    assert more > 0
    assert board.battles_to_separate(best, "charlie") == 0
    assert board.battles_to_separate(second, best) == more
    assert board.table["more_battles"] == [more, 0, 0, None]
    # The two items need so many battles that the difference comes to the critical value.
    a, b = (board.items.index(name) for name in (best, second))
    covariance = board.covariance
    variance = float(covariance[a, a] + covariance[b, b] - 2 * covariance[a, b])
    lead, critical = float(board.scores[a] - board.scores[b]), board.simultaneous_rank_sets.critical
    assert critical > 1.96
    law = board.comparisons.log_probs([a, b]).exp()
    slope = torch.autograd.functional.jacobian(
        lambda d: fr.Davidson(torch.stack([d, torch.zeros_like(d)]), board.comparisons.nu).log_probs([0, 1]),
        torch.tensor(lead, dtype=torch.float64),
    )
    information = float((law * slope**2).sum())
    assert lead * (1 / variance + more * information) ** 0.5 >= critical
    assert lead * (1 / variance + (more - 1) * information) ** 0.5 < critical
    assert ("bravo", "charlie") in board.certain()
    with pytest.raises(ValueError, match="there is no item 'zulu'"):
        board.battles_to_separate("zulu", best)


def test_an_item_that_never_lost_is_named_and_settled_by_a_prior():
    columns = {"model_a": ["x", "x", "y", "z"], "model_b": ["y", "z", "z", "y"], "winner": ["model_a"] * 4}
    with pytest.warns(FitWarning, match="nothing else is ever placed above item 'x'.*prior=0.1"):
        board = fr.Leaderboard.fit(columns)
    assert board.table["item"][0] == "x"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fr.Leaderboard.fit(columns, prior=1.0)


GOOD = {"model_a": ["x", "y"], "model_b": ["y", "x"], "winner": ["model_a", "tie"]}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"winner": ["model_a", "modle_b"]}, "row 1: column 'winner' holds 'modle_b', but a winner is"),
        ({"winner": ["model_a", "z"], "model_b": ["y", "x"]}, "row 1: column 'winner' holds 'z'"),
        ({"model_b": ["y", "y"]}, "row 1: 'y' is compared with itself"),
        ({"model_a": ["x", None]}, "row 1: column 'model_a' holds no name"),
        (
            {"model_a": [1, 2], "model_b": ["1", "3"]},
            "row 0: column 'model_b' holds '1', a text, and an integer",
        ),
        (
            {"model_a": [1.0, 2.0], "model_b": [2, 1]},
            "row 0: column 'model_b' holds 2, an integer, and a fract",
        ),
        ({"model_a": ["x", b"y"]}, "row 1: column 'model_a' holds b'y', bytes, and a text before"),
        ({"model_a": [True, False]}, "row 0: column 'model_a' holds True, bool; names are texts or numbers"),
        ({"count": [1, float("nan")]}, "row 1: column 'count' holds nan"),
        ({"count": [1, -2]}, "row 1: column 'count' holds -2"),
        ({"count": [0, 0]}, "no count above 0"),
        ({"count": ["1", "two"]}, "row 1: column 'count' holds 'two', which is no number"),
        ({"count": [1, 2], "winner": ["model_a"] * 2, "model_a": ["x"] * 2, "model_b": ["y"] * 2}, "already"),
        ({"winner": ["model_a"]}, "column 'winner' has 1 rows"),
        ({"model_a": [], "model_b": [], "winner": []}, "has no rows"),
    ],
)
def test_bad_tables_name_row_and_column(change, message):
    with pytest.raises(RankingsError, match=message):
        fr.Leaderboard.fit(GOOD | change)


def test_a_winner_that_did_not_take_part_and_missing_columns():
    columns = {"model_a": ["x", "y"], "model_b": ["y", "z"], "winner": ["x", "x"]}
    with pytest.raises(RankingsError, match="row 1: column 'winner' holds 'x', which did not take part"):
        fr.Leaderboard.fit(columns)
    with pytest.raises(RankingsError, match="need a column 'winner'; the table has 'model_a', 'model_b'"):
        fr.Leaderboard.fit({"model_a": ["x"], "model_b": ["y"]})
    with pytest.raises(RankingsError, match="battles are a table"):
        fr.Leaderboard.fit([1, 2])
    with pytest.raises(ValueError, match="ties are one of"):
        fr.Leaderboard.fit(GOOD, ties="third")


def test_scores_and_order_are_those_of_evalica():
    columns = battles(500)
    board = fr.Leaderboard.fit(columns, "half")
    kinds = {"model_a": evalica.Winner.X, "model_b": evalica.Winner.Y, "tie": evalica.Winner.Draw}
    winners = [kinds[word] for word in columns["winner"]]
    theirs = evalica.bradley_terry(
        list(columns["model_a"]), list(columns["model_b"]), winners, tolerance=1e-12, limit=10_000
    ).scores
    scores = np.log(theirs.reindex(list(board.items)).to_numpy())
    np.testing.assert_allclose(board.scores, scores - scores.mean(), atol=1e-6)


@pytest.mark.parametrize("kind", ["str", "object", "category", "int64"])
def test_columns_of_pandas(kind, board):
    columns = battles()
    if kind == "int64":
        numbers = {name: place for place, name in enumerate(sorted(board.items))}
        columns |= {side: [numbers[name] for name in columns[side]] for side in ("model_a", "model_b")}
    frame = pandas.DataFrame({key: list(value) for key, value in columns.items()})
    frame = frame.astype(dict.fromkeys(("model_a", "model_b"), kind))
    again = fr.Leaderboard.fit(frame)
    np.testing.assert_allclose(again.table["score"], board.table["score"], atol=1e-9)
    frame = frame.astype({"model_a": "object"})
    frame.loc[3, "model_a"] = None
    with pytest.raises(RankingsError, match="row 3: column 'model_a' holds no name"):
        fr.Leaderboard.fit(frame)
