import pytest
import torch
from scipy.stats import chisquare

import factorank as fr
from factorank.errors import DistributionError
from tests.distributions.draws import all_orders


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
