import itertools

import numpy as np
import pytest
import torch

import factorank as fr
from factorank.distributions.fitting.consensus import (
    disagreement,
    insertion_changes,
    kemeny,
    move,
    pairwise_counts,
)
from factorank.distributions.fitting.graphs import closure, groups, strongly_connected


@pytest.mark.parametrize("n", [1, 2, 3, 4, 5, 6])
def test_consensus_equals_brute_force(n):
    g = torch.Generator().manual_seed(n)
    for votes in (1, 2, 3, 7, 30):  # few votes make ties and cycles
        orders = fr.random_permutations(n, (votes,), generator=g)
        weights = torch.rand(votes, generator=g, dtype=torch.float64) if votes == 7 else None
        consensus = fr.consensus(orders, weights)
        assert consensus.exact
        w = torch.ones(votes, dtype=torch.float64) if weights is None else weights
        mine = (w * fr.kendall(consensus.order, orders)).sum() / w.sum()
        assert consensus.distance == pytest.approx(float(mine), abs=1e-12)
        every = torch.tensor(list(itertools.permutations(range(n))))
        best = float(((w * fr.kendall(every[:, None], orders)).sum(-1) / w.sum()).min())
        assert consensus.distance == pytest.approx(best, abs=1e-12)


def test_counts_are_of_those_who_put_a_above_b():
    counts = pairwise_counts(np.array([[2, 0, 1], [0, 1, 2]]), np.array([3.0, 0.5]))
    assert counts.tolist() == [[0, 3.5, 0.5], [0, 0, 0.5], [3, 3, 0]]
    placed = pairwise_counts(np.array([[2, 0, 1]]), np.array([2.0]), np.array([5.0, 1.0, 7.0]))
    assert placed.tolist() == [[0, 2, 0], [0, 0, 0], [10, 10, 0]]


def test_many_items_are_exact_where_the_majority_has_no_large_cycle():
    votes = fr.Mallows(torch.arange(60).flip(0), 0.8).sample(
        (400,), generator=torch.Generator().manual_seed(0)
    )
    consensus = fr.consensus(votes)
    counts = pairwise_counts(votes.numpy(), np.ones(400))
    bound = np.minimum(counts, counts.T).sum() / 2  # every pair loses at least its minority
    assert consensus.exact
    assert consensus.distance * 400 >= bound
    assert disagreement(counts, consensus.order.numpy()) == pytest.approx(consensus.distance * 400)


def test_local_search_ends_where_no_move_helps_and_is_not_called_exact():
    votes = fr.random_permutations(30, (9,), generator=torch.Generator().manual_seed(3))
    consensus = fr.consensus(votes)
    assert not consensus.exact
    order, counts = consensus.order.numpy(), pairwise_counts(votes.numpy(), np.ones(9))
    cost = disagreement(counts, order)
    for i in range(30):
        for k in range(30):
            assert disagreement(counts, move(order, i, k)) >= cost
    borda = np.argsort(-counts.sum(1), kind="stable")
    assert cost <= disagreement(counts, borda)
    # A better order, given as a start, is kept.
    other, _ = kemeny(counts, start=order)
    assert disagreement(counts, other) <= cost


def test_exact_search_on_one_large_cycle_equals_local_search_at_best():
    votes = fr.random_permutations(13, (7,), generator=torch.Generator().manual_seed(5))
    consensus = fr.consensus(votes)
    assert consensus.exact
    counts = pairwise_counts(votes.numpy(), np.ones(7))
    cost = disagreement(counts, consensus.order.numpy())
    for seed in range(20):
        order = np.random.default_rng(seed).permutation(13)
        assert cost <= disagreement(counts, order)
    assert insertion_changes((counts - counts.T)[np.ix_(consensus.order, consensus.order)]).min() >= -1e-9


def test_changes_of_all_moves():
    counts = np.random.default_rng(0).random((7, 7))
    order = np.random.default_rng(1).permutation(7)
    changes = insertion_changes((counts - counts.T)[np.ix_(order, order)])
    for i in range(7):
        for k in range(7):
            expected = disagreement(counts, move(order, i, k)) - disagreement(counts, order)
            assert changes[i, k] == pytest.approx(expected, abs=1e-12)


def test_groups_and_closure():
    for seed in range(30):
        rng = np.random.default_rng(seed)
        edges = rng.random((7, 7)) < 0.15
        reach, power = closure(edges), edges.copy()
        for _ in range(7):
            power = power | (power @ edges)
        assert (reach == power).all()
        parts = groups(edges)
        assert sorted(np.concatenate(parts).tolist()) == list(range(7))
        for a, group in enumerate(parts):
            whole = reach | np.eye(7, dtype=bool)
            assert whole[np.ix_(group, group)].all()
            for later in parts[a + 1 :]:
                assert not reach[np.ix_(later, group)].any()
        assert strongly_connected(edges) == (len(parts) == 1)


@pytest.mark.parametrize("n", [1, 2, 5, 8])
def test_least_disagreements_are_those_of_the_consensus(n):
    from factorank.distributions.fitting.consensus import disagreement, kemeny, least_disagreements

    counts = np.random.default_rng(n).random((6, n, n))
    expected = [disagreement(each - np.diag(np.diag(each)), kemeny(each)[0]) for each in counts]
    counts[:, range(n), range(n)] = 0
    np.testing.assert_allclose(least_disagreements(counts), expected)
