"""Mixtures given the order of some items."""

import itertools

import pytest
import torch

import factorank as fr
from factorank.distributions import ImpossibleObservation
from factorank.errors import DistributionError
from tests.distributions.draws import all_orders
from tests.distributions.test_mixture import three


@pytest.mark.parametrize("observed", [*itertools.permutations(range(4), 2), (3, 0, 2), (1, 0, 3, 2)])
def test_conditioning_is_restriction_and_renormalisation(observed):
    law, orders = three(), all_orders(4)
    conditioned = law.condition(observed)
    assert conditioned.exact
    places = fr.inverse(orders)[:, list(observed)]
    agreed = (places[:, 1:] > places[:, :-1]).all(1)
    probs = torch.where(agreed, law.log_prob(orders).exp(), 0.0)
    torch.testing.assert_close(conditioned.log_prob(orders).exp(), probs / probs.sum())
    torch.testing.assert_close(conditioned.log_evidence, probs.sum().log())
    assert torch.equal(conditioned.enumerate_support(), orders[agreed])
    drawn = conditioned.sample((500,), generator=torch.Generator().manual_seed(0))
    assert agreed[fr.index_of(drawn)].all()


def test_conditioning_drops_components_that_exclude_the_observation():
    law = fr.Mixture([0.9, 0.1], [fr.Mallows([0, 1, 2], 0.0), fr.Mallows([2, 1, 0], 0.5)])
    conditioned = law.condition([2, 0])
    assert len(conditioned.components) == 1
    with pytest.raises(ImpossibleObservation, match=r"\[2, 0\] has probability zero under every component"):
        fr.Mixture([1.0], [fr.Mallows([0, 1, 2], 0.0)]).condition([2, 0])
    assert law.condition([1]) is law
    with pytest.raises(DistributionError, match="item 1 twice"):
        law.condition([1, 0, 1])


def test_an_approximated_component_makes_it_inexact():
    parts = [fr.Mallows(torch.arange(12), 0.6), fr.Mallows(torch.arange(12).flip(0), 0.7)]
    law, observed = fr.Mixture([0.5, 0.5], parts), [3, 7, 1, 9]
    rough, exact = law.condition(observed, max_states=1), law.condition(observed)
    assert exact.exact
    assert not rough.exact
    torch.testing.assert_close(rough.weights.double(), exact.weights.double(), atol=0.05, rtol=0)
    places = fr.inverse(rough.sample((50,), generator=torch.Generator().manual_seed(0)))[:, observed]
    assert (places[:, 1:] > places[:, :-1]).all()
    with pytest.raises(DistributionError, match="not known"):
        rough.log_prob(torch.arange(12))
