import pytest
import torch

import factorank as fr


def truth(n=5, seed=0):
    g = torch.Generator().manual_seed(seed)
    table = torch.rand(n, n, generator=g, dtype=torch.float64).tril() + 0.1 * torch.ones(n, n).tril()
    return fr.RIM(table / table.sum(1, keepdim=True), fr.random_permutations(n, generator=g))


def test_known_parameters_are_recovered():
    law = truth()
    votes = law.sample((50_000,), generator=torch.Generator().manual_seed(1))
    fitted = fr.RIM.fit(votes, reference=law.reference)
    torch.testing.assert_close(fitted.probs, law.probs, atol=0.01, rtol=0)
    total = float(fitted.log_prob(votes).sum())
    assert fitted.report.log_likelihood == pytest.approx(total, rel=1e-12)
    assert total >= float(law.log_prob(votes).sum())
    assert fitted.report.parameters == 10


def test_it_is_the_maximum_given_the_reference():
    votes = truth().sample((40,), generator=torch.Generator().manual_seed(2))
    fitted = fr.RIM.fit(votes, reference=torch.arange(5))
    for seed in range(20):
        g = torch.Generator().manual_seed(seed)
        shaken = fitted.probs * (1 + 0.05 * torch.randn(5, 5, generator=g, dtype=torch.float64)).abs()
        other = fr.RIM(shaken / shaken.sum(1, keepdim=True), torch.arange(5))
        assert float(other.log_prob(votes).sum()) <= fitted.report.log_likelihood


def test_counts_and_smoothing_by_hand():
    votes = torch.tensor([[0, 1, 2], [2, 0, 1]])
    plain = fr.RIM.fit(votes, reference=[0, 1, 2], weights=torch.tensor([3.0, 1.0]))
    expected = torch.tensor([[1, 0, 0], [0, 1, 0], [0.25, 0, 0.75]], dtype=torch.float64)
    torch.testing.assert_close(plain.probs, expected)
    smooth = fr.RIM.fit(votes, reference=[0, 1, 2], weights=torch.tensor([3.0, 1.0]), smoothing=1.0)
    expected = torch.tensor([[1, 0, 0], [1 / 6, 5 / 6, 0], [2 / 7, 1 / 7, 4 / 7]], dtype=torch.float64)
    torch.testing.assert_close(smooth.probs, expected)
    assert smooth.report.log_likelihood == pytest.approx(
        float(smooth.log_prob(votes) @ torch.tensor([3.0, 1.0]).double())
    )
