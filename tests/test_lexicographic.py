"""The lexicographic index counts all permutations in order, for any n."""

import math

import pytest
import torch

import factorank as fr
from tests.codes.test_codes import all_orders


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
    assert all(isinstance(value, int) and 0 <= value < math.factorial(n) for row in index for value in row)
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


def test_the_device_that_is_asked_for() -> None:
    for index in (torch.tensor([0, 5]), [0, 5], 5):
        assert fr.permutation_at(index, 3, device="meta").device.type == "meta"
    assert fr.permutation_at(torch.tensor([0, 5]), 21, device="meta").device.type == "meta"
