"""The posterior of ratings given some of them, against the joint normal law written out."""

import pytest
import torch

from factorank.rerank.encoder import FeatureContext
from factorank.rerank.taste import Taste, inverse

MEANS = torch.tensor([1.0, 2.0, 3.0, 4.0, 2.5])
FACTORS = torch.tensor([[1.0, 0.2], [0.5, -1.0], [-0.7, 0.3], [0.1, 0.9], [-0.4, -0.4]])
LEVELS = torch.tensor([5.0, 4.0, 2.0, 1.0])
NOISE, BIAS = 0.7, 0.3


@pytest.fixture
def taste():
    made = Taste(5, 2, 4)
    made.set(MEANS, FACTORS, LEVELS, NOISE, BIAS)
    return made


def conditional(known, values, wanted):
    """Mean and variance of what is beyond mean and bias, given ratings, from the joint covariance."""
    rated = FACTORS[known] @ FACTORS[known].T + BIAS + NOISE * torch.eye(len(known))
    across = FACTORS[wanted] @ FACTORS[known].T  # of the part of the factors with the ratings
    gain = across @ torch.linalg.inv(rated)
    spread = FACTORS[wanted] @ FACTORS[wanted].T - gain @ across.T
    return gain @ (values - MEANS[known]), spread.diagonal()


def test_the_posterior_is_that_of_the_joint_normal_law(taste):
    ids = torch.tensor([[3, 0, 4, 1]])
    rated = torch.tensor([[4.5, torch.nan, 1.0, torch.nan]])
    mean, variance = conditional([3, 4], torch.tensor([4.5, 1.0]), ids[0])
    found = taste(ids, None, rated)[0]
    torch.testing.assert_close(found[:, 0] * NOISE**0.5, mean)
    torch.testing.assert_close((found[:, 1] * NOISE**0.5).square(), variance)


def test_an_order_stands_for_ratings_at_its_places(taste):
    ids = torch.tensor([[3, 0, 4, 1], [3, 0, 4, 1]])
    by_order = taste(ids, torch.tensor([2, 0]), None)
    rated = torch.tensor([[4.5, 1.5, torch.nan, torch.nan]])  # halfway in the upper and the lower half
    torch.testing.assert_close(by_order[:1], taste(ids[:1], None, rated))
    assert by_order[1, :, 0].eq(0).all()
    torch.testing.assert_close(by_order[1, :, 1] * NOISE**0.5, FACTORS[ids[1]].norm(dim=-1))
    told = torch.tensor([[torch.nan, 5.0, torch.nan, torch.nan]])  # a rating is better than a place
    mean, _ = conditional([3, 0], torch.tensor([4.5, 5.0]), ids[0])
    torch.testing.assert_close(taste(ids[:1], torch.tensor([2]), told)[0, :, 0] * NOISE**0.5, mean)


def test_unknown_items_and_the_end_of_a_list_say_nothing(taste):
    found = taste(torch.tensor([[3, 5, 0, -1]]), None, torch.tensor([[5.0, 4.0, torch.nan, torch.nan]]))
    assert found[0, [1, 3], 0].eq(0).all()
    assert float(found[0, 1, 1]) == pytest.approx(float(FACTORS.norm(dim=-1).mean()) / NOISE**0.5)
    alone = taste(torch.tensor([[3, 0]]), None, torch.tensor([[5.0, torch.nan]]))
    assert (found[0, 2] - alone[0, 1]).abs().max() > 0  # an unknown item says something of the bias


@pytest.mark.parametrize("size", [1, 2, 17])
def test_inverse(size):
    torch.manual_seed(0)
    half = torch.randn(3, 4, size, size, dtype=torch.float64)
    matrices = half @ half.mT + torch.eye(size)
    torch.testing.assert_close(inverse(matrices), torch.linalg.inv(matrices))


def test_a_context_says_it_in_its_tokens(taste):
    context = FeatureContext(5, 8, ranks=True, ratings=True, taste=(2, 4)).eval()
    context.taste.load_state_dict(taste.state_dict())
    torch.nn.init.normal_(context.expected.weight)
    state = {name: value.clone() for name, value in context.state_dict().items()}
    ids, rated = torch.tensor([[3, 0, 4]]), torch.tensor([[4.5, torch.nan, torch.nan]])
    tokens = context((ids, None, torch.tensor([0]), rated))[0]
    plain = context((ids, None, torch.tensor([0]), torch.full((1, 3), torch.nan)))[0]
    change = taste(ids, None, rated) - taste(ids, None, None)
    torch.testing.assert_close((tokens - plain)[:, 1:], context.expected(change)[:, 1:])
    ordered = context((ids, None, torch.tensor([2]), None))[0] - plain
    context.expected.weight.data.zero_()
    ordered -= context((ids, None, torch.tensor([2]), None))[0] - context((ids, None, None, None))[0]
    context.load_state_dict(state)
    change = taste(ids, torch.tensor([2]), None) - taste(ids, None, None)
    torch.testing.assert_close(ordered, context.expected(change))
    again = FeatureContext(**{k: v for k, v in context.config().items() if k != "kind"})
    again.load_state_dict(context.state_dict())
    torch.testing.assert_close(again.eval()((ids, None, torch.tensor([0]), rated))[0], tokens)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_models_of_other_types(taste, dtype):
    context = FeatureContext(5, 8, ranks=True, ratings=True, taste=(2, 4)).eval()
    context.taste.load_state_dict(taste.state_dict())
    torch.nn.init.normal_(context.expected.weight)
    told = torch.tensor([[3, 0, 4]]), None, torch.tensor([0]), torch.tensor([[4.5, torch.nan, torch.nan]])
    wide = context(told)[0]
    narrow = context.to(dtype)((*told[:3], told[3].double()))[0]
    torch.testing.assert_close(narrow.float(), wide, atol=0.1, rtol=0.05)
