import itertools
import math

import pytest
import torch
from scipy.stats import chisquare

import factorank as fr
from factorank.distributions.conditioning.rules import ImpossibleObservation
from factorank.errors import DistributionError
from factorank.lexicographic import permutation_at


def all_orders(n):
    return permutation_at(torch.arange(math.factorial(n)), n)


def three(n=4):
    g = torch.Generator().manual_seed(n)
    return fr.Mixture(
        torch.tensor([0.2, 0.5, 0.3], dtype=torch.float64),
        [
            fr.Mallows(fr.random_permutations(n, generator=g), torch.tensor(0.4, dtype=torch.float64)),
            fr.PlackettLuce(torch.randn(n, generator=g, dtype=torch.float64)),
            fr.RIM(logits=torch.randn(n, n, generator=g, dtype=torch.float64)),
        ],
    )


def test_it_is_the_weighted_sum():
    law, orders = three(), all_orders(4)
    expected = sum(
        w * part.log_prob(orders).exp() for w, part in zip(law.weights, law.components, strict=True)
    )
    torch.testing.assert_close(law.log_prob(orders).exp(), expected)
    torch.testing.assert_close(law.log_prob(orders).exp().sum(), torch.ones((), dtype=torch.float64))
    share = law.responsibilities(orders)
    torch.testing.assert_close(share.sum(-1), torch.ones(24, dtype=torch.float64))
    torch.testing.assert_close(
        share[:, 1], 0.5 * law.components[1].log_prob(orders).exp() / law.log_prob(orders).exp()
    )


def test_samples_agree_with_log_prob():
    law, count = three(), 20_000
    drawn = law.sample((100, 200), generator=torch.Generator().manual_seed(0))
    assert drawn.shape == (100, 200, 4)
    counts = torch.bincount(fr.index_of(drawn.reshape(-1, 4)), minlength=24)
    assert chisquare(counts, count * law.log_prob(all_orders(4)).exp()).pvalue > 1e-3
    again = law.sample((100, 200), generator=torch.Generator().manual_seed(0))
    assert torch.equal(drawn, again)
    assert law.sample().shape == (4,)
    assert law.sample((0, 3)).shape == (0, 3, 4)


def test_moments_equal_enumeration():
    law, orders = three(), all_orders(4)
    probs = law.log_prob(orders).exp()
    stands = torch.nn.functional.one_hot(fr.inverse(orders), 4).double()
    torch.testing.assert_close(law.marginals(), torch.einsum("k,kij->ij", probs, stands))
    torch.testing.assert_close(law.mean_ranks(), (probs[:, None] * fr.inverse(orders)).sum(0))
    torch.testing.assert_close(law.entropy(), -(probs * probs.log()).sum())
    assert torch.equal(law.mode, orders[probs.argmax()])


@pytest.mark.parametrize("observed", [*itertools.permutations(range(4), 2), (3, 0, 2), (1, 0, 3, 2)])
def test_conditioning_is_restriction_and_renormalisation(observed):
    law, orders = three(), all_orders(4)
    given = law.condition(observed)
    assert given.exact
    places = fr.inverse(orders)[:, list(observed)]
    agreed = (places[:, 1:] > places[:, :-1]).all(1)
    probs = torch.where(agreed, law.log_prob(orders).exp(), 0.0)
    torch.testing.assert_close(given.log_prob(orders).exp(), probs / probs.sum())
    torch.testing.assert_close(given.log_evidence, probs.sum().log())
    assert torch.equal(given.enumerate_support(), orders[agreed])
    drawn = given.sample((500,), generator=torch.Generator().manual_seed(0))
    assert agreed[fr.index_of(drawn)].all()


def test_conditioning_drops_components_that_exclude_the_observation():
    law = fr.Mixture([0.9, 0.1], [fr.Mallows([0, 1, 2], 0.0), fr.Mallows([2, 1, 0], 0.5)])
    given = law.condition([2, 0])
    assert len(given.components) == 1
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


def test_gradients_reach_the_parameters():
    weights = torch.tensor([0.3, 0.7], dtype=torch.float64, requires_grad=True)
    logits = torch.tensor([0.1, -0.4, 0.6], dtype=torch.float64, requires_grad=True)
    phi = torch.tensor(0.4, dtype=torch.float64, requires_grad=True)
    orders = all_orders(3)

    def log_prob(weights, logits, phi):
        return fr.Mixture(weights, [fr.PlackettLuce(logits), fr.Mallows([1, 0, 2], phi)]).log_prob(orders)

    assert torch.autograd.gradcheck(log_prob, (weights, logits, phi))


def test_what_is_refused():
    with pytest.raises(DistributionError, match="at least one component"):
        fr.Mixture([], [])
    with pytest.raises(DistributionError, match="2 components take that many weights"):
        fr.Mixture([1.0], [fr.Uniform(3), fr.Uniform(3)])
    with pytest.raises(DistributionError, match="0 or more"):
        fr.Mixture([1.0, -0.1], [fr.Uniform(3), fr.Uniform(3)])
    with pytest.raises(DistributionError, match="component 1 has 4 items"):
        fr.Mixture([0.5, 0.5], [fr.Uniform(3), fr.Uniform(4)])
    with pytest.raises(DistributionError, match="no batch dimensions"):
        three().expand((2,))
