import itertools

import numpy as np
import pytest
import torch

import factorank as fr
from factorank.distributions.fitting.dispersion import _after_moves, log_likelihood
from factorank.distributions.fitting.kemeny import move


def truth():
    phis = torch.tensor([1.0, 0.2, 0.5, 0.9, 0.3, 0.6], dtype=torch.float64)
    return fr.GeneralizedMallows(torch.tensor([3, 1, 4, 0, 5, 2]), phis)


def test_known_parameters_are_recovered():
    votes = truth().sample((30_000,), generator=torch.Generator().manual_seed(0))
    law = fr.GeneralizedMallows.fit(votes)
    assert torch.equal(law.central, truth().central)
    torch.testing.assert_close(law.phis[1:], truth().phis[1:], atol=0.02, rtol=0)
    total = float(law.log_prob(votes).sum())
    assert law.report.log_likelihood == pytest.approx(total, rel=1e-12)
    assert total >= float(truth().log_prob(votes).sum())
    assert total >= fr.Mallows.fit(votes).report.log_likelihood
    assert law.report.parameters == 5
    assert law.report.converged


@pytest.mark.parametrize("seed", range(4))
def test_no_neighbour_is_more_likely(seed):
    votes = fr.random_permutations(5, (15,), generator=torch.Generator().manual_seed(seed))
    law = fr.GeneralizedMallows.fit(votes)
    best = law.report.log_likelihood
    order = law.central.numpy()
    for i, k in itertools.product(range(5), range(5)):
        moved = fr.GeneralizedMallows.fit(votes, central=torch.from_numpy(move(order, i, k)))
        assert moved.report.log_likelihood <= best + 1e-9
    for place, step in itertools.product(range(1, 5), (-1e-3, 1e-3)):
        phis = law.phis.clone()
        phis[place] = (phis[place] + step).clamp(0, 1)
        assert float(fr.GeneralizedMallows(law.central, phis).log_prob(votes).sum()) <= best + 1e-9


def test_the_table_of_moves_is_close_to_the_truth():
    rng = np.random.default_rng(0)
    shares = rng.random((6, 6))
    shares = np.triu(shares, 1) + np.tril(1 - shares.T, -1)
    order = rng.permutation(6)
    table = _after_moves(shares, order)
    for i, k in itertools.permutations(range(6), 2):
        assert table[i, k] == pytest.approx(log_likelihood(shares, move(order, i, k)), abs=1e-4)


def test_the_ends_of_the_scale():
    law = fr.GeneralizedMallows.fit(torch.tensor([[1, 2, 0]] * 3))
    assert law.central.tolist() == [1, 2, 0]
    assert law.phis[1:].tolist() == [0, 0]
    assert law.report.log_likelihood == 0
    every = torch.tensor(list(itertools.permutations(range(3))))
    assert fr.GeneralizedMallows.fit(every).phis.tolist() == [1, 1, 1]


def test_starts_are_reported_best_first():
    votes = fr.random_permutations(20, (12,), generator=torch.Generator().manual_seed(3))
    report = fr.GeneralizedMallows.fit(votes, restarts=3, generator=torch.Generator().manual_seed(0)).report
    assert report.restarts[0] == pytest.approx(report.log_likelihood)
    assert report.restarts == tuple(sorted(report.restarts, reverse=True))
    assert report.restarts[0] > report.restarts[-1]
