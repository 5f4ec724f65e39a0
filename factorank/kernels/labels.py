"""Numbers for the distinct values of a long column, compiled. Imported only when it runs."""

import numpy as np
from numba import njit

SMALLEST = 1024
"""Slots of the first table; it grows when it is half full."""


def number_words(words: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Number the distinct integers ``words (rows,)``, int64, as they come first.

    Returns the number of each row, int32 ``(rows,)``, and the first row of each number.
    """
    codes = np.empty(len(words), np.int32)
    size, row, known = SMALLEST, 0, 0
    first = np.empty(0, np.int64)
    while row < len(words):
        slots, keys = np.full(size, -1, np.int64), np.empty(size, np.int64)
        longer = np.empty(size // 2, np.int64)
        longer[:known], first = first[:known], longer
        _refill(words, first, known, slots, keys)
        row, known = _fill(words, row, codes, first, known, slots, keys)
        size *= 4
    return codes, first[:known]


@njit(cache=True, nogil=True)
def _fill(words, start, codes, first, known, slots, keys):  # type: ignore[no-untyped-def]
    """Number rows from ``start`` on until the table is half full; the next row, and how many are known."""
    last = np.uint64(len(slots) - 1)
    for row in range(start, len(words)):
        word = words[row]
        slot = _slot(word) & last
        while slots[slot] >= 0 and keys[slot] != word:
            slot = (slot + np.uint64(1)) & last
        number = slots[slot]
        if number < 0:
            if known == len(first):
                return row, known
            number = known
            slots[slot], keys[slot], first[known] = number, word, row
            known += 1
        codes[row] = number
    return len(words), known


@njit(cache=True, nogil=True)
def _refill(words, first, known, slots, keys):  # type: ignore[no-untyped-def]
    last = np.uint64(len(slots) - 1)
    for number in range(known):
        slot = _slot(words[first[number]]) & last
        while slots[slot] >= 0:
            slot = (slot + np.uint64(1)) & last
        slots[slot], keys[slot] = number, words[first[number]]


@njit(cache=True, inline="always")
def _slot(word):  # type: ignore[no-untyped-def]
    return (np.uint64(word) * np.uint64(0x9E3779B97F4A7C15)) >> np.uint64(32)
