"""Walks over a set of values in numba: Lehmer and insertion codes, and back.

Each kernel walks ``(rows, n)`` as the table says and returns the first faulty row, or -1. The set of values
met so far, or still free, is kept in one of three ways, by n:

* up to 64, one machine word: a count is a popcount below a bit, a selection finds the k-th set bit;
* up to ``BITSET_LIMIT``, a bitset beside the number of members before each word, which is updated for all
  words at every step without a branch;
* beyond, the same bitset under a Fenwick tree.

The functions of this module and of ``lists`` hold no lock and no state: callers split the rows over threads.
Values are checked as they are met, and nothing outside the row is touched whatever they are. Everything is
unsigned, because then numba need not test indices for being negative, which costs half of the time.
"""

from typing import Any

import numpy as np

from factorank.kernels.codes import bits
from factorank.kernels.codes.bits import EVERYTHING, LANES, LOW_6, ONE, SIX, WORD, ZERO, jit, u64
from factorank.kernels.codes.table import INSERTION, LEFT, RIGHT

BITSET_LIMIT = 1 << 14
"""The length beyond which updating all words at every step takes longer than a tree."""


@jit
def count_word(rows: Any, out: Any, form: Any) -> int:
    n = u64(rows.shape[1])
    full = EVERYTHING >> (u64(WORD) - n)
    faulty = np.int64(-1)
    for r in range(rows.shape[0] - 1, -1, -1):
        met, inside = ZERO, True
        for i in range(n):
            x = u64(rows[r, i])
            inside &= x < n
            bit = ONE << (x & LOW_6)
            smaller = bits.popcount(met & (bit - ONE))
            met |= bit
            _put_count(out, r, i, x if x < n else ZERO, smaller, form)
        faulty = faulty if inside and met == full else np.int64(r)
    return faulty


@jit
def count_bitset(rows: Any, out: Any, form: Any) -> int:
    n = u64(rows.shape[1])
    words = np.empty((rows.shape[1] + WORD - 1) // WORD, np.uint64)
    below = np.empty((len(words) + LANES - 1) // LANES * LANES, np.uint16)
    faulty = np.int64(-1)
    for r in range(rows.shape[0] - 1, -1, -1):
        words[:] = 0
        below[:] = 0
        fresh = True
        for i in range(n):
            x, w, smaller, new = _meet(words, u64(rows[r, i]), n)
            fresh &= new
            smaller += u64(below[w])
            bits.add_above(below, w)
            _put_count(out, r, i, x, smaller, form)
        faulty = faulty if fresh else np.int64(r)
    return faulty


@jit
def count_tree(rows: Any, out: Any, form: Any) -> int:
    n = u64(rows.shape[1])
    words = np.empty((rows.shape[1] + WORD - 1) // WORD, np.uint64)
    tree = np.empty(len(words) + 1, np.int64)  # Fenwick, 1-based: the members of whole words
    faulty = np.int64(-1)
    for r in range(rows.shape[0] - 1, -1, -1):
        words[:] = 0
        tree[:] = 0
        fresh = True
        for i in range(n):
            x, w, smaller, new = _meet(words, u64(rows[r, i]), n)
            fresh &= new
            j = np.int64(w)
            while j > 0:
                smaller += u64(tree[j])
                j -= j & -j
            _add_to_tree(tree, w, np.int64(new))
            _put_count(out, r, i, x, smaller, form)
        faulty = faulty if fresh else np.int64(r)
    return faulty


@jit
def select_word(codes: Any, out: Any, form: Any) -> int:
    n = u64(codes.shape[1])
    full = EVERYTHING >> (u64(WORD) - n)
    faulty = np.int64(-1)
    for r in range(codes.shape[0] - 1, -1, -1):
        free, good = full, True
        for s in range(n):
            i, k, inside = _choice(codes, r, s, n, form)
            good &= inside
            bit = bits.kth_bit(free, k)
            free ^= bit
            _put_taken(out, r, i, bits.trailing_zeros(bit), form)
        faulty = faulty if good else np.int64(r)
    return faulty


@jit
def select_bitset(codes: Any, out: Any, form: Any) -> int:
    n = u64(codes.shape[1])
    size = (codes.shape[1] + WORD - 1) // WORD
    words = np.empty(size, np.uint64)
    before = np.empty((size + LANES) // LANES * LANES, np.uint16)
    faulty = np.int64(-1)
    for r in range(codes.shape[0] - 1, -1, -1):
        words[:] = EVERYTHING
        for j in range(len(before)):
            before[j] = j * WORD if j < size else 0xFFFF
        good = True
        for s in range(n):
            i, k, inside = _choice(codes, r, s, n, form)
            good &= inside
            w = bits.take_above(before, k) - ONE
            _put_taken(out, r, i, _take(words, w, k - u64(before[w])), form)
        faulty = faulty if good else np.int64(r)
    return faulty


@jit
def select_tree(codes: Any, out: Any, form: Any) -> int:
    n = u64(codes.shape[1])
    size = (codes.shape[1] + WORD - 1) // WORD
    words = np.empty(size, np.uint64)
    tree = np.empty(size + 1, np.int64)
    top = 1
    while top * 2 <= size:
        top *= 2
    faulty = np.int64(-1)
    for r in range(codes.shape[0] - 1, -1, -1):
        words[:] = EVERYTHING
        for j in range(1, size + 1):
            tree[j] = min(j * WORD, codes.shape[1]) - (j - (j & -j)) * WORD
        good = True
        for s in range(n):
            i, choice, inside = _choice(codes, r, s, n, form)
            good &= inside
            k = np.int64(choice)
            w, jump = np.int64(0), top
            while jump:
                if w + jump <= size and tree[w + jump] <= k:
                    w += jump
                    k -= tree[w]
                jump >>= 1
            _put_taken(out, r, i, _take(words, u64(w), u64(k)), form)
            _add_to_tree(tree, w, -1)
        faulty = faulty if good else np.int64(r)
    return faulty


@jit
def _meet(words: Any, x: Any, n: Any) -> Any:
    """Put x into a bitset: x or 0 if it is outside, its word, the smaller values there, whether x is new."""
    inside = x < n
    x = x if inside else ZERO
    w, bit = x >> SIX, ONE << (x & LOW_6)
    word = words[w]
    words[w] = word | bit
    return x, w, bits.popcount(word & (bit - ONE)), inside & ((word & bit) == ZERO)


@jit
def _take(words: Any, w: Any, k: Any) -> Any:
    """Take the k-th member of a word out of a bitset, and return it."""
    bit = bits.kth_bit(words[w], k)
    words[w] ^= bit
    return (w << SIX) + bits.trailing_zeros(bit)


@jit
def _add_to_tree(tree: Any, w: Any, change: Any) -> None:
    j = np.int64(w) + 1
    while j < len(tree):
        tree[j] += change
        j += j & -j


@jit
def _choice(codes: Any, r: Any, s: Any, n: Any, form: Any) -> Any:
    """Which position step s decides, which of the free values it takes, and whether its code allows that."""
    i = s if len(form) == RIGHT else n - ONE - s
    c = u64(codes[r, i])
    inside = c < n - s
    k = i - c if len(form) == LEFT else c
    return i, k if inside else ZERO, inside


@jit
def _put_count(out: Any, r: Any, i: Any, x: Any, smaller: Any, form: Any) -> None:
    """Store what an item's count means for the form, as in the lines of the table."""
    if len(form) == RIGHT:
        out[r, i] = x - smaller
    elif len(form) == LEFT:
        out[r, i] = i - smaller
    else:
        out[r, x] = smaller


@jit
def _put_taken(out: Any, r: Any, i: Any, taken: Any, form: Any) -> None:
    if len(form) == INSERTION:
        out[r, taken] = i
    else:
        out[r, i] = taken
