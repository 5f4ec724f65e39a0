"""Expected against observed, who beats whom, and tests of a law against a larger one."""

import itertools
import math

import pytest
import scipy.stats
import torch

import factorank as fr
from factorank.data import Rankings
from factorank.votes import consensus_methods, goodness, pairwise
from factorank.votes.goodness import expected_pairs

G = torch.Generator
LAWS = [
    fr.Mallows([3, 1, 0, 2], torch.tensor(0.6, dtype=torch.float64)),
    fr.PlackettLuce(torch.tensor([0.3, -1.0, 0.5, 2.0], dtype=torch.float64)),
    fr.Mixture([0.3, 0.7], [fr.Mallows([3, 1, 0, 2], 0.6), fr.Mallows([0, 1, 2, 3], 0.2)]),
]


@pytest.mark.parametrize("law", LAWS, ids=lambda law: type(law).__name__)
def test_pairs_of_a_law_by_listing_all_orders(law):
    rank = fr.inverse(fr.permutation_at(torch.arange(24), 4))
    probs = law.log_prob(fr.inverse(rank)).double().exp()
    shares = expected_pairs(law)
    for a, b in itertools.permutations(range(4), 2):
        assert float(shares[a, b]) == pytest.approx(float(probs[rank[:, a] < rank[:, b]].sum()), abs=1e-6)


def test_pairs_without_a_formula_are_estimated():
    law = fr.GeneralizedMallows([2, 0, 1], torch.tensor([1.0, 0.5, 0.2], dtype=torch.float64))
    shares = expected_pairs(law, G().manual_seed(0))
    assert float(shares[2, 0]) == pytest.approx(2 / 3, abs=0.02)


def test_shares_of_first_places_pairs_and_places():
    ranks = torch.tensor([[0, 1, 2], [1, 0, 2], [0, 1, 1], [0, -1, -1]])
    votes = Rankings(["a", "b", "c"], ranks, torch.tensor([50, 30, 10, 10]))
    fit = goodness(fr.Uniform(3, dtype=torch.float64), votes, "below")
    assert fit.voters == 100
    assert fit.first_observed.tolist() == pytest.approx([0.7, 0.3, 0.0])
    assert fit.chi_square == pytest.approx(sum((o - 100 / 3) ** 2 / (100 / 3) for o in (70, 30, 0)))
    assert fit.p_value == pytest.approx(math.exp(-fit.chi_square / 2))  # two degrees of freedom
    assert fit.pairs_compared[1, 2] == 80  # the last two voters do not compare b and c
    assert float(fit.pairs_observed[1, 2]) == 1.0
    assert fit.places_observed[:, 1].tolist() == pytest.approx([3 / 8, 5 / 8, 0.0])
    a, b, expected, observed, score = fit.residual_pairs(1)[0]
    assert (a, b, expected, observed) == ("a", "c", 0.5, 1.0)
    assert score == pytest.approx(0.5 / math.sqrt(0.25 / 100))


def test_rankings_of_subsets_tell_of_pairs_only():
    votes = Rankings(["a", "b", "c"], torch.tensor([[0, 1, -1], [-1, 0, 1]]))
    fit = goodness(fr.Uniform(3, dtype=torch.float64), votes, "incomparable")
    assert fit.voters == 0
    assert fit.places_observed.isnan().all()
    assert float(fit.pairs_observed[0, 1]) == 1.0
    assert fit.pairs_observed[0, 2].isnan()
    assert fit.facts()["pairs_observed"][0][2] is None


def test_the_law_that_made_the_votes_fits_and_another_does_not():
    law = fr.PlackettLuce(torch.tensor([2.0, 0.0, -0.5, -1.0], dtype=torch.float64))
    votes = Rankings.from_orders(law.sample((3000,), generator=G().manual_seed(1)))
    assert goodness(law, votes).p_value > 1e-3
    assert goodness(fr.Mallows.fit(votes), votes).p_value < 1e-6


def test_items_rarely_first_are_one_cell_of_the_test():
    law = fr.PlackettLuce(torch.tensor([0.5, 0.3, 0.15, 0.03, 0.02], dtype=torch.float64).log())
    first = [48, 25, 20, 3, 4]
    orders = [[item] + [other for other in range(5) if other != item] for item in range(5)]
    votes = Rankings(list("abcde"), fr.inverse(torch.tensor(orders)), torch.tensor(first))
    fit = goodness(law, votes)
    expected = scipy.stats.chisquare([48, 25, 20, 7], [50, 30, 15, 5])
    assert fit.chi_square == pytest.approx(expected.statistic)
    assert fit.p_value == pytest.approx(expected.pvalue)


def test_condorcet_winner_and_cycle():
    votes = Rankings(
        ["a", "b", "c"], torch.tensor([[0, 1, 2], [2, 0, 1], [1, 2, 0]]), torch.tensor([3, 2, 2])
    )
    table = pairwise(votes)
    assert table.wins[0, 1] == 5
    assert table.condorcet_winner is None  # a beats b, b beats c, c beats a
    winner = pairwise(Rankings(["a", "b", "c"], torch.tensor([[1, 0, 2], [2, 0, 1]])))
    assert winner.condorcet_winner == "b"
    assert winner.condorcet_loser is None


def test_methods_of_consensus_by_their_definitions():
    orders = fr.random_permutations(5, (9,), generator=G().manual_seed(3))
    votes = Rankings.from_orders(orders, list("abcde"))
    methods = consensus_methods(votes)
    rank = fr.inverse(orders)
    borda = (4 - rank).sum(0)
    assert borda[methods["borda"].order].tolist() == sorted(borda.tolist(), reverse=True)
    wins = (rank[:, :, None] < rank[:, None, :]).sum(0)
    copeland = (wins > 4).sum(1)  # nine voters: no ties
    assert copeland[methods["copeland"].order].tolist() == sorted(copeland.tolist(), reverse=True)
    fused = (1 / (61 + rank.double())).sum(0)
    assert fused[methods["rrf"].order].tolist() == sorted(fused.tolist(), reverse=True)
    for method in methods.values():
        assert methods["kemeny"].distance <= method.distance + 1e-12
        away = fr.kendall(orders, method.order).double().mean()
        assert method.distance == pytest.approx(float(away))
    with pytest.raises(fr.FactorankError, match="method is one of kemeny, borda"):
        fr.consensus(orders, method="plurality")


def test_schulze_on_the_example_of_its_author():
    """Forty-five voters and five candidates, whose order is E, A, C, B, D (Schulze, 2011, example 1)."""
    rows = {"ACBED": 5, "ADECB": 5, "BEDAC": 8, "CABED": 3, "CAEBD": 7, "CBADE": 2, "DCEBA": 7, "EBADC": 8}
    orders = torch.tensor([["ABCDE".index(name) for name in row] for row in rows])
    found = fr.consensus(orders, torch.tensor(list(rows.values())), method="schulze")
    assert ["ABCDE"[item] for item in found.order] == list("EACBD")
