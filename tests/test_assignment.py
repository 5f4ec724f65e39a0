"""The best assignment against scipy, in threads and on a GPU."""

import numpy
import pytest
import scipy.optimize
import torch

import factorank as fr
from factorank.assignment import best_assignment
from factorank.errors import ModelError


def value(scores, order):
    return scores.gather(-1, order[..., None]).squeeze(-1).sum(-1)


@pytest.mark.parametrize("n", [0, 1, 3, 9, 40])
@pytest.mark.parametrize("kind", ["normal", "ties", "wide", "sure"])
def test_assignment_against_scipy(n, kind, generator):
    scores = torch.randn(2, 30, n, n, generator=generator)
    sure = scores + 4 * torch.eye(n)[fr.random_permutations(n, (2, 30), generator=generator)]
    if n > 3:  # some matrices with a best item for each place, and some without
        assert 0 < fr.is_permutation(sure.argmax(-1)).sum() < 60
    scores = {"normal": scores, "ties": scores.round(), "wide": (3 * scores).exp(), "sure": sure}[kind]
    best = best_assignment(scores)
    assert best.shape == (2, 30, n)
    assert fr.is_permutation(best).all()
    oracle = [
        scipy.optimize.linear_sum_assignment(m, True)[1] for m in scores.view(60, n, n).double().numpy()
    ]
    oracle = torch.from_numpy(numpy.array(oracle)).view(best.shape)
    torch.testing.assert_close(value(scores.double(), best), value(scores.double(), oracle))


def test_assignment_in_threads(generator, monkeypatch):
    scores = torch.randn(301, 20, 20, generator=generator)  # threads get unequal shares
    monkeypatch.setattr(torch, "get_num_threads", lambda: 1)
    alone = best_assignment(scores)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 3)
    assert best_assignment(scores).equal(alone)


@pytest.mark.gpu
def test_assignment_on_a_gpu(generator):
    scores = torch.randn(200, 9, 9, generator=generator)
    scores[:150] += 6 * torch.eye(9)[fr.random_permutations(9, (150,), generator=generator)]
    best = best_assignment(scores.cuda())
    assert best.is_cuda
    assert best.cpu().equal(best_assignment(scores))


def test_assignment_refuses():
    for bad in (torch.nan, torch.inf, -torch.inf):
        with pytest.raises(ModelError, match="finite"):
            best_assignment(torch.tensor([[bad]]))
    with pytest.raises(ModelError, match="too large"):
        best_assignment((torch.rand(1, 4, 4, dtype=torch.float64) * 2 - 1) * 1.79e308)
    with pytest.raises(ModelError, match=r"float32 \(2, 3\)"):
        best_assignment(torch.zeros(2, 3))
    with pytest.raises(ModelError, match=r"float32 \(2,\)"):
        best_assignment(torch.zeros(2))
    with pytest.raises(ModelError, match=r"int64 \(2, 2\)"):
        best_assignment(torch.zeros(2, 2, dtype=torch.int64))
