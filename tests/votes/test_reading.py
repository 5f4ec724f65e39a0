"""Votes from files and in memory: what is strict and complete, and where the fault is if they are not."""

import pytest
import torch

import factorank as fr
from factorank.data import Rankings
from factorank.votes import prepared, read_votes, training_orders

G = torch.Generator


def test_items_tied_at_the_bottom_are_items_left_out():
    votes = Rankings(
        ["a", "b", "c"], torch.tensor([[0, 1, 1], [0, 1, 2], [0, 1, -1]]), torch.tensor([1, 2, 4])
    )
    assert prepared(votes, "below").ranks.tolist() == [[0, -1, -1], [0, 1, 2], [0, 1, -1]]
    with pytest.raises(fr.FactorankError, match="row 0 ties 'a' and 'b'"):
        prepared(Rankings(["a", "b", "c"], torch.tensor([[0, 0, 1]])), "below")
    with pytest.raises(fr.FactorankError, match="row 1 does not rank 'a': say unranked='below'"):
        prepared(Rankings(["a", "b"], torch.tensor([[0, 1], [-1, 0]])), None)


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        ("a,b\n2,1\n1,\n", {}, "v.csv:3: the ranking does not rank 'b': say unranked='below' if"),
        ("a,b\n2,1\n1,\n", {"break_ties": True}, "v.csv:3: the ranking does not rank 'b'"),
        ("a,b\n2,1\n1,\n", {"complete": True}, "v.csv:3: the ranking does not rank 'b'; a model learns"),
        ("a,b\n2,1\n1,1\n", {}, "v.csv:3: the ranking ties 'a' and 'b'; break_ties puts .* unranked 'below'"),
        ("1,2\n1,2\n", {}, "v.csv:1: the columns are named by numbers only: say format='orders' if"),
        ("a,b\n0,1\n", {}, r"v.csv:2: the rank of 'a' is 0; ranks begin with 1 \(or say first_rank=0\)"),
    ],
)
def test_errors_name_the_line_and_the_option(text, options, message, tmp_path):
    (tmp_path / "v.csv").write_text(text)
    with pytest.raises(fr.RankingsError, match=message):
        read_votes(tmp_path / "v.csv", **options)


def test_rows_are_merged_unless_they_are_wanted_as_they_are(tmp_path):
    (tmp_path / "v.csv").write_text("a,b\n2,1\n1,2\n2,1\n")
    assert read_votes(tmp_path / "v.csv").counts.tolist() == [2, 1]
    assert read_votes(tmp_path / "v.csv", merge=False).counts.tolist() == [1, 1, 1]


def test_ties_are_broken_for_each_voter(tmp_path):
    (tmp_path / "v.csv").write_text("count,a,b\n400,1,1\n")
    votes = read_votes(tmp_path / "v.csv", break_ties=True, generator=G().manual_seed(0))
    assert votes.strict
    assert sorted(votes.ranks.tolist()) == [[0, 1], [1, 0]]
    assert votes.voters == 400


def test_orders_to_train_on_are_those_of_all_voters():
    votes = Rankings(["a", "b"], torch.tensor([[0, 1], [1, 0]]), torch.tensor([30, 10]))
    orders, held = training_orders(votes, 0)
    assert held is None
    assert (orders[:, 0] == 0).sum() == 30
    orders, held = training_orders(votes, 0.25, G().manual_seed(0))
    assert (len(orders), len(held)) == (30, 10)
    assert int((torch.cat([orders, held])[:, 0] == 0).sum()) == 30
    with pytest.raises(fr.RankingsError, match=r"not at 1\.5; held_out=0 trains on all of them"):
        training_orders(votes, 1.5)
    with pytest.raises(fr.RankingsError, match="row 0 does not rank 'b'; a model learns from complete"):
        training_orders(Rankings(["a", "b"], torch.tensor([[0, -1]])))


def test_items_are_renumbered_by_their_names():
    votes = Rankings(["a", "b", "c"], torch.tensor([[0, 1, 2], [1, -1, 0]]), torch.tensor([3, 1]))
    moved = votes.with_items(["c", "a", "b"])
    assert moved.with_items(["a", "b", "c"]) == votes
    assert moved.items == ("c", "a", "b")
    with pytest.raises(fr.RankingsError, match="the items of x are not those of y: 'd' is in y only"):
        votes.with_items(["a", "b", "c", "d"], sources=("x", "y"))
