import torch

import factorank as fr
from factorank.commands._fit_report import vote_lines
from factorank.data import Rankings
from factorank.votes import summary


def kemeny_lines(orders: list[list[int]]) -> list[str]:
    votes = Rankings(["a", "b", "c"], torch.tensor(orders), torch.ones(len(orders), dtype=torch.int64))
    lines = vote_lines(summary(fr.Mallows.fit(votes), votes))
    first = next(i for i, line in enumerate(lines) if line.startswith("  kemeny"))
    return [line.strip() for line in lines[first : first + 2]]


def test_a_consensus_says_how_many_orders_are_as_close():
    assert kemeny_lines([[0, 1, 2], [1, 2, 0], [2, 0, 1]])[1] == "3 orders are as close"
    assert kemeny_lines([[0, 1, 2], [0, 1, 2], [1, 0, 2]])[1].startswith("borda")


def test_a_consensus_that_is_not_proven_says_so():
    method = {"order": [0, 1, 2], "distance": 2.5, "exact": False, "lower_bound": 2.25, "best_orders": None}
    facts = {"items": ["a", "b", "c"], "pairs": [[0.0] * 3] * 3, "condorcet_winner": None}
    facts["consensus_methods"] = {"kemeny": method}
    assert vote_lines(facts)[-1].strip() == "not proven: another order might come to 2.250"


def test_an_order_is_cut_only_where_it_goes_on():
    line = kemeny_lines([[0, 1, 2], [0, 1, 2], [1, 0, 2]])[0]
    assert line.split(maxsplit=1)[1].startswith("a, b, c  distance")
    method = {"order": [0, 1, 2, 3], "distance": 2.5, "exact": True, "lower_bound": 2.5, "best_orders": 1}
    facts = {"items": list("abcd"), "pairs": [[0.0] * 4] * 4, "condorcet_winner": None}
    facts["consensus_methods"] = {"kemeny": method}
    assert vote_lines(facts)[-1].split(maxsplit=1)[1].startswith("a, b, c, …  distance")
