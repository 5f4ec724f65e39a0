"""Mallows and its mixtures from partial rankings, against the exact likelihood from a list of all orders."""

import math

import numpy as np
import pytest
import torch

import factorank as fr
from factorank.distributions import FitError
from factorank.distributions.fitting.weak_mallows import phi_error
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
    assert law.report.log_likelihood == pytest.approx(exact, rel=1e-9)
    assert law.report.standard_error is None
    values = []
    step = 1e-3
    for phi in (law.phi - step, law.phi + step):
        values.append(float(exact_log_likelihood(fr.Mallows(law.central, phi), partial).sum()))
        assert exact > values[-1]
    # The maximum to more digits, and the standard error, by a parabola through the three.
    curvature = (2 * exact - sum(values)) / step**2
    assert abs(values[1] - values[0]) / (2 * step) / curvature < 1e-4
    assert law.report.errors[0] == pytest.approx(1 / math.sqrt(curvature), rel=0.02)
    for place in range(5):  # no neighbour of the centre is better
        swapped = law.central.clone()
        swapped[[place, place + 1]] = swapped[[place + 1, place]]
        assert float(exact_log_likelihood(fr.Mallows(swapped, law.phi), partial).sum()) < exact


def test_complete_orders_give_the_plain_fit():
    votes = fr.Mallows(CENTRAL, 0.6).sample((300,), generator=generator(2))
    plain = fr.Mallows.fit(votes)
    law = fr.Mallows.fit(fr.PartialOrders.from_orders(votes), generator=generator(0))
    assert torch.equal(law.central, plain.central)
    assert float(law.phi) == pytest.approx(float(plain.phi), abs=1e-9)
    assert law.report.log_likelihood == pytest.approx(plain.report.log_likelihood)
    assert law.report.standard_error is None


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
    if kind == "top-k":
        assert law.report.log_likelihood == pytest.approx(exact, rel=1e-9)
    assert abs(law.report.log_likelihood - exact) < 4 * (law.report.standard_error or 0) + 0.5
    assert exact >= float(exact_log_likelihood(truth, partial).sum()) - 1
    assert law.report.parameters == 3
    assert len(law.report.restarts) >= 2


def test_voters_who_all_say_the_same():
    tops = torch.tensor([[0, 1, -1, -1]] * 20)
    law = fr.Mallows.fit(fr.PartialOrders.from_orders(tops), generator=generator(0))
    assert law.central[:2].tolist() == [0, 1]
    assert np.isfinite(law.report.log_likelihood)
    silent = fr.PartialOrders.from_preferences([(0, 0, 1)], 3, voters=5)
    assert np.isfinite(fr.Mallows.fit(silent, generator=generator(0)).report.log_likelihood)


def test_a_centre_that_is_given_is_kept():
    votes = fr.Mallows(CENTRAL, 0.5).sample((300,), generator=generator(5))
    partial = comparisons(votes, 4, seed=2)
    other = CENTRAL.roll(1)
    law = fr.Mallows.fit(partial, central=other, generator=generator(0))
    assert torch.equal(law.central, other)
    exact = float(exact_log_likelihood(law, partial).sum())
    for step in (-0.02, 0.02):
        assert float(exact_log_likelihood(fr.Mallows(law.central, law.phi + step), partial).sum()) < exact


def test_what_is_refused():
    partial = fr.PartialOrders.from_orders(torch.tensor([[0, 1, -1, -1]]))
    with pytest.raises(FitError, match="samples is a whole number"):
        fr.Mallows.fit(partial, samples=0)
    with pytest.raises(FitError, match="place_weights are for complete rankings"):
        fr.Mallows.fit(partial, place_weights=torch.ones(4))
    with pytest.raises(FitError, match="at least one voter"):
        fr.Mallows.fit(fr.PartialOrders(torch.zeros(0, 3, 3, dtype=torch.bool)))


def test_padded_orders_are_partial_orders():
    votes = fr.Mallows(CENTRAL, 0.5).sample((100,), generator=generator(6))
    tops = torch.where(torch.arange(6) < 3, votes, -1)
    padded = fr.Mallows.fit(tops, unranked="below", generator=generator(0))
    partial = fr.Mallows.fit(fr.PartialOrders.from_orders(tops), generator=generator(0))
    assert padded.report == partial.report
    with pytest.raises(FitError, match="partial orders say themselves how items compare"):
        fr.Mallows.fit(fr.PartialOrders.from_orders(tops), unranked="below")


def test_votes_with_counts_are_weighed_by_them():
    """Ballots once had 50 draws each, whatever their count, and φ came out wrong."""
    ranks = torch.tensor([[0, 1, 2, -1, -1], [1, 0, -1, -1, -1], [-1, -1, 0, 1, 2], [0, -1, -1, -1, -1]])
    counts = torch.tensor([5000, 700, 40, 3000])
    votes = fr.votes.Rankings(list("abcde"), ranks, counts)
    law = fr.Mallows.fit(votes, unranked="below")
    partial = fr.PartialOrders.from_ranks(ranks, unranked="below")
    every = [
        (float(exact_log_likelihood(fr.Mallows(law.central, phi), partial) @ counts.double()), phi)
        for phi in torch.linspace(0.02, 0.98, 97)
    ]
    best, phi = max(every)
    assert law.report.log_likelihood >= best
    assert float(law.phi) == pytest.approx(float(phi), abs=0.01)
    assert law.report.items == tuple("abcde")


@pytest.mark.parametrize("kind", ["chains", "pairs"])
def test_the_sampler_agrees_with_the_sums(kind, monkeypatch):
    """Without the exact sums: φ, its error and the integrated likelihood, each within the error reported."""
    from factorank.distributions.fitting import partial_likelihood

    votes = fr.Mallows(CENTRAL, 0.6).sample((400,), generator=generator(8))
    chosen = torch.rand(400, 6, generator=generator(9)).argsort(1) < 3
    rows = votes[chosen].view(400, 3) if kind == "chains" else None
    partial = comparisons(votes, 3, 1) if rows is None else rows
    options = {"central": CENTRAL}
    options |= {} if rows is None else {"unranked": "incomparable", "items": 6}
    exact = fr.Mallows.fit(partial, generator=generator(0), **options)
    monkeypatch.setattr(partial_likelihood, "MOST_STEPS", 0)
    sampled = fr.Mallows.fit(partial, generator=generator(1), samples=60, **options)
    assert sampled.report.monte_carlo_error < 0.01
    assert abs(float(sampled.phi - exact.phi)) < 5 * sampled.report.monte_carlo_error + 1e-3
    assert sampled.report.errors[0] == pytest.approx(exact.report.errors[0], rel=0.2)
    gap = sampled.report.log_likelihood - exact.report.log_likelihood
    assert abs(gap) < 5 * sampled.report.standard_error + 0.5


def test_the_probability_of_a_pair_at_all_dispersions():
    from factorank.distributions.fitting.partial_likelihood import pair_probabilities

    for phi in (0.0, 1e-3, 0.5, 0.97, 0.999, 0.9999999, 1.0):
        law = fr.Mallows(torch.arange(6), torch.tensor(phi, dtype=torch.float64))
        rank = fr.inverse(fr.permutation_at(torch.arange(720), 6))
        probs = law.log_prob(fr.inverse(rank)).exp()
        for k in range(1, 6):
            share = float(probs[rank[:, 0] < rank[:, k]].sum())
            assert pair_probabilities(phi, 6)[k - 1] == pytest.approx(share, abs=1e-9)


def test_one_item_says_nothing_of_the_dispersion():
    assert math.isnan(phi_error(0.5, np.array([10.0])))
    assert phi_error(0.5, np.array([10.0, 10.0])) > 0
