"""Means and factors of ratings, by expectation maximisation: the likelihood, written out, grows."""

import itertools

import pytest
import torch

import factorank as fr
from factorank.data.ratings import Ratings
from factorank.rerank import taste_fit as tastes
from factorank.rerank.taste import Taste
from factorank.rerank.taste_fit import LEVELS, likeliest, set_taste
from tests.rerank.made import SMALL


def made(users=400, items=10, seed=0):
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
    ratings, _, _ = made()
    taste = Taste(10, 2, LEVELS)
    set_taste(taste, ratings, torch.Generator().manual_seed(0))
    item, noise, bias = taste.items[:-1] + 0.1, torch.tensor(1.0), torch.tensor(0.2)
    reached = [log_likelihood(ratings, item, noise, bias)]
    for _ in range(4):
        item, noise, bias = likeliest(ratings, item, noise, bias, steps=1, anchor=0.0)
        reached.append(log_likelihood(ratings, item, noise, bias))
    assert all(after > before for before, after in itertools.pairwise(reached)), reached


def test_ratings_are_told_better_than_by_their_moments(monkeypatch):
    ratings, _, _ = made()
    fitted, moments = Taste(10, 2, LEVELS), Taste(10, 2, LEVELS)
    set_taste(fitted, ratings, torch.Generator().manual_seed(0))
    monkeypatch.setattr(tastes, "likeliest", lambda ratings, *first: first)
    set_taste(moments, ratings, torch.Generator().manual_seed(0))
    reached = [log_likelihood(ratings, one.items[:-1], *one.noise) for one in (moments, fitted)]
    assert reached[1] > reached[0] + 10


def test_the_model_that_made_the_ratings_is_found():
    ratings, means, factors = made(users=2000)
    taste = Taste(10, 2, LEVELS)
    set_taste(taste, ratings, torch.Generator().manual_seed(0))
    assert taste.levels.diff().le(0).all()  # best first
    held = likeliest(ratings, taste.items[:-1], *taste.noise, steps=1, anchor=1e9)[0]
    torch.testing.assert_close(held, taste.items[:-1], atol=1e-4, rtol=1e-4)
    first = taste.noise[0], 4 * taste.noise[1]  # the bias is found as well
    item, noise, bias = likeliest(ratings, taste.items[:-1], *first, steps=100, anchor=0.0)
    means, factors = ratings.relevance(means + 5), factors * ratings.scale
    assert (item[:, 0] - means).abs().max() < 0.1 * ratings.scale
    spread, wanted = item[:, 1:] @ item[:, 1:].T + bias, factors @ factors.T + (0.5 * ratings.scale) ** 2
    assert (spread - wanted).abs().max() < 0.15 * wanted.max()
    assert float(noise) == pytest.approx((0.6 * ratings.scale) ** 2, rel=0.05)


@pytest.mark.parametrize("objective", ["masked", "autoregressive"])
def test_a_ranker_with_taste_is_saved_and_loaded(objective, tmp_path):
    ratings, _, _ = made(users=60)
    chosen = SMALL | {"objective": objective, "features": ("mean", "taste"), "told": "ratings", "n": 6}
    ranker = fr.Ranker.fit(ratings, 0.2, setting=fr.rerank.preset("small", **chosen), device="cpu")
    assert ranker.model.context.taste.rank == 2
    ranker.save(tmp_path)
    again = fr.Ranker.load(tmp_path)
    asked = [0, 1, 2, 3], {4: 9.0, 5: 6.0}
    torch.testing.assert_close(ranker.rerank(*asked).place, again.rerank(*asked).place, rtol=0, atol=0)
