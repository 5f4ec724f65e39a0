"""Factorized laws given the order of some items: the dynamic programmes."""

import math

import pytest
import torch

import factorank as fr
from factorank.distributions.conditioning.factorized import states_needed


def test_states_are_counted():
    law = fr.Mallows(range(40), 0.9)
    observed = torch.tensor([30, 10, 20])
    # From 10 on the place of item 10 is tracked alone, from 20 on that of item 10 (30 goes before it).
    assert states_needed(law, observed, 10**9) == sum(range(11, 31))
    assert states_needed(law, observed, 5) > 5
    assert not law.condition(observed, max_states=409).exact
    assert law.condition(observed, max_states=410).exact


@pytest.mark.parametrize("weights", [None, torch.ones(30, dtype=torch.float64)])
def test_both_dynamic_programmes_agree_on_a_long_order(weights):
    """Weights of one give the plain law, which is conditioned by another recursion."""
    law = fr.Mallows(torch.arange(30), torch.tensor(0.8, dtype=torch.float64), weights)
    observed = [25, 3, 14]
    conditioned = law.condition(observed, max_states=10**6)
    other = fr.RIM(logits=fr.Mallows(torch.arange(30), law.phi)._digits("insertion")).condition(observed)
    torch.testing.assert_close(conditioned.log_evidence, other.log_evidence)
    draws = conditioned.sample((2000,), generator=torch.Generator().manual_seed(0))
    assert conditioned.agrees(draws).all()
    ranks = fr.inverse(draws).double().mean(0)
    others = fr.inverse(other.sample((2000,), generator=torch.Generator().manual_seed(1))).double().mean(0)
    torch.testing.assert_close(ranks, others, atol=0.9, rtol=0)


@pytest.mark.parametrize("law", [fr.Mallows(range(4), torch.zeros(0)), fr.RIM(logits=torch.zeros(0, 4, 4))])
def test_an_empty_batch_is_conditioned_in_closed_form(law):
    law = law.condition([2, 0])
    assert law.exact
    assert law.log_evidence.shape == law.batch_shape == (0,)
    assert law.sample((3,)).shape == (3, 0, 4)


def test_concentrated_laws_against_the_grain_do_not_underflow():
    n, phi = 60, torch.tensor(1e-4, dtype=torch.float64, requires_grad=True)
    law = fr.Mallows(torch.arange(n), phi)
    conditioned = law.condition([50, 1])
    # The cheapest way costs one inversion with each of the 50 items from 1 to 49 and between the two.
    assert float(conditioned.log_evidence.detach()) == pytest.approx(49 * math.log(1e-4), rel=0.02)
    assert conditioned.agrees(conditioned.sample((20,))).all()
    (slope,) = torch.autograd.grad(conditioned.log_evidence, phi)
    assert float(slope) == pytest.approx(49 / 1e-4, rel=1e-2)
