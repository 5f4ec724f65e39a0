import itertools

import numpy as np
import pytest
import torch

import factorank as fr
from factorank.distributions.fitting.graphs import closure, groups, strongly_connected
from factorank.distributions.fitting.kemeny import disagreement, pairwise_counts


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


def test_each_rule_against_its_definition_on_lists_with_gaps():
    """Written item by item and voter by voter, from lists that leave items out."""
    for seed in range(40):
        rng = np.random.default_rng(seed)
        n, voters = int(rng.integers(2, 7)), int(rng.integers(1, 8))
        lists = [rng.permutation(n)[: rng.integers(1, n + 1)].tolist() for _ in range(voters)]
        weights = rng.integers(1, 4, voters)
        padded = torch.tensor([each + [-1] * (n - len(each)) for each in lists])

        def wins(a, b, lists=lists, weights=weights):
            both = [(w, x) for w, x in zip(weights, lists, strict=True) if a in x and b in x]
            return sum(int(w) for w, x in both if x.index(a) < x.index(b))

        others = [[b for b in range(n) if b != a] for a in range(n)]
        borda = [sum(wins(a, b) - wins(b, a) for b in others[a]) for a in range(n)]
        beats = [[wins(a, b) > wins(b, a) for b in range(n)] for a in range(n)]
        copeland = [sum(beats[a][b] - beats[b][a] for b in others[a]) for a in range(n)]
        rrf = [
            sum(w / (61 + x.index(a)) for w, x in zip(weights, lists, strict=True) if a in x)
            for a in range(n)
        ]
        paths = {
            (a, b): max(_strengths(a, b, n, beats, wins), default=0)
            for a, b in itertools.permutations(range(n), 2)
        }
        schulze = [
            sum((paths[a, b] > paths[b, a]) - (paths[a, b] < paths[b, a]) for b in others[a])
            for a in range(n)
        ]
        expected = {"borda": borda, "copeland": copeland, "rrf": rrf, "schulze": schulze}
        for method, scores in expected.items():
            answer = fr.consensus(padded, torch.tensor(weights), method=method, unranked="incomparable")
            np.testing.assert_allclose(answer.scores, scores, rtol=1e-12, atol=1e-12)
            assert answer.order.tolist() == sorted(range(n), key=lambda a: (-answer.scores[a], a))
        answer = fr.consensus(padded, torch.tensor(weights), unranked="incomparable")
        cost = {
            order: sum(wins(b, a) for i, a in enumerate(order) for b in order[i + 1 :])
            for order in itertools.permutations(range(n))
        }
        least = min(cost.values())
        assert answer.exact
        assert cost[tuple(answer.order.tolist())] == least
        assert answer.best_orders == sum(value == least for value in cost.values())
        assert answer.lower_bound * weights.sum() == pytest.approx(least)


def _strengths(a, b, n, beats, wins):
    """The weakest win of every path from a to b."""
    between = [c for c in range(n) if c not in (a, b)]
    for size in range(n - 1):
        for middle in itertools.permutations(between, size):
            path = [a, *middle, b]
            if all(beats[x][y] for x, y in itertools.pairwise(path)):
                yield min(wins(x, y) for x, y in itertools.pairwise(path))


def test_what_no_rule_can_use_is_refused():
    votes = torch.tensor([[0, 1, 2]])
    with pytest.raises(fr.FactorankError, match="kemeny, borda, copeland, schulze, rrf, not 'plurality'"):
        fr.consensus(votes, method="plurality")
    with pytest.raises(fr.FactorankError, match="effort is a finite number of 0 or more, not -1"):
        fr.consensus(votes, effort=-1)
    with pytest.raises(fr.FactorankError, match="resamples is 0 or more, not -5"):
        fr.consensus(votes, resamples=-5)
    above = torch.zeros(1, 4, 4, dtype=torch.bool)
    above[0, [0, 2], [1, 3]] = True
    split = fr.PartialOrders(above)
    assert fr.consensus(split).exact
    with pytest.raises(fr.FactorankError, match="needs the places of items"):
        fr.consensus(split, method="rrf")


@pytest.mark.parametrize("method", ["kemeny", "borda", "copeland", "schulze", "rrf"])
def test_support_is_the_share_of_resamples(method):
    """With two voters who disagree a resample holds both, or one of them twice: all can be listed."""
    votes = torch.tensor([[0, 1, 2], [1, 0, 2]])
    answer = fr.consensus(votes, method=method, resamples=2000, generator=torch.Generator().manual_seed(1))
    support = answer.support
    expected = np.mean(
        [
            np.argsort(fr.consensus(votes[list(drawn)], method=method).order.numpy())[0]
            < np.argsort(fr.consensus(votes[list(drawn)], method=method).order.numpy())[1]
            for drawn in itertools.product(range(2), repeat=2)
        ]
    )
    assert float(support[0, 1]) == pytest.approx(expected, abs=0.04)
    assert (support + support.T + torch.eye(3) == 1).all()
    assert (support[:2, 2] == 1).all()


def test_there_is_no_support_unless_it_is_asked_for():
    assert fr.consensus(torch.tensor([[0, 1, 2], [1, 0, 2]])).support is None


def test_weights_that_are_not_whole_are_drawn_with_their_rows():
    votes, weights = torch.tensor([[0, 1], [1, 0]]), torch.tensor([0.7, 0.4])
    support = fr.consensus(votes, weights, resamples=2000, generator=torch.Generator().manual_seed(0)).support
    assert float(support[0, 1]) == pytest.approx(0.75, abs=0.04)  # all but the second voter twice


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
