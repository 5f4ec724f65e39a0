"""Distances against their definitions, brute force and scipy."""

import itertools

import pytest
import torch
from scipy import stats

import factorank as fr
from factorank.kernels.codes import reference
from tests.codes.test_codes import all_orders

DISTANCES = [fr.kendall, fr.cayley, fr.ulam, fr.hamming, fr.footrule, fr.rho]


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
    piles = reference.longest_increasing(order)
    assert torch.equal(2000 - fr.ulam(order, torch.arange(2000)), piles)
    assert fr.ulam(torch.arange(2000), torch.arange(2000).flip(0)) == 1999


@pytest.mark.parametrize("distance", DISTANCES)
def test_nothing_is_checked_where_the_caller_has_checked(distance) -> None:
    """On a GPU each check would wait for the device."""
    wrong, right = torch.tensor([[0, 0, 2], [1, 1, 2]]), torch.tensor([[0, 1, 2], [2, 0, 1]])
    pairs = [(wrong, right), (right, wrong)][
        : 1 if distance is fr.cayley else 2
    ]  # its cycles need an inverse
    for one, other in pairs:
        assert distance(one, other, check=False).shape == (2,)
        with pytest.raises(fr.PermutationError):
            distance(one, other)
