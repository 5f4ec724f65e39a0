"""Tests of a law against a larger one: statistics by hand, and p-values of the right size."""

import math

import pytest
import torch

import factorank as fr
from factorank.votes import FitSettings, Rankings, against_smaller, fit_family, likelihood_ratio


def generator(seed):
    return torch.Generator().manual_seed(seed)


def rankings(law, voters, seed):
    return Rankings.from_orders(law.sample((voters,), generator=generator(seed))).distinct()


def test_the_statistic_by_hand():
    votes = Rankings(["a", "b"], torch.tensor([[0, 1], [1, 0]]), torch.tensor([60, 40]))
    expected = 2 * (60 * math.log(0.6) + 40 * math.log(0.4) - 100 * math.log(0.5))
    uniform = fit_family("uniform", votes)
    assert uniform.report.log_likelihood == pytest.approx(-100 * math.log(2))
    test = likelihood_ratio(uniform, fit_family("plackett-luce", votes))
    assert test.statistic == pytest.approx(expected)
    assert (test.smaller, test.more, test.simulations) == ("uniform", 1, 0)
    # By the normal distribution, of which chi-square with one degree of freedom is the square.
    assert test.p_value == pytest.approx(math.erfc(math.sqrt(expected / 2)))


def test_p_values_have_the_right_size():
    """Where the smaller law is true they are not small more often than they should be."""
    law, ps = fr.Mallows(torch.arange(4), 0.5), []
    for seed in range(60):
        votes = rankings(law, 300, seed)
        test = against_smaller(fit_family("generalized-mallows", votes), votes)
        assert test.statistic >= -1e-9
        assert test.more == 2
        ps.append(test.p_value)
    assert sum(p < 0.1 for p in ps) <= 14  # 6 are expected


def test_mallows_against_the_uniform_law_is_simulated():
    """The best of all centres fits uniform votes far better than chi-square expects."""
    ps, by_chi_square = [], []
    for seed in range(30):
        votes = rankings(fr.Uniform(4), 30, seed)
        smaller, larger = (fit_family(name, votes) for name in ("uniform", "mallows"))
        assert likelihood_ratio(smaller, larger).p_value is None
        test = likelihood_ratio(smaller, larger, simulations=19, generator=generator(seed))
        ps.append(test.p_value)
        by_chi_square.append(math.erfc(math.sqrt(test.statistic / 2)))
    assert sum(p <= 0.2 for p in ps) <= 13  # 6 are expected
    assert sum(p <= 0.2 for p in by_chi_square) >= 15
    votes = rankings(fr.Mallows(torch.arange(4), 0.5), 50, 0)
    assert against_smaller(fit_family("mallows", votes), votes).p_value == 0.01


def test_components_of_a_mixture_are_tested_by_simulation():
    truth = fr.Mixture([0.5, 0.5], [fr.Mallows([0, 1, 2, 3], 0.2), fr.Mallows([3, 2, 1, 0], 0.2)])
    votes, settings = rankings(truth, 60, 0), FitSettings(components=2, restarts=3)
    two = fit_family("mixture", votes, settings, generator(0))
    test = against_smaller(two, votes, settings)
    assert (test.smaller, test.more, test.p_value) == ("mallows", 2, None)
    one = fit_family("mallows", votes)
    again = likelihood_ratio(one, two, simulations=4, settings=settings, generator=generator(1))
    assert again.statistic == test.statistic
    assert again.p_value == 0.2
    three = fit_family("mixture", votes, FitSettings(components=3, restarts=3), generator(0))
    more = likelihood_ratio(two, three, simulations=4, settings=settings, generator=generator(2))
    assert more.more == 2
    assert more.p_value > 0.2  # two groups made the votes


def test_what_is_not_tested():
    votes = Rankings(["a", "b", "c"], torch.tensor([[0, 1, 2], [1, 0, -1]]), torch.tensor([60, 40]))
    settings = FitSettings(unranked="below")
    assert against_smaller(fit_family("rim", votes, settings, generator(0)), votes, settings) is None
    assert against_smaller(fit_family("mallows", votes, settings), votes, settings).smaller == "uniform"
    penalised = FitSettings(unranked="below", penalty=1.0)
    assert against_smaller(fit_family("plackett-luce", votes, penalised), votes, penalised) is None
    with pytest.raises(fr.FactorankError, match="fitted to the same rankings"):
        likelihood_ratio(fr.Mallows([0, 1], 0.5), fr.Mallows([0, 1], 0.5))
    complete = Rankings(["a", "b", "c"], torch.tensor([[0, 1, 2], [1, 0, 2]]))
    with pytest.raises(fr.FactorankError, match="the larger law has 1 parameters, the other 2"):
        likelihood_ratio(fit_family("generalized-mallows", complete), fit_family("mallows", complete))
