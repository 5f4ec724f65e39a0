"""Compiled loops over battles against the same in numpy."""

import numpy as np
import pytest

from factorank.kernels.comparisons import (
    add_to_items,
    add_to_pairs,
    add_up,
    first_fault,
    largest_errors,
    pair_up,
)
from factorank.kernels.labels import number_words

RANDOM = np.random.default_rng(0)
FIRST, SECOND = np.array([0, 1, 3, 0]), np.array([2, 0, 1, 3])
VALUES = RANDOM.normal(size=(3, 4))


@pytest.mark.parametrize("distinct", [1, 3, 600, 5000])
def test_numbers_of_distinct_words(distinct):
    words = RANDOM.integers(0, distinct, 20_000) * 48 - 2**40
    codes, first = number_words(words)
    values, where, inverse = np.unique(words, return_index=True, return_inverse=True)
    assert first.tolist() == sorted(where.tolist())
    assert (words[first][codes] == words).all()
    assert len(first) == len(values)
    assert (np.argsort(np.argsort(where))[inverse] == codes).all()
    assert number_words(np.empty(0, np.int64))[0].shape == (0,)


def test_sums_over_items_and_pairs():
    incidence = np.zeros((2, 4, 4))
    incidence[:, np.arange(4), FIRST] = [[1.0], [0.5]]
    incidence[:, np.arange(4), SECOND] = [[-1.0], [0.25]]
    items, pairs = np.zeros((3, 4)), np.zeros((3, 4, 4))
    add_to_items(VALUES, FIRST, SECOND, 1.0, -1.0, items)
    np.testing.assert_allclose(items, VALUES @ incidence[0])
    add_to_pairs(VALUES, FIRST, SECOND, 1.0, -1.0, 0.5, 0.25, pairs)
    np.testing.assert_allclose(pairs, np.einsum("sr,ri,rj->sij", VALUES, incidence[0], incidence[1]))


@pytest.mark.parametrize("weights", [np.empty(0), np.array([2.0, 1.0, 0.5, 4.0])])
def test_counts_of_pairs(weights):
    table, wanted = np.zeros((4, 4, 3)), np.zeros((4, 4, 3))
    codes = np.array([0, 0, 2, 1], np.int8)
    add_up(FIRST, SECOND, codes, weights, table)
    for row, (a, b, code) in enumerate(zip(FIRST, SECOND, codes, strict=True)):
        turned = code if a < b or code == 2 else 1 - code
        wanted[min(a, b), max(a, b), turned] += weights[row] if len(weights) else 1
    np.testing.assert_array_equal(table, wanted)


def test_pairs_and_their_faults():
    pairs = np.empty((3, 2), np.int32)
    pair_up(np.array([0, 1, 0]), np.array([5, 6]), np.array([1, 0, 0]), np.array([7, 8]), pairs)
    assert pairs.tolist() == [[5, 8], [6, 7], [5, 7]]
    assert first_fault(pairs, 9) == -1
    assert first_fault(pairs, 8) == 0
    assert first_fault(np.array([[0, 1], [1, 1]]), 2) == 1
    assert first_fault(np.array([[0, 1], [-1, 1]]), 2) == 1


def test_largest_errors_of_the_pairs_that_are_tested():
    errors, scale = RANDOM.normal(size=(5, 4)), RANDOM.uniform(1, 2, (4, 4))
    shift = np.where(RANDOM.random((4, 4)) < 0.5, 0.0, -np.inf)
    shift[2] = -np.inf
    out = np.empty_like(errors)
    largest_errors(errors, scale, shift, out)
    wanted = ((errors[:, :, None] - errors[:, None, :]) * scale + shift).max(2)
    np.testing.assert_allclose(out, wanted)
    assert (out[:, 2] == -np.inf).all()
