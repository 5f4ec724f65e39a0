"""The probability of an assigned solution among the permutations, against sums over all of them."""

import math

import pytest
import torch

import factorank as fr
from factorank.jigsaw.certainty import among_permutations
from tests.models.naive import all_orders


def scores(n, scale, seed=0):
    return (scale * torch.randn(n, n, generator=torch.Generator().manual_seed(seed))).log_softmax(-1)


@pytest.mark.parametrize("n", [1, 2, 3, 5, 7])
@pytest.mark.parametrize("scale", [0.0, 0.1, 1.0, 5.0, 30.0, 200.0])
@pytest.mark.parametrize("seed", range(5))
def test_equals_the_share_of_all_permutations(n, scale, seed):
    log_probs, orders = scores(n, scale, seed), all_orders(n)
    each = log_probs.double()[torch.arange(n), orders].sum(-1).softmax(-1)
    best = each.argmax()
    assert among_permutations(log_probs, orders[best]) == pytest.approx(float(each[best]), rel=1e-6)


def test_places_that_want_the_same_value():
    # The second place gets what is 1e-26 less likely than what it wants, and it is certain of it.
    log_probs = torch.tensor([[0.0, -90.0, -90.0], [0.0, -60.0, -90.0], [-90.0, -90.0, 0.0]])
    assert among_permutations(log_probs, torch.tensor([0, 1, 2])) == pytest.approx(1)


def test_two_doubtful_pieces_among_many_sure_ones():
    n = 100  # more than could be followed if they were doubtful
    log_probs = torch.full((n, n), -60.0).fill_diagonal_(0.0)
    log_probs[:2, :2] = torch.tensor([[0.6, 0.4], [0.7, 0.3]]).log()
    wanted = 0.4 * 0.7 / (0.4 * 0.7 + 0.6 * 0.3)
    order = torch.arange(n)
    order[:2] = torch.tensor([1, 0])
    assert among_permutations(log_probs, order) == pytest.approx(wanted)


def test_bounds_where_there_is_too_much_doubt():
    flat = torch.full((70, 70), 1 / 70).log()
    assert among_permutations(flat, torch.arange(70)) == pytest.approx(70.0**-70)
    log_probs = scores(7, 1.0)
    order = fr.baselines.best_assignment(log_probs)
    exact = among_permutations(log_probs, order)
    assert exact < among_permutations(log_probs, order, most=5) <= 1
    assert math.isfinite(among_permutations(torch.zeros(30, 30).log_softmax(-1), torch.arange(30)))
