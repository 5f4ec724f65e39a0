"""The search for Kemeny's order and its proofs, against enumeration and an integer programme."""

import itertools

import numpy as np
import pytest
import torch

import factorank as fr
from factorank.distributions.fitting.kemeny import (
    disagreement,
    kemeny,
    least_disagreements,
    move,
    number_of_best,
    pairwise_counts,
    value_of,
)
from factorank.errors import PermutationError
from factorank.kernels.ordering import search
from factorank.kernels.ordering_proofs import all_best, triangle_bound


def random_margins(rng: np.random.Generator, n: int, whole: bool = True) -> np.ndarray:
    upper = np.triu(rng.integers(-3, 4, (n, n)) if whole else rng.normal(size=(n, n)), 1)
    return (upper - upper.T).astype(float)


def random_counts(n: int, votes: int, seed: int) -> np.ndarray:
    orders = fr.random_permutations(n, (votes,), generator=torch.Generator().manual_seed(seed))
    return pairwise_counts(orders.numpy(), np.ones(votes))


@pytest.mark.parametrize("whole", [True, False])
def test_bounds_and_numbers_of_best_orders_against_all_orders(whole):
    rng = np.random.default_rng(0)
    for n in (1, 2, 3, 4, 5, 6):
        every = [np.array(order) for order in itertools.permutations(range(n))]
        for _ in range(10):
            margins = random_margins(rng, n, whole)
            values = np.array([value_of(margins, order) for order in every])
            best, tiny = values.max(), 1e-9
            for iterations in (0, 3, 60):
                bound = triangle_bound(margins, -np.inf, iterations)
                assert bound.value >= best - tiny
                order, ways = all_best(margins, bound, best, tiny, 1 << n)
                assert value_of(margins, order) == pytest.approx(best, abs=tiny)
                assert ways == (values > best - tiny).sum()
                low = float(np.sort(values)[-2:][0])  # a target that is not the best value: the best is found
                order, _ = all_best(margins, bound, low, tiny, 1 << n)
                assert value_of(margins, order) == pytest.approx(best, abs=tiny)


def test_too_many_sets_prove_nothing():
    margins = random_margins(np.random.default_rng(1), 12)
    bound = triangle_bound(margins, -np.inf, 0)
    assert all_best(margins, bound, -1e9, 0.1, 1 << 11)[1] == 0
    assert all_best(margins, bound, -1e9, 0.1, 1 << 12)[1] > 0


@pytest.mark.parametrize(("n", "votes"), [(8, 3), (14, 6), (18, 9), (22, 5)])
def test_an_integer_programme_finds_nothing_better(n, votes):
    from scipy.optimize import Bounds, LinearConstraint, milp

    counts = random_counts(n, votes, seed=n)
    pairs = {pair: k for k, pair in enumerate(itertools.combinations(range(n), 2))}
    rows = []
    for a, b, c in itertools.combinations(range(n), 3):
        row = np.zeros(len(pairs))
        row[[pairs[a, b], pairs[b, c], pairs[a, c]]] = 1, 1, -1
        rows.append(row)
    cost = np.array([counts[b, a] - counts[a, b] for a, b in pairs])
    answer = milp(
        cost,
        constraints=LinearConstraint(np.array(rows), 0, 1),
        integrality=np.ones(len(pairs)),
        bounds=Bounds(0, 1),
    )
    least = answer.fun + sum(counts[a, b] for a, b in pairs)
    ordering = kemeny(counts)
    assert ordering.exact
    assert disagreement(counts, ordering.order) == pytest.approx(least)
    assert ordering.bound == pytest.approx(least)


def test_weights_that_are_not_whole_are_exact_too():
    weights = np.random.default_rng(0).random(9)
    rows = fr.random_permutations(15, (9,), generator=torch.Generator().manual_seed(2)).numpy()
    counts = pairwise_counts(rows, weights)
    ordering = kemeny(counts)
    assert ordering.exact
    doubled = pairwise_counts(rows, np.rint(weights * 2**20))  # whole, and next to the same
    assert np.array_equal(kemeny(doubled).order, ordering.order)


def test_search_ends_where_no_move_helps():
    rng = np.random.default_rng(3)
    for n in (3, 6, 9, 30):  # the rows are added four at a time: every remainder
        margins = rng.integers(-50, 50, (n, n))
        margins = np.triu(margins, 1) - np.triu(margins, 1).T
        start = rng.permutation(n)
        order = search(margins, start, 5, 1)
        assert sorted(order) == list(range(n))
        value = value_of(margins, order)
        assert value >= value_of(margins, start)
        assert all(value_of(margins, move(order, i, k)) <= value for i in range(n) for k in range(n))
        assert np.array_equal(search(margins, start, 5, 1), order)


def test_a_group_too_large_to_prove_says_how_much_better_another_order_could_be():
    counts = random_counts(70, 40, seed=0) + 0.25 * np.random.default_rng(0).random((70, 70))
    np.fill_diagonal(counts, 0)
    ordering = kemeny(counts, effort=0.05)
    assert not ordering.exact
    cost = disagreement(counts, ordering.order)
    assert np.minimum(counts, counts.T).sum() / 2 < ordering.bound < cost  # better than each pair by itself
    longer = kemeny(counts, start=ordering.order, effort=0.1)
    assert disagreement(counts, longer.order) <= cost
    assert longer.bound <= disagreement(counts, longer.order)
    assert number_of_best(counts, ordering.order) is None
    with pytest.raises(PermutationError, match="consensus of 70 items cannot start from 3"):
        kemeny(counts, start=np.arange(3))


def test_hard_groups_of_up_to_40_items_are_proven():
    for n, votes in ((30, 9), (40, 5)):
        counts = random_counts(n, votes, seed=n)
        ordering = kemeny(counts)
        assert ordering.exact
        assert disagreement(counts, ordering.order) == ordering.bound
        assert number_of_best(counts, ordering.order) >= 1


def test_no_effort_keeps_what_is_given_or_better():
    counts = random_counts(80, 7, seed=4)
    start = np.random.default_rng(0).permutation(80)
    ordering = kemeny(counts, start, effort=0.0)
    assert disagreement(counts, ordering.order) < disagreement(counts, start)
    assert not ordering.exact


@pytest.mark.parametrize("n", [1, 2, 5, 8])
def test_least_disagreements_are_those_of_the_consensus(n):
    counts = np.random.default_rng(n).random((6, n, n))
    counts[:, range(n), range(n)] = 0
    expected = [disagreement(each, kemeny(each).order) for each in counts]
    np.testing.assert_allclose(least_disagreements(counts), expected)
