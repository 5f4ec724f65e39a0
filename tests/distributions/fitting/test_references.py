"""The reference orders of RIM and generalized Mallows are the best of all, or better than all neighbours."""

import itertools
import math

import numpy as np
import pytest
import torch

import factorank as fr
from factorank.distributions.fitting import references
from factorank.distributions.fitting.dispersion import log_likelihood
from factorank.distributions.fitting.kemeny import move, pairwise_counts


def votes(rows, n, seed=0):
    rng = np.random.default_rng(seed)
    orders = np.stack([rng.permutation(n) for _ in range(rows)])
    return orders, rng.random(rows) * (rng.random(rows) < 0.9)


def rim_likelihood(orders, weights, reference, smoothing=0.0):
    """By definition: insert the items into lists, count the slots."""
    counts = [[smoothing] * (i + 1) for i in range(len(reference))]
    for order, weight in zip(orders.tolist(), weights, strict=True):
        for i, item in enumerate(reference):
            above = set(order[: order.index(item)])
            counts[i][len(above & set(reference[:i]))] += weight
    return sum(c * math.log(c / sum(row)) for row in counts for c in row if c > 0)


@pytest.mark.parametrize("smoothing", [0.0, 0.7])
def test_the_reference_of_a_rim_is_the_best_of_all_orders(smoothing):
    orders, weights = votes(25, 5)
    law = fr.RIM.fit(torch.from_numpy(orders), weights=torch.from_numpy(weights), smoothing=smoothing)
    every = [rim_likelihood(orders, weights, p, smoothing) for p in itertools.permutations(range(5))]
    assert law.report.exact
    assert rim_likelihood(orders, weights, law.reference.tolist(), smoothing) == pytest.approx(max(every))
    if not smoothing:
        assert law.report.log_likelihood == pytest.approx(max(every), rel=1e-12)


def test_the_reference_of_generalized_mallows_is_the_best_of_all_orders():
    orders, weights = votes(25, 5, seed=1)
    law = fr.GeneralizedMallows.fit(torch.from_numpy(orders), torch.from_numpy(weights))
    shares = pairwise_counts(orders, weights) / weights.sum()
    every = [log_likelihood(shares, np.array(p)) for p in itertools.permutations(range(5))]
    assert law.report.exact
    assert law.report.log_likelihood == pytest.approx(weights.sum() * max(every), rel=1e-12)


def test_larger_families_fit_better():
    orders, weights = (torch.from_numpy(each) for each in votes(40, 8, seed=2))
    fits = [
        fr.Mallows.fit(orders, weights),
        fr.GeneralizedMallows.fit(orders, weights),
        fr.RIM.fit(orders, weights=weights),
    ]
    likelihoods = [law.report.log_likelihood for law in fits]
    assert likelihoods == sorted(likelihoods)
    for law in fits:
        assert law.report.log_likelihood == pytest.approx(float(law.log_prob(orders) @ weights), rel=1e-9)


def test_the_local_search_ends_where_no_move_is_better(monkeypatch):
    monkeypatch.setattr(references, "EXACT_UP_TO", 3)
    orders, weights = votes(30, 6, seed=3)
    found = references.rim_reference(orders, weights, 0.0, 3, torch.Generator().manual_seed(0))
    best = rim_likelihood(orders, weights, found.order.tolist())
    assert not found.exact
    assert max(found.values) == pytest.approx(best)
    for i, k in itertools.permutations(range(6), 2):
        assert rim_likelihood(orders, weights, move(found.order, i, k).tolist()) <= best + 1e-9


def test_the_local_search_finds_a_reference_that_is_there(monkeypatch):
    monkeypatch.setattr(references, "EXACT_UP_TO", 3)
    table = torch.rand(9, 9, generator=torch.Generator().manual_seed(0)).tril() ** 3
    law = fr.RIM(table / table.sum(1, keepdim=True), torch.tensor([4, 2, 8, 0, 1, 7, 6, 3, 5]))
    orders = law.sample((2000,), generator=torch.Generator().manual_seed(1))
    searched = fr.RIM.fit(orders, generator=torch.Generator().manual_seed(2))
    assert searched.report.restarts
    monkeypatch.setattr(references, "EXACT_UP_TO", 9)
    assert searched.report.log_likelihood == pytest.approx(fr.RIM.fit(orders).report.log_likelihood)


def test_a_sweep_never_makes_a_reference_worse():
    orders, weights = votes(30, 7, seed=4)
    order = np.arange(7)
    for _ in range(3):
        after = references.sweep_reference(orders, weights, 0.0, order, reach=2)
        before = rim_likelihood(orders, weights, order.tolist())
        assert rim_likelihood(orders, weights, after.tolist()) >= before
        order = after


def test_most_votes_order_the_first_two():
    law = fr.RIM.fit(torch.tensor([[0, 1, 2]] * 3 + [[1, 0, 2]] * 2 + [[2, 0, 1]]))
    first, second = law.reference[:2].tolist()
    assert law.probs[1, 1] >= 0.5
    assert first != second
