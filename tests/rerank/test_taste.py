"""The posterior of ratings given some of them, against the joint normal law written out; its fit by
expectation maximisation, under which the likelihood, written out, grows."""

import itertools

import pytest
import torch

import factorank as fr
from factorank.data.ratings import Ratings
from factorank.rerank import taste as taste_module
from factorank.rerank.encoder import FeatureContext
from factorank.rerank.taste import Taste, fit_taste, inverse, likeliest
from tests.rerank.small import SMALL

MEANS = torch.tensor([1.0, 2.0, 3.0, 4.0, 2.5])
FACTORS = torch.tensor([[1.0, 0.2], [0.5, -1.0], [-0.7, 0.3], [0.1, 0.9], [-0.4, -0.4]])
LEVELS = torch.tensor([5.0, 4.0, 2.0, 1.0])
NOISE, BIAS = 0.7, 0.3


@pytest.fixture
def taste():
    taste = Taste(5, 2, 4)
    taste.set(MEANS, FACTORS, LEVELS, NOISE, BIAS)
    return taste


def conditional(observed, values, wanted):
    """Mean and variance of what is beyond mean and bias, given ratings, from the joint covariance."""
    rated = FACTORS[observed] @ FACTORS[observed].T + BIAS + NOISE * torch.eye(len(observed))
    across = FACTORS[wanted] @ FACTORS[observed].T  # of the part of the factors with the ratings
    gain = across @ torch.linalg.inv(rated)
    spread = FACTORS[wanted] @ FACTORS[wanted].T - gain @ across.T
    return gain @ (values - MEANS[observed]), spread.diagonal()


def test_the_posterior_is_that_of_the_joint_normal_law(taste):
    ids = torch.tensor([[3, 0, 4, 1]])
    rated = torch.tensor([[4.5, torch.nan, 1.0, torch.nan]])
    mean, variance = conditional([3, 4], torch.tensor([4.5, 1.0]), ids[0])
    posterior = taste(ids, None, rated)[0]
    torch.testing.assert_close(posterior[:, 0] * NOISE**0.5, mean)
    torch.testing.assert_close((posterior[:, 1] * NOISE**0.5).square(), variance)


def test_an_order_stands_for_ratings_at_its_places(taste):
    ids = torch.tensor([[3, 0, 4, 1], [3, 0, 4, 1]])
    by_order = taste(ids, torch.tensor([2, 0]), None)
    rated = torch.tensor([[4.5, 1.5, torch.nan, torch.nan]])  # halfway in the upper and the lower half
    torch.testing.assert_close(by_order[:1], taste(ids[:1], None, rated))
    assert by_order[1, :, 0].eq(0).all()
    torch.testing.assert_close(by_order[1, :, 1] * NOISE**0.5, FACTORS[ids[1]].norm(dim=-1))
    rated = torch.tensor([[torch.nan, 5.0, torch.nan, torch.nan]])  # a rating is better than a place
    mean, _ = conditional([3, 0], torch.tensor([4.5, 5.0]), ids[0])
    torch.testing.assert_close(taste(ids[:1], torch.tensor([2]), rated)[0, :, 0] * NOISE**0.5, mean)


def test_new_items_and_the_end_of_a_list_say_nothing(taste):
    posterior = taste(torch.tensor([[3, 5, 0, -1]]), None, torch.tensor([[5.0, 4.0, torch.nan, torch.nan]]))
    assert posterior[0, [1, 3], 0].eq(0).all()
    assert float(posterior[0, 1, 1]) == pytest.approx(float(FACTORS.norm(dim=-1).mean()) / NOISE**0.5)
    alone = taste(torch.tensor([[3, 0]]), None, torch.tensor([[5.0, torch.nan]]))
    assert (posterior[0, 2] - alone[0, 1]).abs().max() > 0  # a new item informs about the bias


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
    listed = torch.tensor([[3, 0, 4]]), None, torch.tensor([0]), torch.tensor([[4.5, torch.nan, torch.nan]])
    wide = context(listed)[0]
    narrow = context.to(dtype)((*listed[:3], listed[3].double()))[0]
    torch.testing.assert_close(narrow.float(), wide, atol=0.1, rtol=0.05)


def drawn_ratings(users=400, items=10, seed=0):
    """Ratings of the model itself, with two factors; each user has rated six items."""
    generator = torch.Generator().manual_seed(seed)
    means = torch.linspace(2, 4, items)
    factors = torch.randn(items, 2, generator=generator) * 0.8
    rows = []
    for user in range(users):
        point, bias = torch.randn(2, generator=generator), 0.5 * torch.randn((), generator=generator)
        for item in torch.randperm(items, generator=generator)[:6].tolist():
            noise = 0.6 * torch.randn((), generator=generator)
            rows.append((user, item, float(means[item] + bias + factors[item] @ point + noise) + 5))
    return Ratings.from_rows(*map(list, zip(*rows, strict=True))), means, factors


def log_likelihood(ratings, item, noise, bias):
    total = 0.0
    relevance = ratings.relevance(ratings.values)
    for start, stop in zip(ratings.starts[:-1].tolist(), ratings.starts[1:].tolist(), strict=True):
        here = item[ratings.items[start:stop].long()]
        spread = here[:, 1:] @ here[:, 1:].T + bias + noise * torch.eye(stop - start)
        law = torch.distributions.MultivariateNormal(here[:, 0], spread)
        total += float(law.log_prob(relevance[start:stop]))
    return total


def test_every_step_makes_the_ratings_likelier():
    ratings, _, _ = drawn_ratings()
    taste = Taste(10, 2, taste_module.LEVELS)
    fit_taste(taste, ratings, torch.Generator().manual_seed(0))
    item, noise, bias = taste.items[:-1] + 0.1, torch.tensor(1.0), torch.tensor(0.2)
    reached = [log_likelihood(ratings, item, noise, bias)]
    for _ in range(4):
        item, noise, bias = likeliest(ratings, item, noise, bias, steps=1, anchor=0.0)
        reached.append(log_likelihood(ratings, item, noise, bias))
    assert all(after > before for before, after in itertools.pairwise(reached)), reached


def test_ratings_are_predicted_better_than_by_their_moments(monkeypatch):
    ratings, _, _ = drawn_ratings()
    fitted, moments = Taste(10, 2, taste_module.LEVELS), Taste(10, 2, taste_module.LEVELS)
    fit_taste(fitted, ratings, torch.Generator().manual_seed(0))
    monkeypatch.setattr(taste_module, "likeliest", lambda ratings, *first: first)
    fit_taste(moments, ratings, torch.Generator().manual_seed(0))
    reached = [log_likelihood(ratings, taste.items[:-1], *taste.noise) for taste in (moments, fitted)]
    assert reached[1] > reached[0] + 10


def test_the_model_that_drew_the_ratings_is_recovered():
    ratings, means, factors = drawn_ratings(users=2000)
    taste = Taste(10, 2, taste_module.LEVELS)
    fit_taste(taste, ratings, torch.Generator().manual_seed(0))
    assert taste.levels.diff().le(0).all()  # best first
    held = likeliest(ratings, taste.items[:-1], *taste.noise, steps=1, anchor=1e9)[0]
    torch.testing.assert_close(held, taste.items[:-1], atol=1e-4, rtol=1e-4)
    first = taste.noise[0], 4 * taste.noise[1]  # the bias is estimated as well
    item, noise, bias = likeliest(ratings, taste.items[:-1], *first, steps=100, anchor=0.0)
    means, factors = ratings.relevance(means + 5), factors * ratings.scale
    assert (item[:, 0] - means).abs().max() < 0.1 * ratings.scale
    spread, wanted = item[:, 1:] @ item[:, 1:].T + bias, factors @ factors.T + (0.5 * ratings.scale) ** 2
    assert (spread - wanted).abs().max() < 0.15 * wanted.max()
    assert float(noise) == pytest.approx((0.6 * ratings.scale) ** 2, rel=0.05)


@pytest.mark.parametrize("objective", ["masked", "autoregressive"])
def test_a_ranker_with_taste_is_saved_and_loaded(objective, tmp_path):
    ratings, _, _ = drawn_ratings(users=60)
    chosen = SMALL | {"objective": objective, "features": ("mean", "taste"), "told": "ratings", "n": 6}
    ranker = fr.Ranker.fit(ratings, 0.2, setting=fr.rerank.preset("small", **chosen), device="cpu")
    assert ranker.model.context.taste.rank == 2
    ranker.save(tmp_path)
    again = fr.Ranker.load(tmp_path)
    request = [0, 1, 2, 3], {4: 9.0, 5: 6.0}
    torch.testing.assert_close(ranker.rerank(*request).place, again.rerank(*request).place, rtol=0, atol=0)
