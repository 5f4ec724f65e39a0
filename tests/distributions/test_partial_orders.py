import itertools

import pytest
import torch

import factorank as fr
from factorank.distributions.partial_orders import PartialOrderError
from factorank.errors import FactorankError


def pairs(partial, voter=0):
    return {(a, b) for a, b in partial.above[voter].nonzero().tolist()}


def test_complete_orders_compare_all_pairs():
    partial = fr.PartialOrders.from_orders(torch.tensor([[2, 0, 1]]))
    assert pairs(partial) == {(2, 0), (2, 1), (0, 1)}


def test_items_left_out_are_below_or_incomparable():
    rows = torch.tensor([[3, 1, -1, -1], [0, -1, -1, -1]])
    below = fr.PartialOrders.from_orders(rows, unranked="below")
    assert pairs(below) == {(3, 1), (3, 0), (3, 2), (1, 0), (1, 2)}
    assert pairs(below, 1) == {(0, 1), (0, 2), (0, 3)}
    apart = fr.PartialOrders.from_orders(rows, unranked="incomparable")
    assert pairs(apart) == {(3, 1)}
    assert pairs(apart, 1) == set()
    short = fr.PartialOrders.from_orders(rows[:, :2], items=4)
    assert torch.equal(short.above, below.above)


def test_ranks_with_ties():
    ranks = torch.tensor([[1, 0, 1, 5], [2, -1, 2, 7]])
    partial = fr.PartialOrders.from_ranks(ranks)
    assert pairs(partial) == {(1, 0), (1, 2), (1, 3), (0, 3), (2, 3)}
    assert pairs(partial, 1) == {(0, 3), (2, 3)}
    below = fr.PartialOrders.from_ranks(ranks, unranked="below")
    assert pairs(below, 1) == {(0, 3), (2, 3), (0, 1), (2, 1), (3, 1)}


@pytest.mark.parametrize("seed", range(5))
def test_preferences_are_closed(seed):
    g = torch.Generator().manual_seed(seed)
    n, rank = 6, fr.random_permutations(6, generator=torch.Generator().manual_seed(seed)).tolist()
    drawn = torch.randint(n, (5, 2), generator=g).tolist()
    preferences = {(a, b) if rank[a] < rank[b] else (b, a) for a, b in drawn if a != b}
    closed = set(preferences)
    while True:
        more = {(a, d) for a, b in closed for c, d in closed if b == c} - closed
        if not more:
            break
        closed |= more
    partial = fr.PartialOrders.from_preferences([(1, a, b) for a, b in preferences], n, voters=3)
    assert len(partial) == 3
    assert pairs(partial, 1) == closed
    assert pairs(partial, 0) == pairs(partial, 2) == set()


def test_a_cycle_names_voter_and_items():
    with pytest.raises(
        PartialOrderError, match=r"voter 1 form a cycle: (0 > 3 > 2 > 0|2 > 0 > 3 > 2|3 > 2 > 0 > 3)"
    ):
        fr.PartialOrders.from_preferences([(0, 0, 1), (1, 0, 3), (1, 3, 2), (1, 2, 0), (1, 1, 2)], 4)


@pytest.mark.parametrize(
    ("preferences", "message"),
    [
        ([(0, 1, 1)], "preference 0 of voter 0 puts item 1 above itself"),
        ([(0, 1, 2), (0, 4, 1)], r"preference 1 has winner 4; allowed is 0\.\.3"),
        ([(-1, 1, 2)], "preference 0 has voter -1"),
        ([(0, 1)], r"rows \(voter, winner, loser\), not \(1, 2\)"),
        ([(0.0, 1.0, 2.0)], "not as torch.float32"),
    ],
)
def test_bad_preferences(preferences, message):
    with pytest.raises(FactorankError, match=message):
        fr.PartialOrders.from_preferences(preferences, 4)


def test_a_rank_below_nothing_is_named():
    with pytest.raises(PartialOrderError, match="voter 1 gives item 2 -5"):
        fr.PartialOrders.from_ranks(torch.tensor([[0, -1, 1], [-1, 0, -5]]))


def test_bad_orders_and_ranks():
    with pytest.raises(FactorankError, match="row 1 holds 2 twice"):
        fr.PartialOrders.from_orders(torch.tensor([[0, 1, -1], [2, 2, -1]]))
    with pytest.raises(FactorankError, match="voter 0 gives item 2 -4"):
        fr.PartialOrders.from_ranks(torch.tensor([[0, 1, -4]]))
    with pytest.raises(FactorankError, match=r"torch\.float32"):
        fr.PartialOrders.from_ranks(torch.tensor([[0.0, float("nan")]]))
    with pytest.raises(FactorankError, match="bool tensor"):
        fr.PartialOrders(torch.zeros(2, 3))
    with pytest.raises(FactorankError, match="'below' or 'incomparable'"):
        fr.PartialOrders.from_ranks(torch.tensor([[0, 1]]), unranked="above")


def test_agrees_is_the_definition():
    partial = fr.PartialOrders.from_preferences([(0, 2, 0), (0, 0, 1), (1, 3, 1)], 4)
    for order in itertools.permutations(range(4)):
        rank = {item: place for place, item in enumerate(order)}
        expected = [rank[2] < rank[0] < rank[1], rank[3] < rank[1]]
        assert partial.agrees(torch.tensor([order, order])).tolist() == expected


def test_some_of_the_voters_and_none():
    partial = fr.PartialOrders.from_orders(torch.tensor([[0, 1], [1, 0], [0, 1]]))
    assert pairs(partial[1]) == {(1, 0)}
    assert len(partial[torch.tensor([True, False, True])]) == 2
    assert len(fr.PartialOrders.from_preferences([], 3)) == 0
