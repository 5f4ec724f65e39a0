"""The probability of partial rankings against enumeration, and what each family is fitted to."""

import itertools
import math

import pytest
import torch

import factorank as fr
from factorank.data import Rankings
from factorank.distributions.mixture import Mixture
from factorank.votes import bootstrap, comparison, families
from factorank.votes.families import Setting, log_prob, ready

G = torch.Generator


def laws(n):
    g = G().manual_seed(7)
    table = (torch.rand(n, n, generator=g, dtype=torch.float64) + 0.1).tril()
    central = fr.random_permutations(n, generator=g)
    mallows = fr.Mallows(central, torch.tensor(0.6, dtype=torch.float64))
    luce = fr.PlackettLuce(torch.randn(n, generator=g, dtype=torch.float64))
    return {
        "uniform": fr.Uniform(n, dtype=torch.float64),
        "mallows": mallows,
        "weighted mallows": fr.Mallows(central, 0.6, weights=torch.rand(n, generator=g, dtype=torch.float64)),
        "generalized mallows": fr.GeneralizedMallows(
            central, torch.rand(n, generator=g, dtype=torch.float64)
        ),
        "rim": fr.RIM(table / table.sum(-1, keepdim=True), central),
        "plackett-luce": luce,
        "mixture": Mixture([0.3, 0.7], [mallows, luce]),
    }


@pytest.mark.parametrize("unranked", ["below", "incomparable"])
@pytest.mark.parametrize("name", laws(2))
def test_partial_rankings_have_the_probability_of_all_orders_that_agree(name, unranked):
    n = 5
    law = laws(n)[name]
    every = fr.permutation_at(torch.arange(math.factorial(n)), n)
    rows = [[3, -1, -1, -1, -1], [1, 4, -1, -1, -1], [2, 0, 1, -1, -1], [4, 0, 2, 1, -1], [0, 1, 2, 3, 4]]
    found = log_prob(law, Rankings.from_orders(torch.tensor(rows)), unranked)
    ranks = fr.inverse(every)
    for row, value in zip(rows, found.tolist(), strict=True):
        listed = [item for item in row if item >= 0]
        others = [item for item in range(n) if item not in listed]
        agree = torch.ones(len(every), dtype=torch.bool)
        for first, second in itertools.pairwise(listed):
            agree &= ranks[:, first] < ranks[:, second]
        if unranked == "below":
            for item in others:
                agree &= ranks[:, listed[-1]] < ranks[:, item]
        assert math.exp(value) == pytest.approx(float(law.log_prob(every)[agree].exp().sum()), rel=1e-6)


def test_top_lists_of_one_length_have_probabilities_that_sum_to_one():
    law = fr.Mallows(torch.arange(12).flip(0), torch.tensor(0.8, dtype=torch.float64))
    tops = torch.full((132, 12), -1)
    tops[:, :2] = torch.tensor([(a, b) for a in range(12) for b in range(12) if a != b])
    assert float(log_prob(law, Rankings.from_orders(tops), "below").exp().sum()) == pytest.approx(1)


def test_what_is_not_feasible_is_refused():
    law = fr.GeneralizedMallows(torch.arange(9), torch.full((9,), 0.5))
    votes = Rankings.from_orders(torch.tensor([[0] + [-1] * 8]))
    with pytest.raises(fr.FactorankError, match="is not known for GeneralizedMallows with 9 items"):
        log_prob(law, votes, "below")


def test_items_tied_at_the_bottom_are_items_left_out():
    votes = Rankings(
        ["a", "b", "c"], torch.tensor([[0, 1, 1], [0, 1, 2], [0, 1, -1]]), torch.tensor([1, 2, 4])
    )
    made = ready(votes, "below")
    assert made.ranks.tolist() == [[0, -1, -1], [0, 1, 2], [0, 1, -1]]
    with pytest.raises(fr.FactorankError, match="row 0 ties 'a' and 'b'"):
        ready(Rankings(["a", "b", "c"], torch.tensor([[0, 0, 1]])), "below")
    with pytest.raises(fr.FactorankError, match="row 1 does not rank 'a': say unranked 'below'"):
        ready(Rankings(["a", "b"], torch.tensor([[0, 1], [-1, 0]])), None)


def test_complete_by_a_reference():
    orders = families.complete(torch.tensor([[2, -1, -1, -1], [1, 0, 3, 2]]), torch.tensor([3, 2, 1, 0]))
    assert orders.tolist() == [[2, 3, 1, 0], [1, 0, 3, 2]]


@pytest.mark.parametrize("name", ["generalized-mallows", "rim", "mixture"])
def test_families_for_complete_rankings_say_so(name):
    votes = Rankings.from_orders(torch.tensor([[0, 1, -1], [1, 0, 2]]))
    with pytest.raises(fr.FactorankError, match="is fitted to complete rankings only"):
        families.fit(name, votes, Setting(unranked="below", family="rim"), G())


def test_every_family_is_scored_and_the_true_one_wins():
    truth = Mixture([0.5, 0.5], [fr.Mallows(torch.arange(5), 0.3), fr.Mallows(torch.arange(5).flip(0), 0.3)])
    votes = Rankings.from_orders(truth.sample((2000,), generator=G().manual_seed(0))).distinct()
    train, held = votes.split(0.25, G().manual_seed(1))
    planned = comparison.plan(votes, 2, ["mallows", "plackett-luce"])
    assert planned == [
        ("uniform", 1),
        ("mallows", 1),
        ("mallows", 2),
        ("generalized-mallows", 1),
        ("rim", 1),
        ("plackett-luce", 1),
        ("plackett-luce", 2),
    ]
    found = [comparison.score(train, held, family, k, Setting(restarts=2)) for family, k in planned]
    best = min(found, key=lambda score: score.bits)
    assert (best.family, best.components) == ("mallows", 2)
    entropy = float(truth.entropy()) / math.log(2)
    assert best.bits == pytest.approx(entropy, abs=4 * best.bits_se)
    assert found[0].bits == pytest.approx(math.log2(120))


def test_an_impossible_ranking_costs_finitely_many_bits():
    train = Rankings(["a", "b", "c"], torch.tensor([[0, 1, 2]]), torch.tensor([99]))
    held = Rankings(["a", "b", "c"], torch.tensor([[2, 1, 0]]))
    score = comparison.score(train, held, "mallows", 1, Setting())
    assert score.bits == pytest.approx(math.log2(600))  # one voter in 100, and one order in 6


@pytest.mark.parametrize(("name", "family"), [("mallows", ""), ("rim", ""), ("mixture", "mallows")])
def test_refits_scatter_around_the_fit(name, family):
    law = fr.Mallows(torch.arange(5), 0.5)
    votes = Rankings.from_orders(law.sample((400,), generator=G().manual_seed(2))).distinct()
    setting = Setting(family=family or "mallows", restarts=1)
    fitted = families.fit(name, votes, setting, G().manual_seed(3))
    again = bootstrap.refits(name, votes, fitted, setting, 20, G().manual_seed(4))
    assert len(again) == 20
    assert {type(other) for other in again} == {type(fitted)}
    if name == "mallows":
        phis = torch.stack([other.phi for other in again])
        assert phis.std() > 0
        assert abs(phis.mean() - fitted.phi) < 3 * phis.std()


@pytest.mark.parametrize("family", families.MIXED)
def test_refits_of_a_mixture_keep_the_names_of_its_components(family):
    logits = torch.tensor([2.0, 1.0, 0.0, -1.0, -2.0])
    law = Mixture([0.3, 0.7], [fr.PlackettLuce(logits), fr.PlackettLuce(-logits)])
    votes = Rankings.from_orders(law.sample((500,), generator=G().manual_seed(2))).distinct()
    setting = Setting(components=2, family=family, restarts=2)
    fitted = families.fit("mixture", votes, setting, G().manual_seed(3))
    again = bootstrap.refits("mixture", votes, fitted, setting, 8, G().manual_seed(4))
    shares = torch.stack([other.weights for other in again])
    assert (shares - fitted.weights).abs().max() < 0.15
    assert shares.std(0).min() > 0
    drawn = bootstrap.resample(votes, G().manual_seed(4))  # the first of the refits is a fit to these
    first = again[0].log_prob(drawn.orders()) @ drawn.weights
    assert first > fitted.log_prob(drawn.orders()) @ drawn.weights


def test_resampling_draws_every_voter_alike():
    votes = Rankings(["a", "b"], torch.tensor([[0, 1], [1, 0]]), torch.tensor([300, 100]))
    shares = [bootstrap.resample(votes, G().manual_seed(seed)).counts[0] / 400 for seed in range(50)]
    assert abs(float(torch.stack(shares).mean()) - 0.75) < 4 * math.sqrt(0.75 * 0.25 / 400 / 50)
