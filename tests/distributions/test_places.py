"""Place probabilities of independent code values, against the sum over all codes."""

import itertools

import pytest
import torch

import factorank as fr
from factorank.distributions.places import code_places, insertion_places, insertion_precedence
from factorank.errors import DistributionError

CODES = ["inline", "lehmer", "left-lehmer", "fisher-yates", "insertion"]


def random_tables(code, n, batch=(2,)):
    torch.manual_seed(n)
    support = fr.code(code).support_mask(n)
    return torch.randn(*batch, n, n, dtype=torch.float64).masked_fill(~support, -torch.inf).softmax(-1)


@pytest.mark.parametrize("code", CODES)
@pytest.mark.parametrize("n", [1, 2, 3, 4, 5])
def test_against_every_code(code, n):
    probs, sizes = random_tables(code, n), fr.code(code).sizes(n).tolist()
    expected = torch.zeros_like(probs)
    for values in itertools.product(*map(range, sizes)):
        order = fr.code(code).decode(torch.tensor(values))
        weight = probs[:, torch.arange(n), torch.tensor(values)].prod(-1)
        expected[:, order, torch.arange(n)] += weight[:, None]
    torch.testing.assert_close(code_places(code, probs), expected)


@pytest.mark.parametrize("code", CODES)
def test_no_items_and_gradients(code):
    assert code_places(code, torch.zeros(3, 0, 0)).shape == (3, 0, 0)
    probs = random_tables(code, 4).requires_grad_()
    with_gradient = code_places(code, probs)
    torch.testing.assert_close(with_gradient.detach(), code_places(code, probs.detach()))
    assert torch.autograd.gradcheck(lambda x: code_places(code, x), (probs,))


def test_precedence_is_that_of_the_places():
    probs = random_tables("insertion", 4, ())
    law = fr.RIM(probs)
    orders = law.enumerate_support()
    ranks, weights = fr.inverse(orders), law.log_prob(orders).exp()
    before = insertion_precedence(probs)
    for a, b in itertools.combinations(range(4), 2):
        torch.testing.assert_close(before[a, b], weights[ranks[:, a] < ranks[:, b]].sum())
    torch.testing.assert_close(insertion_places(probs), law.marginals())


def test_a_code_of_ones_own_has_no_closed_form():
    with pytest.raises(DistributionError, match="not for 'mine'; samples= gives an estimate"):
        code_places("mine", torch.zeros(2, 2))
