"""The orders that agree with a partial order, counted, against a list of all orders."""

import math

import numpy as np
import pytest
import torch

import factorank as fr
from factorank.distributions.fitting import linear_extensions, partial_chains
from factorank.distributions.fitting.linear_extensions import log_share


@pytest.mark.parametrize("seed", range(20))
def test_shares_by_listing_all_orders(seed):
    n = 6
    order = fr.random_permutations(n, generator=torch.Generator().manual_seed(seed))
    edges = torch.rand(n, n, generator=torch.Generator().manual_seed(seed)) < 0.25
    edges &= fr.inverse(order)[:, None] < fr.inverse(order)
    partial = fr.PartialOrders(edges[None])
    orders = fr.permutation_at(torch.arange(math.factorial(n)), n)
    agrees = partial.agrees(orders[:, None]).double().mean()
    assert math.exp(log_share(partial.above[0].numpy())) == pytest.approx(float(agrees), rel=1e-12)


def test_large_parts_are_estimated(monkeypatch):
    above = fr.PartialOrders.from_preferences([(0, 0, 1), (0, 2, 3), (0, 1, 4), (1, 1, 2)], 6).above
    exact = partial_chains._uniform_log_shares(above)
    np.testing.assert_allclose(np.exp(exact), [1 / 12, 1 / 2])
    monkeypatch.setattr(linear_extensions, "LARGEST_PART", 2)
    assert log_share(above[0].numpy()) is None
    np.testing.assert_allclose(partial_chains._uniform_log_shares(above), exact, atol=0.1)
