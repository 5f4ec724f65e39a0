"""Baseline rankers, each against its definition written out with loops and numpy."""

import itertools

import numpy as np
import pytest
import torch
from scipy.stats import chisquare

from factorank.baselines.rankers import (
    EASE,
    RANKERS,
    BaselineRanker,
    MatrixFactorisation,
    MeanRating,
    Popularity,
    RankerError,
    RatedLists,
    UniformRIM,
    ease,
    factorisation,
    ranker,
)
from factorank.baselines.rankers.unpersonalised import mean_relevance
from factorank.data.ratings import Ratings
from factorank.metrics import ndcg
from tests.baselines.tastes import tastes

TRAIN = tastes()
VALIDATION = tastes(seed=1)
SMALL = {"n": 8, "observed": (1, 4), "k": 3}
QUICK = {
    "score-and-sort": {"steps": 5, "width": 16, "device": "cpu"},
    "lambdamart": {"trees": 5, "threads": 1},
}
SMALL_ROWS = Ratings.from_rows([1, 1, 2, 2, 3], ["a", "b", "a", "c", "a"], [5.0, 2.0, 4.0, 1.0, 3.0])


def fitted(kind: type[BaselineRanker], **settings) -> BaselineRanker:
    """A ranker with these settings and no others tried."""
    baseline = kind()
    baseline.learned = {name: (settings[name],) for name in kind.learned}
    baseline.scored = {name: (settings[name],) for name in kind.scored}
    return baseline.fit(TRAIN, VALIDATION, **SMALL)


def dense(ratings: Ratings) -> np.ndarray:
    table = np.full((len(ratings), ratings.item_count), np.nan)
    table[ratings.users.numpy(), ratings.items.numpy()] = ratings.relevance(ratings.values).numpy()
    return table


def test_popularity_counts_ratings():
    baseline = Popularity()
    baseline.fit(SMALL_ROWS, SMALL_ROWS, n=1, observed=(0,))
    assert baseline.scores(torch.tensor([[0, 1, 2], [2, 0, 0]])).tolist() == [[3, 1, 1], [1, 3, 3]]


@pytest.mark.parametrize("prior", [0.0, 2.0])
def test_mean_rating_is_drawn_to_the_mean_of_all(prior):
    baseline = MeanRating()
    baseline.learned = {"prior": (prior,)}
    baseline.fit(SMALL_ROWS, SMALL_ROWS, n=1, observed=(0,))
    expected = [(12 + 3 * prior) / (3 + prior), (2 + 3 * prior) / (1 + prior), (1 + 3 * prior) / (1 + prior)]
    assert baseline.scores(torch.tensor([[0, 1, 2]]))[0].tolist() == pytest.approx(expected)


def test_uniform_rim_draws_every_order_that_agrees_equally_often(generator):
    baseline = fitted(UniformRIM)
    items = torch.arange(4).expand(12_000, 4)
    scores = baseline.scores(items, 2, torch.tensor([[1, 0]]).expand(12_000, 2), generator=generator)
    orders = [tuple(order) for order in scores.argsort(-1, descending=True).tolist()]
    possible = [order for order in itertools.permutations(range(4)) if order.index(1) < order.index(0)]
    assert set(orders) == set(possible)
    assert chisquare([orders.count(order) for order in possible]).pvalue > 0.01


def test_means_may_be_of_gains():
    """Sure of a 3 against even odds of 5 and 1: the first is as relevant, the second has more gain."""
    users, items, values = [0, 1, 0, 1], [0, 0, 1, 1], [3.0, 3.0, 5.0, 1.0]
    ratings = Ratings.from_rows(users, items, values)
    assert mean_relevance(ratings, 0.0).tolist() == [3.0, 3.0]
    assert mean_relevance(ratings, 0.0, "gain").tolist() == [7.0, 16.0]
    assert set(MeanRating.learned["target"]) == {"relevance", "gain"}


@pytest.mark.parametrize("penalty", [0.5, 20.0])
def test_ease_is_the_constrained_least_squares(penalty):
    baseline = fitted(EASE, penalty=penalty, weight=2.0)
    table = dense(TRAIN)
    rated = ~np.isnan(table)
    values = np.where(rated, table, 0)
    means = (values.sum(0) + ease.PRIOR * table[rated].mean()) / (rated.sum(0) + ease.PRIOR)
    left = np.where(rated, values - means, 0)
    left = np.where(rated, left - left.sum(1, keepdims=True) / (rated.sum(1, keepdims=True) + ease.PRIOR), 0)
    count = table.shape[1]
    weights = np.zeros((count, count))
    for item in range(count):  # one regression an item, on all others, with the ridge as further rows
        others = np.delete(np.arange(count), item)
        design = np.concatenate([left[:, others], np.sqrt(penalty) * np.eye(count - 1)])
        wanted = np.concatenate([left[:, item], np.zeros(count - 1)])
        weights[others, item] = np.linalg.lstsq(design, wanted, rcond=None)[0]
    assert np.allclose(baseline.weights.numpy(), weights, atol=1e-5)
    items, relevance = torch.tensor([[3, 7, 1, 0, 11]]), torch.tensor([[4.0, 1.5]])
    observed = np.zeros(count)
    observed[[3, 7]] = relevance[0].numpy() - means[[3, 7]]
    observed[[3, 7]] -= observed.sum() / (2 + ease.PRIOR)
    expected = means + 2.0 * observed @ weights
    assert np.allclose(baseline.scores(items, 2, relevance)[0].numpy(), expected[items[0]], atol=1e-5)


@pytest.mark.parametrize("cells", [1, 30])
def test_ease_does_not_depend_on_how_many_users_are_held(cells, monkeypatch):
    weights = fitted(EASE, penalty=20.0, weight=1.0).weights
    monkeypatch.setattr(ease, "CELLS", cells)
    assert torch.allclose(fitted(EASE, penalty=20.0, weight=1.0).weights, weights, atol=1e-6)


@pytest.mark.parametrize("sparse", [False, True])
def test_each_half_round_of_als_is_a_ridge_regression(sparse, generator, monkeypatch):
    if sparse:
        monkeypatch.setattr(factorisation, "DENSE", 0)
    table = dense(TRAIN)
    shape = table.shape
    relevance = TRAIN.relevance(TRAIN.values)
    users, items = TRAIN.users, TRAIN.items.long()
    rated = factorisation._matrix(users, items, torch.ones_like(relevance), shape)
    wanted = factorisation._matrix(users, items, relevance, shape)
    assert rated.is_sparse == sparse
    other = torch.randn((shape[1], 4), generator=generator)
    regressed = factorisation.regress(rated, wanted, other, 1.7).numpy()
    for user in range(shape[0]):
        of = np.flatnonzero(~np.isnan(table[user]))
        design = np.concatenate([np.ones((len(of), 1)), other[of, 1:].numpy()], 1)
        right = np.append(table[user, of] - other[of, 0].numpy(), np.zeros(4))
        expected = np.linalg.lstsq(np.concatenate([design, np.sqrt(1.7) * np.eye(4)]), right, rcond=None)[0]
        assert np.allclose(regressed[user], expected, atol=1e-4)


def test_als_goes_down_to_a_point_where_neither_side_moves():
    baseline = fitted(MatrixFactorisation, rank=2, penalty=1.0, fold=1.0)
    relevance = TRAIN.relevance(TRAIN.values) - baseline.mean
    shape = (len(TRAIN), TRAIN.item_count)
    rated = factorisation._matrix(TRAIN.users, TRAIN.items.long(), torch.ones_like(relevance), shape)
    wanted = factorisation._matrix(TRAIN.users, TRAIN.items.long(), relevance, shape)

    def loss(user: torch.Tensor, item: torch.Tensor) -> float:
        predicted = user[:, :1] + item[:, 0] + user[:, 1:] @ item[:, 1:].T
        left = ((wanted - predicted) * rated).square().sum()
        return float(left + user.square().sum() + item.square().sum())

    item, losses = baseline.item, []
    for _ in range(3):
        user = factorisation.regress(rated, wanted, item, 1.0)
        losses.append(loss(user, item))
        item = factorisation.regress(rated.t(), wanted.t(), user, 1.0)
        losses.append(loss(user, item))
    assert all(after <= before + 1e-3 for before, after in itertools.pairwise(losses))
    assert losses[0] - losses[-1] < 0.02 * losses[0]


def test_a_user_is_folded_in_by_the_posterior_mean():
    baseline = fitted(MatrixFactorisation, rank=3, penalty=2.0, fold=1.5)
    items, relevance = (
        torch.tensor([[3, 7, 1, 0, 11], [2, 4, 5, 6, 8]]),
        torch.tensor([[4.0, 1.5], [2.0, 2.0]]),
    )
    scores = baseline.scores(items, 2, relevance)
    table = baseline.item.double().numpy()
    precision = 1.5 * baseline.user_precision.double().numpy()
    for row in range(2):
        of = items[row, :2].numpy()
        design = np.concatenate([np.ones((2, 1)), table[of, 1:]], 1)
        residual = relevance[row].numpy() - baseline.mean - table[of, 0] - design @ baseline.user_mean.numpy()
        # The mean of a Gaussian given two noisy linear measurements, by its covariance.
        spread = np.linalg.inv(precision)
        gain = spread @ design.T @ np.linalg.inv(design @ spread @ design.T + baseline.noise * np.eye(2))
        user = baseline.user_mean.numpy() + gain @ residual
        expected = table[items[row], 0] + table[items[row], 1:] @ user[1:]
        assert np.allclose(scores[row].numpy(), expected, atol=1e-3)


@pytest.mark.parametrize("kind", [EASE, MatrixFactorisation])
def test_what_reads_ratings_learns_tastes_that_the_mean_cannot_have(kind):
    baseline, mean = kind().fit(TRAIN, VALIDATION, **SMALL), MeanRating().fit(TRAIN, VALIDATION, **SMALL)
    lists = RatedLists.of(tastes(seed=2), 8, 5)
    assert lists.ndcg(baseline, 4, 3).mean() > 0.95 > 0.85 > lists.ndcg(mean, 4, 3).mean()


@pytest.mark.parametrize("name", RANKERS)
def test_lists_are_scored_one_by_one_as_together(name):
    baseline = ranker(name, **QUICK.get(name, {})).fit(TRAIN, VALIDATION, **SMALL)
    assert baseline.name == name
    lists = RatedLists.of(VALIDATION, 8, 1)
    together = baseline.scores(lists.items, 3, lists.relevance, generator=torch.Generator().manual_seed(0))
    assert together.shape == lists.items.shape
    assert together.isfinite().all()
    if name != "uniform-rim":  # random
        for row in range(0, len(lists.items), 7):
            alone = baseline.scores(lists.items[row : row + 1], 3, lists.relevance[row : row + 1, :3])
            assert torch.allclose(alone, together[row : row + 1], atol=1e-4)
    # What is not observed is not looked at.
    changed = lists.relevance.clone()
    changed[:, 3:] = 2.0
    again = baseline.scores(lists.items, 3, changed, generator=torch.Generator().manual_seed(0))
    assert torch.equal(again, together)
    assert baseline.settings == max(baseline.tried, key=lambda each: each[1])[0]


def test_judging_is_ndcg_of_the_unobserved_items():
    baseline = fitted(MeanRating, prior=1.0, target="relevance")
    lists = RatedLists.of(VALIDATION, 8, 2, seed=3)
    scores = baseline.scores(lists.items)
    expected = [
        float(ndcg(scores[i, 2:].argsort(descending=True), lists.relevance[i, 2:], 3))
        for i in range(len(scores))
    ]
    assert lists.ndcg(baseline, 2, 3).tolist() == pytest.approx(expected)


def test_what_a_ranker_cannot_do_is_said():
    with pytest.raises(RankerError, match="no ranker 'best'; there are popularity"):
        ranker("best")
    with pytest.raises(RankerError, match="not fitted"):
        EASE().scores(torch.zeros(1, 3, dtype=torch.int64))
    baseline = fitted(EASE, penalty=1.0, weight=1.0)
    items = torch.arange(4)[None]
    with pytest.raises(RankerError, match="reads the ratings of the first r = 2"):
        baseline.scores(items, 2)
    with pytest.raises(RankerError, match="observed is an order"):
        baseline.scores(items, 2, torch.tensor([[1, 0]]))
    with pytest.raises(RankerError, match=r"observed is \(batch, r\)"):
        baseline.scores(items, 2, torch.tensor([[1.0]]))
    with pytest.raises(RankerError, match="0 <= r <= n"):
        baseline.scores(items, 5)
    with pytest.raises(RankerError, match="validation users has 50 ratings"):
        EASE().fit(TRAIN, VALIDATION)
