"""Walks that keep a list in numba: Fisher-Yates draws and back, inverses, and patience sorting.

Up to 16 items the whole list of a Fisher-Yates walk is the sixteen nibbles of a machine word.
"""

from typing import Any

import numpy as np

from factorank.kernels.codes.bits import EVERYTHING, LOW_4, ONE, WORD, ZERO, jit, u64

IDENTITY = u64(0xFEDCBA9876543210)
"""Nibble i holds i."""


@jit
def _shift(at: Any) -> Any:
    return at << u64(2)


@jit
def swap_encode_nibbles(rows: Any, out: Any) -> int:
    n = u64(rows.shape[1])
    full = EVERYTHING >> (u64(WORD) - n)
    faulty = np.int64(-1)
    for r in range(rows.shape[0] - 1, -1, -1):
        held = place = IDENTITY  # nibble v of place says where held has v
        met, inside = ZERO, True
        for i in range(n):
            x = u64(rows[r, i])
            inside &= x < n
            x &= LOW_4
            met |= ONE << x
            j = (place >> _shift(x)) & LOW_4
            moved = (held >> _shift(i)) & LOW_4
            held ^= (x ^ moved) << _shift(j)
            place ^= (i ^ j) << _shift(moved)
            out[r, i] = j - i
        faulty = faulty if inside and met == full else np.int64(r)
    return faulty


@jit
def swap_encode(rows: Any, out: Any, held: Any, place: Any) -> int:
    """``held`` and ``place`` are scratch of n unsigned integers that can hold n."""
    n = u64(rows.shape[1])
    faulty = np.int64(-1)
    for r in range(rows.shape[0] - 1, -1, -1):
        for i in range(n):
            held[i] = i
            place[i] = i
        good = True
        for i in range(n):
            x = u64(rows[r, i])
            inside = x < n
            x = x if inside else ZERO
            j = u64(place[x])
            good &= inside & (j >= i)  # a value met before lies to the left
            moved = u64(held[i])
            held[j] = moved
            place[moved] = j
            place[x] = i
            out[r, i] = j - i
        faulty = faulty if good else np.int64(r)
    return faulty


@jit
def swap_decode_nibbles(draws: Any, out: Any) -> int:
    n = u64(draws.shape[1])
    faulty = np.int64(-1)
    for r in range(draws.shape[0] - 1, -1, -1):
        held, good = IDENTITY, True
        for i in range(n):
            d = u64(draws[r, i])
            good &= d < n - i
            j = (i + d) & LOW_4
            drawn = (held >> _shift(j)) & LOW_4
            held ^= (drawn ^ ((held >> _shift(i)) & LOW_4)) << _shift(j)
            out[r, i] = drawn
        faulty = faulty if good else np.int64(r)
    return faulty


@jit
def swap_decode(draws: Any, out: Any) -> int:
    n = u64(draws.shape[1])
    faulty = np.int64(-1)
    for r in range(draws.shape[0] - 1, -1, -1):
        for i in range(n):
            out[r, i] = i
        good = True
        for i in range(n):
            d = u64(draws[r, i])
            inside = d < n - i
            good &= inside
            j = i + d if inside else i
            drawn = out[r, j]
            out[r, j] = out[r, i]
            out[r, i] = drawn
        faulty = faulty if good else np.int64(r)
    return faulty


@jit
def invert(rows: Any, out: Any) -> int:
    n = u64(rows.shape[1])
    faulty = np.int64(-1)
    for r in range(rows.shape[0] - 1, -1, -1):
        for i in range(n):
            out[r, i] = -1
        inside = True
        for i in range(n):
            x = u64(rows[r, i])
            inside &= x < n
            out[r, x if x < n else ZERO] = i
        for i in range(n):
            inside &= out[r, i] >= 0
        faulty = faulty if inside else np.int64(r)
    return faulty


@jit
def longest_increasing(rows: Any, out: Any) -> int:
    """Patience sorting: the number of piles is the length of the longest increasing subsequence."""
    tops = np.empty(rows.shape[1], np.int64)
    for r in range(rows.shape[0]):
        piles = 0
        for i in range(rows.shape[1]):
            low, high = 0, piles
            while low < high:
                middle = (low + high) >> 1
                if tops[middle] < rows[r, i]:
                    low = middle + 1
                else:
                    high = middle
            tops[low] = rows[r, i]
            piles += low == piles
        out[r] = piles
    return -1
