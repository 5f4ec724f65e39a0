"""Walks over a set of values in numba: Lehmer and insertion codes, and back.

Each kernel walks ``(rows, n)`` as the table says and returns the first faulty row, or -1. The set of values
met so far, or still free, is kept in one of four ways, by n:

* up to 64, one machine word: a count is a popcount below a bit, a selection finds the k-th set bit;
* up to 1,024, sixteen words under counters that are packed in machine words: see ``packed``;
* up to ``BITSET_LIMIT``, a bitset beside the number of members before each word, which is updated for all
  words at every step without a branch;
* beyond, the same bitset under a Fenwick tree: see ``trees``.

A step waits for the one before it in the same row. Short rows are therefore walked side by side, so that the
processor has steps of other rows to do meanwhile.

The functions of this module and of ``lists`` hold no lock and no state: callers split the rows over threads.
Values are checked as they are met, and nothing outside the row is touched whatever they are. Everything is
unsigned, because then numba need not test indices for being negative, which costs half of the time.
"""

from typing import Any

import numpy as np

from factorank.kernels.codes import bits
from factorank.kernels.codes.bits import EVERYTHING, LANES, LOW_6, ONE, SIX, TILE, WORD, ZERO, jit, u64
from factorank.kernels.codes.table import INSERTION, LEFT, RIGHT

BITSET_LIMIT = 1 << 14
"""The length beyond which updating all words at every step takes longer than a tree."""
ABREAST = u64(4)
"""Rows that are walked side by side."""


@jit
def count_word(rows: Any, out: Any, form: Any) -> int:
    height, n = u64(rows.shape[0]), u64(rows.shape[1])
    full = EVERYTHING >> (u64(WORD) - n)
    met, counts = np.empty(TILE, np.uint64), np.empty((TILE, TILE), out.dtype)
    faulty = np.int64(-1)
    for r in range(ZERO, height, u64(TILE)):
        met[:] = 0
        for first in range(ZERO, n, u64(TILE)):
            for j in range(u64(TILE), u64(2 * TILE)):
                _come_near(rows, out, (r + j) * n + first)
            if len(form) == INSERTION:
                bits.count_tile(rows, r, first, met, counts, form)
                _scatter_counts(rows, r, first, counts, out)
            else:
                bits.count_tile(rows, r, first, met, out, form)
        for j in range(min(u64(TILE), height - r)):
            if (
                met[j] != full and faulty < 0
            ):  # a value outside adds nothing, one that comes twice nothing new
                faulty = np.int64(r + u64(j))
    return faulty


@jit
def count_bitset(rows: Any, out: Any, form: Any) -> int:
    n = u64(rows.shape[1])
    words = np.empty((rows.shape[1] + WORD - 1) // WORD, np.uint64)
    blocks = (len(words) + LANES - 1) // LANES
    below = np.empty(blocks * LANES, np.uint16)
    faulty = np.int64(-1)
    for r in range(rows.shape[0] - 1, -1, -1):
        words[:] = 0
        below[:] = 0
        fresh = True
        for i in range(n):
            x, w, smaller, new = meet(words, u64(rows[r, i]), n)
            fresh &= new
            smaller += u64(below[w])
            bits.add_above(below, u64(blocks), w)
            put_count(out, r, i, x, smaller, form)
        faulty = faulty if fresh else np.int64(r)
    return faulty


@jit
def select_word(codes: Any, out: Any, form: Any) -> int:
    height, n = u64(codes.shape[0]), u64(codes.shape[1])
    full = EVERYTHING >> (u64(WORD) - n)
    faulty = np.int64(-1)
    r = ZERO
    while r + ABREAST <= height:
        free_0 = free_1 = free_2 = free_3 = full
        good_0 = good_1 = good_2 = good_3 = True
        for s in range(n):
            _come_near(codes, out, (r + ABREAST) * n + s * ABREAST)
            free_0, good_0 = _pick(codes, out, r, s, n, free_0, good_0, form)
            free_1, good_1 = _pick(codes, out, r + ONE, s, n, free_1, good_1, form)
            free_2, good_2 = _pick(codes, out, r + u64(2), s, n, free_2, good_2, form)
            free_3, good_3 = _pick(codes, out, r + u64(3), s, n, free_3, good_3, form)
        faulty = first_of_four(faulty, r, good_0, good_1, good_2, good_3)
        r += ABREAST
    while r < height:
        free, good = full, True
        for s in range(n):
            free, good = _pick(codes, out, r, s, n, free, good, form)
        faulty = np.int64(r) if faulty < 0 and not good else faulty
        r += ONE
    return faulty


@jit
def _pick(codes: Any, out: Any, r: Any, s: Any, n: Any, free: Any, good: Any, form: Any) -> Any:
    """Step s of a row: what is free and whether all was good, afterwards."""
    i, k, inside = choice(codes, r, s, n, form)
    bit = bits.kth_bit(free, k)
    put_taken(out, r, i, bits.trailing_zeros(bit), form)
    return free ^ bit, good & inside


@jit
def select_bitset(codes: Any, out: Any, form: Any) -> int:
    n = u64(codes.shape[1])
    size = (codes.shape[1] + WORD - 1) // WORD
    words = np.empty(size, np.uint64)
    blocks = (size + LANES) // LANES
    before = np.empty(blocks * LANES, np.uint16)
    taken = np.empty(codes.shape[1], np.uint16)
    faulty = np.int64(-1)
    for r in range(codes.shape[0] - 1, -1, -1):
        words[:] = EVERYTHING
        for j in range(len(before)):
            before[j] = j * WORD if j < size else 0xFFFF
        good = True
        for s in range(n):
            i, k, inside = choice(codes, r, s, n, form)
            good &= inside
            w = bits.take_above(before, u64(blocks), k) - ONE
            value = take(words, w, k - u64(before[w]))
            if len(form) == INSERTION:
                taken[i] = value
            else:
                out[r, i] = value
        if len(form) == INSERTION:
            scatter(taken, ZERO, r, out)
        faulty = faulty if good else np.int64(r)
    return faulty


@jit
def meet(words: Any, x: Any, n: Any) -> Any:
    """Put x into a bitset: x or 0 if it is outside, its word, the smaller values there, whether x is new."""
    inside = x < n
    x = x if inside else ZERO
    w, bit = x >> SIX, ONE << (x & LOW_6)
    word = words[w]
    words[w] = word | bit
    return x, w, bits.popcount(word & (bit - ONE)), inside & ((word & bit) == ZERO)


@jit
def take(words: Any, w: Any, k: Any) -> Any:
    """Take the k-th member of a word out of a bitset, and return it."""
    bit = bits.kth_bit(words[w], k)
    words[w] ^= bit
    return (w << SIX) + bits.trailing_zeros(bit)


@jit
def _come_near(rows: Any, out: Any, index: Any) -> None:
    """Bring elements of the next rows near: the processor foresees one stream of memory, not several."""
    bits.prefetch(rows, index)
    bits.prefetch(out, index)


@jit
def scatter(taken: Any, start: Any, r: Any, out: Any) -> None:
    """Store the places of an insertion code, which lie from ``start`` on, after the walk that took them.

    A store to a place that is not known yet would hold up the next steps of the walk.
    """
    for i in range(u64(out.shape[1])):
        out[r, u64(taken[start + i])] = i


@jit
def _scatter_counts(rows: Any, r: Any, first: Any, counts: Any, out: Any) -> None:
    """Store a tile of counts at the places that its values name."""
    n = u64(rows.shape[1])
    for j in range(min(u64(TILE), u64(rows.shape[0]) - r)):
        for i in range(min(u64(TILE), n - first)):
            x = u64(rows[r + j, first + i])
            out[r + j, x if x < n else ZERO] = counts[j, i]


@jit
def choice(codes: Any, r: Any, s: Any, n: Any, form: Any) -> Any:
    """Which position step s decides, which of the free values it takes, and whether its code allows that."""
    i = s if len(form) == RIGHT else n - ONE - s
    c = u64(codes[r, i])
    inside = c < n - s
    k = i - c if len(form) == LEFT else c
    return i, k if inside else ZERO, inside


@jit
def put_count(out: Any, r: Any, i: Any, x: Any, smaller: Any, form: Any) -> None:
    """Store what an item's count means for the form, as in the lines of the table."""
    if len(form) == RIGHT:
        out[r, i] = x - smaller
    elif len(form) == LEFT:
        out[r, i] = i - smaller
    else:
        out[r, x] = smaller


@jit
def put_taken(out: Any, r: Any, i: Any, taken: Any, form: Any) -> None:
    if len(form) == INSERTION:
        out[r, taken] = i
    else:
        out[r, i] = taken


@jit
def first_of_four(faulty: Any, r: Any, a: Any, b: Any, c: Any, d: Any) -> Any:
    """The first faulty row so far: the first of four from r on that is not good, if there was none before."""
    if faulty >= 0 or (a and b and c and d):
        return faulty
    return np.int64(r) + np.int64(0 if not a else 1 if not b else 2 if not c else 3)
