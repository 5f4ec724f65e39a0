"""AMP proposals and their weights against exact conditioning."""

import math

import pytest
import torch

import factorank as fr
from factorank.distributions.conditioning.approximate import AMPConditioned
from factorank.distributions.conditioning.conditioned import Conditioned
from tests.distributions.law_cases import CASES

approximated = pytest.mark.parametrize(
    "case",
    [case for name, case in CASES.items() if name not in ("uniform", "plackett-luce", "random-grades")],
    ids=lambda c: c.name,
)


@approximated
@pytest.mark.parametrize("observed", [(3, 1), (4, 0, 2), (2, 3, 1, 0)])
def test_amp_weights_estimate_the_exact_law(case, observed):
    law = case.law(5, (2,))
    exact, guess = law.condition(observed), AMPConditioned(law, torch.tensor(observed))
    g = torch.Generator().manual_seed(2)
    drawn = guess.importance(8_000, generator=g)
    assert exact.agrees(drawn.orders).all()
    size = drawn.effective_sample_size
    assert ((size >= 1) & (size <= 8_000)).all()
    error = drawn.log_weights.exp().std(0) / drawn.log_weights.exp().mean(0) / math.sqrt(8_000)
    assert ((drawn.log_evidence - exact.log_evidence).abs() < 4 * error + 1e-9).all()
    torch.testing.assert_close(drawn.log_evidence_error, error, rtol=1e-3, atol=1e-6)
    draws = guess.sample((8_000,), generator=g)
    assert exact.agrees(draws).all()
    shares = fr.inverse(draws).double().mean(0)
    torch.testing.assert_close(shares, exact.mean_ranks(), atol=0.1, rtol=0)


def test_amp_never_calls_itself_exact():
    law = fr.Mallows(torch.arange(40), 0.9).condition([0, 39, 10, 30, 20], max_states=100)
    assert isinstance(law, AMPConditioned)
    assert isinstance(law, Conditioned)
    assert not law.exact
    order = torch.tensor([0, 39, 10, 30, *(i for i in range(40) if i not in (0, 39, 10, 30))])
    with pytest.raises(fr.DistributionError, match="log_prob_estimate"):
        law.log_prob(order)
    g = torch.Generator().manual_seed(0)
    exact = fr.Mallows(torch.arange(40), 0.9).condition([0, 39, 10, 30, 20])
    assert exact.exact
    estimate = law.log_prob_estimate(order, proposals=5000, generator=g)
    assert float(estimate) == pytest.approx(float(exact.log_prob(order)), abs=0.2)
    assert law.log_prob_estimate(torch.arange(40)) == -math.inf
    assert law.sample((2, 3)).shape == (2, 3, 40)
    assert law.expand((2,)).sample((3,)).shape == (3, 2, 40)
    assert law.sample((0,)).shape == (0, 40)
    with pytest.raises(fr.DistributionError, match="at least 1 proposal"):
        law.importance(0)
    with pytest.raises(fr.DistributionError, match="not known exactly"):
        _ = law.log_evidence
