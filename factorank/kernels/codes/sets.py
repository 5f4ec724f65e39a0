"""Walks over a set of values in numba: Lehmer and insertion codes, and back.

Each kernel walks ``(rows, n)`` as the table says and returns the first faulty row, or -1. The set of values
met so far, or still free, is kept in one of three ways, by n:

* up to 64, one machine word: a count is a popcount below a bit, a selection finds the k-th set bit;
* up to ``BITSET_LIMIT``, a bitset beside the number of members before each word, which is updated for all
  words at every step without a branch;
* beyond, the same bitset under a Fenwick tree: see ``trees``.

A step waits for the one before it in the same row. Short rows are therefore walked side by side, ``TILE`` or
``ABREAST`` at a time, so that the processor has steps of other rows to do meanwhile. In long ones the updates
of the bitset keep it busy.

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
ABREAST_LIMIT = 64 * 31
"""The length up to which the members before each word are one block of counters."""
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
                _scatter(rows, r, first, counts, out)
            else:
                bits.count_tile(rows, r, first, met, out, form)
        for j in range(min(u64(TILE), height - r)):
            if (
                met[j] != full and faulty < 0
            ):  # a value outside adds nothing, one that comes twice nothing new
                faulty = np.int64(r + u64(j))
    return faulty


@jit
def count_abreast(rows: Any, out: Any, form: Any) -> int:
    height, n = u64(rows.shape[0]), u64(rows.shape[1])
    size = (n + u64(WORD - 1)) // u64(WORD)
    blocks = (size + u64(LANES - 1)) // u64(LANES)
    words = np.empty(ABREAST * size, np.uint64)
    below = np.empty(ABREAST * blocks * u64(LANES), np.uint16)
    fresh = np.empty(ABREAST, np.bool_)
    faulty = np.int64(-1)
    for r in range(ZERO, height, ABREAST):
        abreast = min(ABREAST, height - r)
        words[:] = 0
        below[:] = 0
        fresh[:] = True
        for i in range(n):
            for j in range(abreast):
                start = j * blocks * u64(LANES)
                x, w, smaller, new = meet(words, j * size, u64(rows[r + j, i]), n)
                fresh[j] &= new
                smaller += u64(below[start + w])
                bits.add_above(below, start, blocks, w)
                put_count(out, r + j, i, x, smaller, form)
        faulty = _first_false(fresh, r, abreast, faulty)
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
            x, w, smaller, new = meet(words, ZERO, u64(rows[r, i]), n)
            fresh &= new
            smaller += u64(below[w])
            bits.add_above(below, ZERO, u64(blocks), w)
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
        if faulty < 0 and not (good_0 and good_1 and good_2 and good_3):
            faulty = np.int64(r) + (0 if not good_0 else 1 if not good_1 else 2 if not good_2 else 3)
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
def select_abreast(codes: Any, out: Any, form: Any) -> int:
    height, n = u64(codes.shape[0]), u64(codes.shape[1])
    size = (n + u64(WORD - 1)) // u64(WORD)
    blocks = (size + u64(LANES)) // u64(LANES)
    width = blocks * u64(LANES)
    words = np.empty(ABREAST * size, np.uint64)
    before = np.empty(ABREAST * width, np.uint16)
    good = np.empty(ABREAST, np.bool_)
    faulty = np.int64(-1)
    for r in range(ZERO, height, ABREAST):
        abreast = min(ABREAST, height - r)
        words[:] = EVERYTHING
        for j in range(ABREAST * width):
            before[j] = j % width * u64(WORD) if j % width < size else u64(0xFFFF)
        good[:] = True
        for s in range(n):
            for j in range(abreast):
                i, k, inside = choice(codes, r + j, s, n, form)
                good[j] &= inside
                w = bits.take_above(before, j * width, blocks, k) - ONE
                put_taken(out, r + j, i, take(words, j * size, w, k - u64(before[j * width + w])), form)
        faulty = _first_false(good, r, abreast, faulty)
    return faulty


@jit
def select_bitset(codes: Any, out: Any, form: Any) -> int:
    n = u64(codes.shape[1])
    size = (codes.shape[1] + WORD - 1) // WORD
    words = np.empty(size, np.uint64)
    blocks = (size + LANES) // LANES
    before = np.empty(blocks * LANES, np.uint16)
    faulty = np.int64(-1)
    for r in range(codes.shape[0] - 1, -1, -1):
        words[:] = EVERYTHING
        for j in range(len(before)):
            before[j] = j * WORD if j < size else 0xFFFF
        good = True
        for s in range(n):
            i, k, inside = choice(codes, r, s, n, form)
            good &= inside
            w = bits.take_above(before, ZERO, u64(blocks), k) - ONE
            put_taken(out, r, i, take(words, ZERO, w, k - u64(before[w])), form)
        faulty = faulty if good else np.int64(r)
    return faulty


@jit
def meet(words: Any, start: Any, x: Any, n: Any) -> Any:
    """Put x into the bitset that begins at a word.

    Returns x, or 0 if it is outside; its word; how many smaller values are in that; whether x is new.
    """
    inside = x < n
    x = x if inside else ZERO
    w, bit = x >> SIX, ONE << (x & LOW_6)
    word = words[start + w]
    words[start + w] = word | bit
    return x, w, bits.popcount(word & (bit - ONE)), inside & ((word & bit) == ZERO)


@jit
def take(words: Any, start: Any, w: Any, k: Any) -> Any:
    """Take the k-th member of a word out of the bitset that begins at ``start``, and return it."""
    bit = bits.kth_bit(words[start + w], k)
    words[start + w] ^= bit
    return (w << SIX) + bits.trailing_zeros(bit)


@jit
def _come_near(rows: Any, out: Any, index: Any) -> None:
    """Bring elements of the next rows near: the processor foresees one stream of memory, not several."""
    bits.prefetch(rows, index)
    bits.prefetch(out, index)


@jit
def _first_false(good: Any, r: Any, count: Any, faulty: Any) -> Any:
    """The first faulty row so far: of the ``count`` rows from r on, if there was none before."""
    if faulty < 0:
        for j in range(count):
            if not good[j]:
                return np.int64(r + j)
    return faulty


@jit
def _scatter(rows: Any, r: Any, first: Any, counts: Any, out: Any) -> None:
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
