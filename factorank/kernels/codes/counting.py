"""Counting walks in numba: permutations to Lehmer and insertion codes.

Each kernel walks ``(rows, n)`` as the table says and returns the first faulty row, or -1. The set of values
met so far is kept in one of three ways, by n:

* up to 64, one machine word: a count is a popcount below a bit;
* up to ``BITSET_LIMIT``, a bitset beside the number of members before each word, which is updated for all
  words at every step without a branch;
* beyond, the same bitset under a Fenwick tree.

The functions of this module and of the other walks hold no lock and no state: callers split the rows over
threads. Values are checked as they are met, and nothing outside the row is touched whatever they are.
Everything is unsigned, because then numba need not test indices for being negative, which costs half of the
time.
"""

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from factorank.kernels.codes.bits import (
    EVERYTHING,
    LANES,
    LOW_6,
    ONE,
    SIX,
    WORD,
    ZERO,
    add_above,
    jit,
    popcount,
    u64,
)
from factorank.kernels.codes.table import LEFT, RIGHT

BITSET_LIMIT = 1 << 14
"""The length beyond which updating all words at every step takes longer than a tree."""


@jit
def _put_count(out: Any, r: Any, i: Any, x: Any, smaller: Any, form: Any) -> None:
    """Store what an item's count means for the form, as in the lines of the table. Inlined."""
    if form == RIGHT:
        out[r, i] = x - smaller
    elif form == LEFT:
        out[r, i] = i - smaller
    else:
        out[r, x] = smaller


@cache
def count_word(form: int) -> Callable[..., int]:
    @jit
    def count(rows: Any, out: Any) -> int:
        n = u64(rows.shape[1])
        full = EVERYTHING >> (u64(WORD) - n)
        faulty = np.int64(-1)
        for r in range(rows.shape[0] - 1, -1, -1):
            met, inside = ZERO, True
            for i in range(n):
                x = u64(rows[r, i])
                inside &= x < n
                bit = ONE << (x & LOW_6)
                smaller = popcount(met & (bit - ONE))
                met |= bit
                _put_count(out, r, i, x if x < n else ZERO, smaller, form)
            if not inside or met != full:
                faulty = np.int64(r)
        return faulty

    return count


@cache
def count_bitset(form: int) -> Callable[..., int]:
    @jit
    def count(rows: Any, out: Any) -> int:
        n = u64(rows.shape[1])
        words = np.empty((rows.shape[1] + WORD - 1) // WORD, np.uint64)
        below = np.empty((len(words) + LANES - 1) // LANES * LANES, np.uint16)
        faulty = np.int64(-1)
        for r in range(rows.shape[0] - 1, -1, -1):
            words[:] = 0
            below[:] = 0
            fresh = True
            for i in range(n):
                x = u64(rows[r, i])
                inside = x < n
                x = x if inside else ZERO
                w, bit = x >> SIX, ONE << (x & LOW_6)
                word = words[w]
                fresh &= inside & ((word & bit) == ZERO)
                smaller = u64(below[w]) + popcount(word & (bit - ONE))
                words[w] = word | bit
                add_above(below, w)
                _put_count(out, r, i, x, smaller, form)
            if not fresh:
                faulty = np.int64(r)
        return faulty

    return count


@cache
def count_tree(form: int) -> Callable[..., int]:
    @jit
    def count(rows: Any, out: Any) -> int:
        n = u64(rows.shape[1])
        size = (rows.shape[1] + WORD - 1) // WORD
        words = np.empty(size, np.uint64)
        tree = np.empty(size + 1, np.int64)  # Fenwick, 1-based: the members of whole words
        faulty = np.int64(-1)
        for r in range(rows.shape[0] - 1, -1, -1):
            words[:] = 0
            tree[:] = 0
            fresh = True
            for i in range(n):
                x = u64(rows[r, i])
                inside = x < n
                x = x if inside else ZERO
                w, bit = x >> SIX, ONE << (x & LOW_6)
                word = words[w]
                new = inside & ((word & bit) == ZERO)
                fresh &= new
                smaller = popcount(word & (bit - ONE))
                j = np.int64(w)
                while j > 0:
                    smaller += u64(tree[j])
                    j -= j & -j
                words[w] = word | bit
                j = np.int64(w) + 1
                while j <= size:
                    tree[j] += np.int64(new)
                    j += j & -j
                _put_count(out, r, i, x, smaller, form)
            if not fresh:
                faulty = np.int64(r)
        return faulty

    return count
