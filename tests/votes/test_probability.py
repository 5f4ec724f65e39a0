"""The probability of partial rankings against enumeration."""

import itertools
import math

import pytest
import torch

import factorank as fr
from factorank.data import Rankings
from factorank.votes.probability import bits, log_prob

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
        "mixture": fr.Mixture([0.3, 0.7], [mallows, luce]),
    }


@pytest.mark.parametrize("unranked", ["below", "incomparable"])
@pytest.mark.parametrize("name", laws(2))
def test_partial_rankings_have_the_probability_of_all_orders_that_agree(name, unranked):
    n = 5
    law = laws(n)[name]
    every = fr.permutation_at(torch.arange(math.factorial(n)), n)
    rows = [[3, -1, -1, -1, -1], [1, 4, -1, -1, -1], [2, 0, 1, -1, -1], [4, 0, 2, 1, -1], [0, 1, 2, 3, 4]]
    log_probs = log_prob(law, Rankings.from_orders(torch.tensor(rows)), unranked)
    ranks = fr.inverse(every)
    for row, value in zip(rows, log_probs.tolist(), strict=True):
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


@pytest.mark.parametrize(("options", "exact"), [({"nfe": 1}, True), ({}, False)])
def test_bits_of_a_model_are_those_of_its_law_or_a_bound(options, exact):
    mallows = fr.Mallows([2, 0, 3, 1], 0.4)
    model = fr.PermutationModel.from_mallows(mallows, width=8, depth=1, heads=1)
    orders = fr.permutation_at(torch.arange(24), 4)
    scores, is_exact = bits(model.distribution(**options), Rankings.from_orders(orders), generator=G())
    assert is_exact == exact
    expected = -mallows.log_prob(orders).double() / math.log(2)
    if exact:
        assert torch.allclose(scores, expected, atol=1e-4)
    with pytest.raises(
        fr.RankingsError, match="row 0 does not rank '1'; a model scores complete rankings only"
    ):
        bits(model.distribution(**options), Rankings.from_orders(torch.tensor([[0, -1, -1, -1]])), "below")


def test_chains_of_many_items_have_probabilities_that_sum_to_one():
    """Beyond what can be listed: all orders of three of twelve items, and both orders of a pair."""
    law = fr.Mallows(torch.arange(12).roll(5), torch.tensor(0.7, dtype=torch.float64))
    for chosen in ([0, 4, 9], [3, 11]):
        rows = torch.full((math.factorial(len(chosen)), 12), -1)
        rows[:, : len(chosen)] = torch.tensor(list(itertools.permutations(chosen)))
        shares = log_prob(law, Rankings.from_orders(rows), "incomparable").exp()
        assert float(shares.sum()) == pytest.approx(1, abs=1e-12)
        drawn = fr.inverse(law.sample((20_000,), generator=G().manual_seed(0)))[:, chosen].argsort(1)
        first = (drawn == torch.arange(len(chosen))).all(1).double().mean()
        assert float(shares[0]) == pytest.approx(float(first), abs=0.02)
