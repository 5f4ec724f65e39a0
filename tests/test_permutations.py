"""Permutations and distances against brute force, scipy and sympy."""

import itertools
import math

import pytest
import torch
from scipy import stats

import factorank as fr
from tests.codes.test_codes import INTEGERS, all_orders

DISTANCES = [fr.kendall, fr.cayley, fr.ulam, fr.hamming, fr.footrule, fr.rho]


def test_inverse_and_compose() -> None:
    for n in range(6):
        orders = all_orders(n)
        identity = torch.arange(n).expand(orders.shape)
        assert torch.equal(fr.compose(orders, fr.inverse(orders)), identity)
        assert torch.equal(fr.compose(fr.inverse(orders), orders), identity)
    one, two = torch.tensor([2, 0, 1]), torch.tensor([1, 0, 2])
    assert fr.compose(one, two).tolist() == [int(one[two[i]]) for i in range(3)]
    assert fr.compose(all_orders(3)[:, None], all_orders(3)).shape == (6, 6, 3)
    for dtype in INTEGERS:
        assert fr.inverse(one.to(dtype)).dtype == dtype
        assert fr.compose(one.to(dtype), two).dtype == dtype
    with pytest.raises(fr.PermutationError, match=r"not \(2, 3\) and \(4, 3\)"):
        fr.compose(all_orders(3)[:2], all_orders(3)[:4])
    with pytest.raises(fr.PermutationError, match="one length"):
        fr.compose(torch.arange(3), torch.arange(4))
    with pytest.raises(fr.PermutationError, match="row 1 holds 2 twice"):
        fr.inverse(torch.tensor([[0, 1, 2], [2, 2, 0]]))


def test_is_permutation() -> None:
    for n in range(5):
        rows = (
            torch.tensor(list(itertools.product(range(-1, n + 1), repeat=n))).reshape(-1, n)
            if n
            else torch.empty(1, 0).long()
        )
        expected = [sorted(row) == list(range(n)) for row in rows.tolist()]
        assert fr.is_permutation(rows).tolist() == expected
    assert fr.is_permutation(torch.tensor([[0, 255]], dtype=torch.uint8)).tolist() == [False]
    with pytest.raises(fr.PermutationError):
        fr.is_permutation(torch.tensor([0.0, 1.0]))


def test_cycles() -> None:
    combinatorics = pytest.importorskip("sympy.combinatorics")
    for n in range(7):
        orders = all_orders(n)
        counts = fr.cycle_count(orders)
        for order, count, cycles in zip(orders.tolist(), counts.tolist(), fr.cycles(orders), strict=True):
            theirs = combinatorics.Permutation(order)
            assert count == (theirs.cycles if n else 0)
            assert len(cycles) == count
            assert sorted(map(tuple, cycles)) == sorted(map(tuple, theirs.full_cyclic_form))
        assert torch.equal(fr.is_cyclic(orders), counts == 1)


@pytest.mark.parametrize(("draw", "count"), [(fr.random_permutations, 24), (fr.random_cyclic, 6)])
def test_draws_are_uniform(draw: object, count: int, generator: torch.Generator) -> None:
    orders = draw(4, (24_000,), generator=generator)  # type: ignore[operator]
    seen = fr.index_of(orders).bincount(minlength=24)
    seen = seen[seen > 0]
    assert len(seen) == count
    assert stats.chisquare(seen.numpy()).pvalue > 1e-3
    if count == 6:
        assert fr.is_cyclic(orders).all()


def test_draws() -> None:
    one = fr.random_permutations(30, (4, 5), generator=torch.Generator().manual_seed(3))
    two = fr.random_permutations(30, (4, 5), generator=torch.Generator().manual_seed(3))
    assert torch.equal(one, two)
    assert fr.is_permutation(one).all()
    assert fr.random_permutations(0, (2,)).shape == (2, 0)
    assert fr.random_permutations(5).shape == (5,)
    assert fr.random_permutations(5, (0, 3)).shape == (0, 3, 5)
    assert fr.random_permutations(5, (2,), dtype=torch.uint8).dtype == torch.uint8
    assert fr.random_cyclic(1, (2,)).tolist() == [[0], [0]]
    assert fr.is_cyclic(fr.random_cyclic(10_000)).all()
    with pytest.raises(fr.PermutationError, match="n is at least 1"):
        fr.random_cyclic(0)
    for draw in (fr.random_permutations, fr.random_cyclic):
        with pytest.raises(fr.PermutationError, match=r"such as \(3,\), not 3"):
            draw(5, 3)
        for shape in ((-1,), (2.0,), (True,), "3", None, torch.tensor(3)):
            with pytest.raises(fr.PermutationError, match="a shape is a tuple of whole numbers of 0 or more"):
                draw(5, shape)
        for n in ("5", 5.0, -1, True, None):
            with pytest.raises(fr.PermutationError, match="has a whole number of items, 0 or more, not"):
                draw(n, (3,))
    with pytest.raises(fr.PermutationError, match="not -1"):
        fr.random_permutations(-1)
    for dtype in (torch.float32, torch.bool):
        with pytest.raises(fr.PermutationError, match="cannot hold"):
            fr.random_permutations(3, dtype=dtype)
    with pytest.raises(fr.PermutationError, match=r"torch\.int8 cannot hold permutations of 200"):
        fr.random_permutations(200, dtype=torch.int8)


@pytest.mark.parametrize("n", range(8))
def test_index_counts_in_lexicographic_order(n: int) -> None:
    orders = all_orders(n)
    expected = torch.arange(math.factorial(n))
    assert torch.equal(fr.index_of(orders), expected)
    assert torch.equal(fr.permutation_at(expected, n), orders)
    assert fr.index_of(orders[-1]) == math.factorial(n) - 1
    assert torch.equal(fr.permutation_at(math.factorial(n) - 1, n), orders[-1])


@pytest.mark.parametrize("n", [19, 20, 21, 50, 1000])
def test_index_of_long_permutations(n: int, generator: torch.Generator) -> None:
    orders = fr.random_permutations(n, (2, 3), generator=generator)
    index = fr.index_of(orders)
    if n <= 20:
        assert index.dtype == torch.int64
        index = index.tolist()
    assert all(isinstance(one, int) and 0 <= one < math.factorial(n) for row in index for one in row)
    assert index[1][2] == fr.index_of(orders[1, 2])
    assert torch.equal(fr.permutation_at(index, n), orders)
    last = torch.arange(n).flip(0)
    assert fr.index_of(last) == math.factorial(n) - 1
    assert torch.equal(fr.permutation_at(math.factorial(n) - 1, n), last)


def test_bad_indices() -> None:
    for bad_n in ("3", 3.0, -3):
        with pytest.raises(fr.PermutationError, match="a whole number of items, 0 or more, not"):
            fr.permutation_at(1, bad_n)
    for bad in (-1, 6, 1.5, "1", True, None, torch.tensor([0, 6]), torch.tensor([-1]), [0, 7]):
        with pytest.raises(fr.PermutationError, match="indices 0"):
            fr.permutation_at(bad, 3)
    with pytest.raises(fr.PermutationError):
        fr.permutation_at(torch.tensor([0.5]), 3)
    assert fr.permutation_at([], 3).shape == (0, 3)


# Distances.


def brute_force(order: tuple[int, ...], other: tuple[int, ...]) -> list[int]:
    """The six distances from their definitions."""
    n = len(order)
    one, two = ({item: place for place, item in enumerate(ranking)} for ranking in (order, other))
    pairs = itertools.combinations(range(n), 2)
    kendall = sum((one[a] < one[b]) != (two[a] < two[b]) for a, b in pairs)
    swaps, work = 0, list(order)
    for place in range(n):  # selection sort into `other` swaps as often as must be
        if work[place] != other[place]:
            there = work.index(other[place])
            work[place], work[there] = work[there], work[place]
            swaps += 1
    longest = max(
        len(items)
        for size in range(n + 1)
        for items in itertools.combinations(order, size)
        if all(two[a] < two[b] for a, b in itertools.pairwise(items))
    )
    hamming = sum(a != b for a, b in zip(order, other, strict=True))
    moves = [one[item] - two[item] for item in range(n)]
    return [kendall, swaps, n - longest, hamming, sum(map(abs, moves)), sum(move**2 for move in moves)]


@pytest.mark.parametrize("n", range(6))
def test_distances_equal_their_definitions(n: int) -> None:
    orders = all_orders(n)
    others = fr.random_permutations(n, (3,), generator=torch.Generator().manual_seed(n))
    ours = torch.stack([distance(orders[:, None], others) for distance in DISTANCES], -1)
    for i, order in enumerate(orders.tolist()):
        for j, other in enumerate(others.tolist()):
            assert ours[i, j].tolist() == brute_force(tuple(order), tuple(other))


def test_distances_agree_with_scipy(generator: torch.Generator) -> None:
    n = 40
    one, two = fr.random_permutations(n, (2, 10), generator=generator)
    for a, b, kendall, rho in zip(one, two, fr.kendall(one, two), fr.rho(one, two), strict=True):
        ranks = fr.inverse(a).numpy(), fr.inverse(b).numpy()
        assert stats.kendalltau(*ranks).statistic == pytest.approx(1 - 4 * int(kendall) / (n * (n - 1)))
        assert stats.spearmanr(*ranks).statistic == pytest.approx(1 - 6 * int(rho) / (n**3 - n))


def test_distances_do_not_depend_on_the_names_of_the_items(generator: torch.Generator) -> None:
    one, two, names = fr.random_permutations(9, (3, 20), generator=generator)
    for distance in DISTANCES:
        assert torch.equal(distance(one, two), distance(fr.compose(names, one), fr.compose(names, two)))
        assert torch.equal(distance(one, two), distance(two, one))
        assert (distance(one, one) == 0).all()
        assert distance(one[:0], two[:0]).shape == (0,)
        assert distance(one[0].to(torch.uint8), two.to(torch.int32)).dtype == torch.int64
        with pytest.raises(fr.PermutationError):
            distance(one, two + 1)
        with pytest.raises(fr.PermutationError):
            distance(one[..., :0], two)


def test_long_ulam(generator: torch.Generator) -> None:
    order = fr.random_permutations(2000, (3,), generator=generator)
    from factorank.kernels.codes import reference

    piles = reference.longest_increasing(order)
    assert torch.equal(2000 - fr.ulam(order, torch.arange(2000)), piles)
    assert fr.ulam(torch.arange(2000), torch.arange(2000).flip(0)) == 1999
