"""The data type: what it accepts, what it turns into, and how voters are split."""

import pytest
import torch

import factorank as fr
from factorank.data import Rankings

NAMES = ["ann", "bob", "cat"]


def test_orders_are_the_inverse_of_ranks():
    orders = fr.random_permutations(6, (40,), generator=torch.Generator().manual_seed(0))
    votes = Rankings.from_orders(orders)
    assert votes.complete
    assert votes.strict
    assert torch.equal(votes.ranks, fr.inverse(orders))
    assert torch.equal(votes.orders(), orders)


def test_padded_orders_come_back():
    orders = torch.tensor([[2, 0, -1], [1, -1, -1], [0, 1, 2]])
    votes = Rankings.from_orders(orders, NAMES, torch.tensor([1, 2, 3]))
    assert not votes.complete
    assert votes.strict
    assert torch.equal(votes.to_padded_orders(), orders)
    assert votes.weights.tolist() == [1.0, 2.0, 3.0]
    assert votes.voters == 6


def test_orders_of_more_items_than_places():
    votes = Rankings.from_orders(torch.tensor([[2, 0]]), NAMES)
    assert votes.ranks.tolist() == [[1, -1, 0]]


@pytest.mark.parametrize(
    ("ranks", "message"),
    [
        ([[0, 1, 1], [0, 2, 3]], "row 1 holds a rank outside -1..2"),
        ([[0, 1, 2], [1, 2, -1]], "row 1 holds a gap in its ranks"),
        ([[0, 2, 2]], "row 0 holds a gap in its ranks"),
        ([[0, 1, 2], [-1, -1, -1]], "row 1 holds no ranked item"),
        ([[0, -2, 1]], "row 0 holds a rank outside -1..2"),
        ([[0, 1]], r"ranks are \(rows, 3\), not \(1, 2\)"),
    ],
)
def test_bad_ranks_are_refused(ranks, message):
    with pytest.raises(fr.RankingsError, match=message):
        Rankings(NAMES, torch.tensor(ranks))


@pytest.mark.parametrize(
    ("items", "message"),
    [
        (["ann", "bob", "ann"], "two items have the name 'ann': numbers 1 and 3"),
        (["ann", "", "cat"], "an item has an empty name"),
        (["ann", " bob", "cat"], "white space around it"),
        (["ann", "b\nob", "cat"], "control character"),
    ],
)
def test_bad_names_are_refused(items, message):
    with pytest.raises(fr.RankingsError, match=message):
        Rankings(items, torch.tensor([[0, 1, 2]]))


@pytest.mark.parametrize(
    ("counts", "message"),
    [
        (torch.tensor([0]), "row 0 has count 0; a count is at least 1"),
        (torch.tensor([1, 1]), r"counts are \(1,\), not \(2,\)"),
        (torch.tensor([1.0]), "not as torch.float32"),
    ],
)
def test_bad_counts_are_refused(counts, message):
    with pytest.raises(fr.RankingsError, match=message):
        Rankings(NAMES, torch.tensor([[0, 1, 2]]), counts)


def test_counts_that_overflow_are_refused():
    with pytest.raises(fr.RankingsError, match="add up to 18446744073709551614 voters"):
        Rankings(["a", "b"], torch.tensor([[0, 1], [1, 0]]), torch.tensor([2**63 - 1] * 2))


@pytest.mark.parametrize(
    ("orders", "message"),
    [
        ([[0, 1, 2], [1, 1, 0]], "row 1 of the orders holds an item twice"),
        ([[1, 2, 3]], r"row 0 of the orders holds an item that is none of 0\.\.2"),
        ([[0, -1, 2]], "row 0 of the orders holds an item after padding"),
    ],
)
def test_bad_orders_are_refused(orders, message):
    with pytest.raises(fr.RankingsError, match=message):
        Rankings.from_orders(torch.tensor(orders))


def test_orders_says_which_row_is_not_complete_or_strict():
    with pytest.raises(fr.RankingsError, match="row 1 does not rank 'cat'"):
        Rankings(NAMES, torch.tensor([[0, 1, 2], [0, 1, -1]])).orders()
    with pytest.raises(fr.RankingsError, match="row 2 ties 'ann' and 'cat'"):
        Rankings(NAMES, torch.tensor([[0, 1, 2], [2, 1, 0], [1, 0, 1]])).orders()


def test_ties_are_broken_within_each_tie_only_and_for_each_voter_alone():
    votes = Rankings(["a", "b", "c", "d", "e"], torch.tensor([[1, 1, 0, -1, 2]]), torch.tensor([4000]))
    broken = votes.break_ties(torch.Generator().manual_seed(1))
    counts = {tuple(row): int(count) for row, count in zip(broken.ranks.tolist(), broken.counts, strict=True)}
    assert set(counts) == {(1, 2, 0, -1, 3), (2, 1, 0, -1, 3)}
    assert abs(counts[1, 2, 0, -1, 3] - 2000) < 200  # six standard deviations
    assert broken.voters == 4000
    assert broken == votes.break_ties(torch.Generator().manual_seed(1))


def test_three_way_ties_are_uniform():
    votes = Rankings(NAMES, torch.zeros(1, 3, dtype=torch.int64), torch.tensor([6000]))
    counts = votes.break_ties(torch.Generator().manual_seed(2)).counts
    assert len(counts) == 6
    assert float(((counts - 1000.0) ** 2 / 1000).sum()) < 20.5  # chi-square, 5 degrees of freedom, p = 0.001


def test_scores_rank_highest_first_with_ties_and_gaps():
    votes = Rankings.from_scores(torch.tensor([[3.0, torch.nan, 3.0, -7.5, 9.0]]))
    assert votes.ranks.tolist() == [[1, -1, 1, 2, 0]]
    assert Rankings.from_scores(torch.tensor([[1, 3, 2]])).ranks.tolist() == [[2, 0, 1]]
    with pytest.raises(fr.RankingsError, match=r"takes a tensor of scores .*, not a list"):
        Rankings.from_scores([[1, 3, 2]])


def test_split_is_by_voter_and_keeps_everyone():
    votes = Rankings.from_orders(
        fr.random_permutations(5, (30,), generator=torch.Generator().manual_seed(3)),
        counts=torch.arange(1, 31),
    ).distinct()
    train, held = votes.split(0.2, torch.Generator().manual_seed(4))
    assert held.voters == round(0.2 * votes.voters)
    both = Rankings(
        votes.items, torch.cat([train.ranks, held.ranks]), torch.cat([train.counts, held.counts])
    ).distinct()
    total = dict(zip(map(tuple, both.ranks.tolist()), both.counts.tolist(), strict=True))
    assert total == dict(zip(map(tuple, votes.ranks.tolist()), votes.counts.tolist(), strict=True))
    again = votes.split(0.2, torch.Generator().manual_seed(4))
    assert (train, held) == again
    assert held != votes.split(0.2, torch.Generator().manual_seed(5))[1]


@pytest.mark.parametrize("fraction", [0, 1, -0.1, 0.1])
def test_a_split_that_leaves_a_part_empty_is_refused(fraction):
    with pytest.raises(fr.RankingsError):
        Rankings(["a", "b"], torch.tensor([[0, 1]]), torch.tensor([4])).split(fraction)


def test_splitting_too_many_voters_is_refused():
    votes = Rankings(["a", "b"], torch.tensor([[0, 1], [0, 0]]), torch.tensor([10**12, 10**12]))
    with pytest.raises(fr.RankingsError, match="cannot split"):
        votes.split(0.5)
    with pytest.raises(fr.RankingsError, match="cannot break ties"):
        votes.break_ties()


def test_distinct_adds_up_counts():
    votes = Rankings(["a", "b"], torch.tensor([[0, 1], [1, 0], [0, 1]]), torch.tensor([1, 2, 4])).distinct()
    assert votes.ranks.tolist() == [[0, 1], [1, 0]]
    assert votes.counts.tolist() == [5, 2]
