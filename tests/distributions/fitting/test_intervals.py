"""Intervals and standard errors of fitted parameters."""

import math

import numpy as np
import pytest
import torch

import factorank as fr
from factorank.distributions.fitting.dispersion import mallows_likelihood
from factorank.distributions.fitting.intervals import bca_interval, inversion_interval, profile_interval


def generator(seed):
    return torch.Generator().manual_seed(seed)


def test_the_profile_interval_ends_where_the_likelihood_has_fallen_by_half_a_quantile():
    digits = np.full(6, 80.0)
    low, high = profile_interval(300.0, digits)
    best = fr.Mallows.fit(fr.Mallows(torch.arange(6), 0.6).sample((80,), generator=generator(0))).report
    assert best.digits == tuple(digits)
    phis = np.linspace(0.01, 0.999, 2000)
    values = np.array([mallows_likelihood(phi, 300.0, digits) for phi in phis])
    inside = phis[values > values.max() - 1.959964**2 / 2]
    assert low == pytest.approx(inside[0], abs=1e-3)
    assert high == pytest.approx(inside[-1], abs=1e-3)
    assert profile_interval(0.0, digits)[0] == 0
    assert profile_interval(600.0, digits)[1] == 1


def test_few_voters_have_intervals_that_hold_the_truth():
    """Ten voters and six items, where a bootstrap of percentiles misses the truth in a third of the cases."""
    law, held = fr.Mallows(torch.arange(6), 0.7), 0
    for seed in range(60):
        report = fr.Mallows.fit(law.sample((10,), generator=generator(seed))).report
        low, high = report.intervals()[0]
        assert (low, high) == inversion_interval(report.disagreement, 6, 10)
        held += low <= 0.7 <= high
    assert held >= 52  # 57 are expected


def test_many_voters_have_the_interval_of_the_likelihood():
    votes = fr.Mallows(torch.arange(5), 0.6).sample((500,), generator=generator(1))
    report = fr.Mallows.fit(votes).report
    assert report.intervals()[0] == profile_interval(report.disagreement, np.array(report.digits))
    narrow, wide = report.intervals(0.5)[0], report.intervals(0.99)[0]
    assert wide[0] < narrow[0] < report.values[0] < narrow[1] < wide[1]
    low, high = report.intervals()[0]
    assert (high - low) / 3.92 == pytest.approx(report.errors[0], rel=0.05)
    with pytest.raises(fr.FactorankError, match="level lies between 0 and 1"):
        report.intervals(95)


def test_standard_errors_of_plackett_luce_by_the_inverse_of_the_hessian():
    votes = fr.PlackettLuce(torch.tensor([1.0, 0.0, -0.5, 0.2])).sample((400,), generator=generator(2))
    law = fr.PlackettLuce.fit(votes)
    hessian = torch.autograd.functional.hessian(
        lambda logits: -fr.PlackettLuce(logits).log_prob(votes).sum(), law.logits
    )
    errors = torch.linalg.pinv(hessian).diagonal().sqrt()
    assert law.report.errors == pytest.approx(errors.tolist(), rel=1e-6)
    low, high = law.report.intervals()[0]
    assert high - low == pytest.approx(2 * 1.959964 * law.report.errors[0])


@pytest.mark.parametrize("family", [fr.Mallows, fr.GeneralizedMallows, fr.RIM])
def test_standard_errors_are_the_spread_of_fits(family):
    """Over repeated votes, with the reference given: the errors reported are those that happen."""
    law = fr.Mallows(torch.arange(4), 0.5)
    name = "reference" if family is fr.RIM else "central"
    fits = [
        family.fit(law.sample((300,), generator=generator(seed)), **{name: torch.arange(4)}).report
        for seed in range(120)
    ]
    values = np.array([report.values for report in fits])
    errors = np.array([report.errors for report in fits])
    for column in range(values.shape[1]):
        if not math.isnan(values[0, column]) and errors[0, column] > 0:
            assert values[:, column].std() == pytest.approx(errors[:, column].mean(), rel=0.3)


def test_the_bca_interval_corrects_bias_and_skew():
    rng = np.random.default_rng(0)
    refits = rng.normal(1.0, 1.0, 2000)
    plain = np.quantile(refits, [0.025, 0.975])
    low, high = bca_interval(0.0, refits, [-1.0, 0.0, 1.0])  # the refits lie above the value: corrected down
    assert low < plain[0]
    assert high < plain[1]
    skewed = bca_interval(1.0, refits, [0.0, 0.0, 0.0, 10.0])
    assert skewed[0] != pytest.approx(plain[0], abs=0.01)


def test_reports_are_kept_with_their_laws(tmp_path):
    votes = fr.votes.Rankings.from_orders(torch.tensor([[0, 1, 2], [1, 0, 2], [0, 2, 1]] * 40), list("abc"))
    for law in (fr.Mallows.fit(votes), fr.PlackettLuce.fit(votes), fr.RIM.fit(votes)):
        fr.save_law(law, tmp_path / "law")
        again = fr.load_law(tmp_path / "law").report
        assert str(again) == str(law.report)
        np.testing.assert_allclose(again.intervals(), law.report.intervals())
