"""Mallows and its mixtures from partial rankings, against the exact likelihood from a list of all orders."""

import math

import numpy as np
import pytest
import torch

import factorank as fr
from factorank.distributions import FitError
from factorank.lexicographic import permutation_at


def exact_log_likelihood(law, partial):
    """The sum over all orders that agree, voter by voter: ``(voters,)``."""
    orders = permutation_at(torch.arange(math.factorial(partial.n)), partial.n)
    agreed = partial.agrees(orders[:, None].expand(-1, len(partial), -1))
    log_prob = law.log_prob(orders).double()[:, None]
    return torch.where(agreed, log_prob, -math.inf).logsumexp(0)


def generator(seed):
    return torch.Generator().manual_seed(seed)


def comparisons(orders, each, seed):
    """``each`` random pairs of every voter, as triples."""
    voters, n = orders.shape
    draws = torch.rand(voters, each, n, generator=generator(seed)).argsort(-1)[..., :2]
    rank = fr.inverse(orders)
    first, second = draws.unbind(-1)
    wins = rank.gather(1, first) < rank.gather(1, second)
    voter = torch.arange(voters)[:, None].expand(-1, each)
    triples = torch.stack([voter, torch.where(wins, first, second), torch.where(wins, second, first)], -1)
    return fr.PartialOrders.from_preferences(triples.reshape(-1, 3), n)


CENTRAL = torch.tensor([3, 1, 4, 0, 5, 2])


@pytest.mark.parametrize("kind", ["top-k", "subsets", "pairs", "ties"])
def test_known_parameters_are_recovered(kind):
    votes = fr.Mallows(CENTRAL, 0.5).sample((1500,), generator=generator(0))
    if kind == "top-k":
        partial = fr.PartialOrders.from_orders(torch.where(torch.arange(6) < 3, votes, -1))
    elif kind == "subsets":
        rows = torch.stack(
            [
                row[torch.rand(6, generator=generator(i)).argsort()[:4].sort().values]
                for i, row in enumerate(votes)
            ]
        )
        partial = fr.PartialOrders.from_orders(rows, items=6, unranked="incomparable")
    elif kind == "pairs":
        partial = comparisons(votes, 5, seed=1)
    else:
        partial = fr.PartialOrders.from_ranks(fr.inverse(votes) // 2)
    law = fr.Mallows.fit(partial, generator=generator(1))
    assert torch.equal(law.central, CENTRAL)
    assert float(law.phi) == pytest.approx(0.5, abs=0.03)
    assert law.report.converged
    assert partial.agrees(votes).all()
    # The likelihood reported, the one at the truth, and the ones beside the fit, exactly:
    exact = float(exact_log_likelihood(law, partial).sum())
    assert abs(law.report.log_likelihood - exact) < 4 * law.report.standard_error + 0.5
    assert exact >= float(exact_log_likelihood(fr.Mallows(CENTRAL, 0.5), partial).sum()) - 0.5
    for step in (-0.03, 0.03):
        near = fr.Mallows(law.central, law.phi + step)
        assert exact > float(exact_log_likelihood(near, partial).sum())


def test_complete_orders_give_the_plain_fit():
    votes = fr.Mallows(CENTRAL, 0.6).sample((300,), generator=generator(2))
    plain = fr.Mallows.fit(votes)
    law = fr.Mallows.fit(fr.PartialOrders.from_orders(votes), generator=generator(0))
    assert torch.equal(law.central, plain.central)
    assert float(law.phi) == pytest.approx(float(plain.phi), abs=1e-9)
    assert law.report.log_likelihood == pytest.approx(plain.report.log_likelihood)
    assert law.report.standard_error == pytest.approx(0, abs=1e-6)
    assert law.report.effective_sample_size == pytest.approx(1)


def test_weights_of_voters():
    votes = fr.Mallows(CENTRAL, 0.4).sample((300,), generator=generator(3))
    noise = fr.random_permutations(6, (300,), generator=generator(4))
    tops = torch.where(torch.arange(6) < 3, torch.cat([votes, noise]), -1)
    weights = torch.cat([torch.ones(300), torch.zeros(300)])
    law = fr.Mallows.fit(fr.PartialOrders.from_orders(tops), weights=weights, generator=generator(0))
    second = fr.Mallows.fit(fr.PartialOrders.from_orders(tops[:300]), generator=generator(0))
    assert float(law.phi) == pytest.approx(float(second.phi), abs=1e-12)
    assert law.report.rankings == 300


def test_the_same_seed_gives_the_same_fit():
    votes = fr.Mallows(CENTRAL, 0.5).sample((200,), generator=generator(5))
    partial = comparisons(votes, 4, seed=2)
    first, second = (fr.Mallows.fit(partial, generator=generator(7)) for _ in range(2))
    assert float(first.phi) == float(second.phi)
    assert first.report == second.report


@pytest.mark.parametrize("kind", ["top-k", "pairs"])
def test_a_mixture_is_recovered(kind):
    truth = fr.Mixture([0.35, 0.65], [fr.Mallows(CENTRAL, 0.3), fr.Mallows(CENTRAL.flip(0), 0.5)])
    votes = truth.sample((1500,), generator=generator(0))
    if kind == "top-k":
        partial = fr.PartialOrders.from_orders(torch.where(torch.arange(6) < 3, votes, -1))
    else:
        partial = comparisons(votes, 8, seed=3)
    partial = partial[:1200]
    law = fr.Mixture.fit(partial, components=2, restarts=2, generator=generator(1))
    small, large = (law.components[k] for k in law.weights.argsort().tolist())
    assert float(law.weights.min()) == pytest.approx(0.35, abs=0.04)
    assert torch.equal(small.central, CENTRAL)
    assert torch.equal(large.central, CENTRAL.flip(0))
    assert float(small.phi) == pytest.approx(0.3, abs=0.04)
    assert float(large.phi) == pytest.approx(0.5, abs=0.04)
    exact = float(exact_log_likelihood(law, partial).sum())
    assert abs(law.report.log_likelihood - exact) < 4 * law.report.standard_error + 0.5
    assert exact >= float(exact_log_likelihood(truth, partial).sum()) - 1
    assert law.report.parameters == 3
    assert len(law.report.restarts) == 2


def test_voters_who_all_say_the_same():
    tops = torch.tensor([[0, 1, -1, -1]] * 20)
    law = fr.Mallows.fit(fr.PartialOrders.from_orders(tops), generator=generator(0))
    assert law.central[:2].tolist() == [0, 1]
    assert np.isfinite(law.report.log_likelihood)
    silent = fr.PartialOrders.from_preferences([(0, 0, 1)], 3, voters=5)
    assert np.isfinite(fr.Mallows.fit(silent, generator=generator(0)).report.log_likelihood)


def test_what_is_refused():
    partial = fr.PartialOrders.from_orders(torch.tensor([[0, 1, -1]]))
    with pytest.raises(FitError, match="no option 'central'"):
        fr.Mallows.fit(partial, central=torch.arange(3))
    with pytest.raises(FitError, match="samples is a whole number"):
        fr.Mallows.fit(partial, samples=0)
    with pytest.raises(FitError, match="family 'mallows', not 'rim'"):
        fr.Mixture.fit(partial, components=2, family="rim")
    with pytest.raises(FitError, match="at least one voter"):
        fr.Mallows.fit(fr.PartialOrders(torch.zeros(0, 3, 3, dtype=torch.bool)))


def test_padded_orders_are_partial_orders():
    votes = fr.Mallows(CENTRAL, 0.5).sample((100,), generator=generator(6))
    tops = torch.where(torch.arange(6) < 3, votes, -1)
    padded = fr.Mallows.fit(tops, unranked="below", generator=generator(0))
    partial = fr.Mallows.fit(fr.PartialOrders.from_orders(tops), generator=generator(0))
    assert padded.report == partial.report
    with pytest.raises(FitError, match="PartialOrders has no option 'unranked'"):
        fr.Mallows.fit(fr.PartialOrders.from_orders(tops), unranked="below")
