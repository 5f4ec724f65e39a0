"""Thurstone's law against scipy's normal integrals, draws and known symmetries."""

import itertools
import math

import pytest
import torch
from scipy.stats import chisquare, multivariate_normal

import factorank as fr
from factorank.distributions.thurstone import Thurstone
from factorank.errors import DistributionError


def random_law(n, seed=0):
    generator = torch.Generator().manual_seed(seed)
    root = torch.randn(n, n, generator=generator, dtype=torch.float64)
    return Thurstone(torch.randn(n, generator=generator, dtype=torch.float64), root @ root.T)


def test_probabilities_are_scipys():
    law = random_law(4)
    orders = torch.tensor(list(itertools.permutations(range(4))))
    probs = law.log_prob(orders).exp()
    assert probs.sum().item() == pytest.approx(1, abs=1e-4)
    for order, probability in zip(orders[::5].tolist(), probs[::5].tolist(), strict=True):
        loc, spread = law.loc[order], law.covariance[order][:, order]
        lead = (loc[1:] - loc[:-1]).numpy()
        part = spread[1:] - spread[:-1]
        part = (part[:, 1:] - part[:, :-1]).numpy()
        assert probability == pytest.approx(multivariate_normal(lead, part).cdf([0.0] * 3), abs=2e-4)


@pytest.mark.parametrize("n", [2, 5, 8])
def test_equal_scores_are_uniform(n):
    law = Thurstone(torch.zeros(n, dtype=torch.float64), torch.eye(n, dtype=torch.float64))
    assert law.log_prob(torch.arange(n)).item() == pytest.approx(-math.lgamma(n + 1), abs=0.01)


def test_draws_agree_with_probabilities_and_estimates():
    law = random_law(3, seed=1)
    orders = torch.tensor(list(itertools.permutations(range(3))))
    probs = law.log_prob(orders).exp()
    draws = law.sample((20_000,), generator=torch.Generator().manual_seed(0))
    counts = torch.bincount(fr.index_of(draws), minlength=6).double()
    assert chisquare(counts, probs / probs.sum() * 20_000).pvalue > 1e-3
    stands = torch.nn.functional.one_hot(fr.inverse(orders), 3).double()
    marginals = torch.einsum("k,kij->ij", probs, stands)
    torch.testing.assert_close(law.marginals().double(), marginals, atol=0.01, rtol=0)
    torch.testing.assert_close(law.marginals(), law.marginals())  # the seed is fixed
    torch.testing.assert_close(law.mean_ranks(), marginals @ torch.arange(3.0).double(), atol=1e-3, rtol=0)
    before = draws.argsort(-1)
    share = (before[:, :, None] < before[:, None, :]).double().mean(0)
    torch.testing.assert_close(law.above(), share + 0.5 * torch.eye(3), atol=0.02, rtol=0)


def test_it_is_a_law_like_the_others():
    law = random_law(5)
    assert isinstance(law, fr.PermutationDistribution)
    assert fr.is_permutation(law.mode)
    wide = law.expand((2,))
    assert wide.sample((3,)).shape == (3, 2, 5)
    assert wide.log_prob(torch.arange(5)).shape == (2,)
    conditioned = law.condition([4, 0])
    places = fr.inverse(conditioned.sample((200,), generator=torch.Generator().manual_seed(0)))
    assert (places[:, 4] < places[:, 0]).all()
    loc = law.loc.clone().requires_grad_()
    Thurstone(loc, law.covariance).log_prob(torch.arange(5)).backward()
    assert loc.grad[0] > 0 > loc.grad[-1]  # the first would be higher, the last lower


def test_bad_covariances_are_refused():
    for covariance in ([[1.0, 0.5], [0.0, 1.0]], [[1.0, 2.0], [2.0, 1.0]], [[float("nan"), 0], [0, 1]]):
        with pytest.raises(DistributionError):
            Thurstone([0.0, 1.0], covariance)
    with pytest.raises(DistributionError, match="not shapes"):
        Thurstone([0.0, 1.0], torch.eye(3))
