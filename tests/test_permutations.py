"""Permutations against their definitions and brute force."""

import itertools

import pytest
import torch
from scipy import stats

import factorank as fr
from factorank.permutations import check_dtype
from tests.codes.test_codes import INTEGERS, all_orders


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
    for wrong in ((torch.tensor([0, 0]), torch.tensor([0, 1])), (torch.tensor([0, 1]), torch.tensor([1, 1]))):
        with pytest.raises(fr.PermutationError, match="compose takes"):
            fr.compose(*wrong)


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


def test_a_dtype_holds_one_more_item_than_its_largest_number():
    check_dtype(torch.int8, 128)
    with pytest.raises(fr.PermutationError, match="cannot hold permutations of 129 items"):
        check_dtype(torch.int8, 129)
