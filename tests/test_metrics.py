"""Metrics beside scikit-learn, brute force and simulation."""

import itertools
import math

import numpy
import pytest
import torch
from sklearn.metrics import ndcg_score

import factorank as fr
from factorank import metrics


@pytest.mark.parametrize("gain", ["exponential", "linear"])
@pytest.mark.parametrize("k", [None, 1, 3, 7, 20])
def test_ndcg_equals_scikit_learn(gain, k, generator):
    """Conventions: discount 1 / log2(place + 2) from place 0, best order as the norm. scikit-learn's gain is
    what it is given, so the exponential one is passed in; its scores here are those of the order's places."""
    orders = fr.random_permutations(7, (40,), generator=generator)
    relevance = torch.randint(0, 6, (40, 7), generator=generator).double()
    relevance[:, 0] += 1  # without any gain scikit-learn says 0 and we say 1; see below
    gains = 2**relevance - 1 if gain == "exponential" else relevance
    scores = -fr.inverse(orders)
    theirs = [ndcg_score(g[None], s[None], k=k) for g, s in zip(gains.numpy(), scores.numpy(), strict=True)]
    ours = metrics.ndcg(orders, relevance, k, gain=gain)
    assert ours.numpy() == pytest.approx(numpy.array(theirs), abs=1e-12)


def test_ndcg_of_the_best_order_and_of_no_relevance():
    relevance = torch.tensor([0.0, 3.0, 1.0])
    assert metrics.ndcg(torch.tensor([1, 2, 0]), relevance) == 1
    assert metrics.ndcg(torch.tensor([0, 1, 2]), torch.zeros(3)) == 1
    assert metrics.ndcg(torch.tensor([0, 2, 1]), relevance, k=1) == 0


def test_ndcg_broadcasts_orders_over_one_relevance(generator):
    orders = fr.random_permutations(5, (3, 4), generator=generator)
    relevance = torch.tensor([0, 4, 2, 2, 1])
    each = [metrics.ndcg(order, relevance) for order in orders.view(-1, 5)]
    assert torch.equal(metrics.ndcg(orders, relevance), torch.stack(each).view(3, 4))
    one = metrics.ndcg(torch.arange(5), torch.stack([relevance, relevance.flip(0)]))
    assert one.shape == (2,)


@pytest.mark.parametrize(
    ("order", "relevance", "options", "message"),
    [
        ([0, 0], [1.0, 1.0], {}, "ndcg takes"),
        ([0, 1], [1.0], {}, "a relevance for each of the 2 items, not 1"),
        ([0, 1], [1.0, -1.0], {}, "relevances of 0 or more"),
        ([0, 1], [1.0, math.nan], {}, "relevances of 0 or more"),
        ([0, 1], [1.0, 1.0], {"k": 0}, "k of at least 1, not 0"),
        ([0, 1], [1.0, 1.0], {"gain": "log"}, "'exponential' or 'linear', not 'log'"),
    ],
)
def test_ndcg_refuses(order, relevance, options, message):
    with pytest.raises(fr.FactorankError, match=message):
        metrics.ndcg(torch.tensor(order), torch.tensor(relevance), **options)


def naive_is_cyclic(row):
    place, steps = row[0], 1
    while place != 0:
        place, steps = row[place], steps + 1
    return steps == len(row)


def test_counts_of_sequences_equal_brute_force(generator):
    """All 256 sequences of four values, some drawn more than once."""
    every = torch.tensor(list(itertools.product(range(4), repeat=4)))
    drawn = every[torch.randint(0, 256, (300,), generator=generator)]
    rows = [tuple(row) for row in drawn.tolist()]
    valid = [row for row in rows if sorted(row) == [0, 1, 2, 3]]
    cyclic = [row for row in valid if naive_is_cyclic(row)]
    assert cyclic
    assert metrics.distinct(drawn) == {
        "unique": len(set(rows)),
        "unique_valid": len(set(valid)),
        "unique_cyclic": len(set(cyclic)),
    }
    assert metrics.cyclic_share(drawn) == pytest.approx(len(cyclic) / 300)
    known = every[::3]
    inside = {tuple(row) for row in known.tolist()}
    assert metrics.share_among(drawn, known) == pytest.approx(sum(row in inside for row in rows) / 300)


def test_counts_where_nothing_is_valid():
    bad = torch.zeros((3, 4), dtype=torch.int64)
    assert metrics.distinct(bad) == {"unique": 1, "unique_valid": 0, "unique_cyclic": 0}
    assert metrics.distinct(bad[:0]) == {"unique": 0, "unique_valid": 0, "unique_cyclic": 0}
    assert metrics.cyclic_share(bad) == 0
    assert metrics.cyclic_share(bad[:0]) == 0
    assert metrics.share_among(bad[:0], bad) == 0


def test_share_among_refuses_what_it_cannot_compare():
    with pytest.raises(fr.FactorankError, match="sequences of 20 values up to 19 are too long"):
        metrics.share_among(torch.arange(20)[None], torch.arange(20)[None])


@pytest.mark.parametrize(("samples", "size"), [(3, 4), (2, 6), (4, 3), (5, 1), (0, 4)])
def test_expected_distinct_over_all_draws(samples, size):
    """The mean over every equally likely sequence of draws, one by one."""
    draws = itertools.product(range(size), repeat=samples)
    mean = sum(len(set(one)) for one in draws) / size**samples
    assert metrics.expected_distinct(samples, size) == pytest.approx(mean, rel=1e-12)


def test_expected_distinct_against_simulation(generator):
    counts = [len(torch.randint(0, 5040, (2000,), generator=generator).unique()) for _ in range(200)]
    mean, spread = numpy.mean(counts), numpy.std(counts) / math.sqrt(len(counts))
    assert abs(metrics.expected_distinct(2000, 5040) - mean) < 4 * spread
