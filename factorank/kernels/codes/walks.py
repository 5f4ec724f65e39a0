"""The numba kernels: each walks ``(rows, n)`` as the table says and returns the first faulty row, or -1.

Three ways to keep the set that a COUNT or SELECT walk needs, by n:

* up to 64, one machine word: a count is a popcount below a bit, a selection finds the k-th set bit;
* up to ``BITSET_LIMIT``, a bitset beside the number of members before each word, which is kept right for
  all words at every step without a branch;
* beyond, the same bitset under a Fenwick tree.

The functions hold no lock and no state: callers split the rows over threads. Values are checked as they are
met, in passing, and nothing outside the row is touched whatever they are. Everything is unsigned, because
then numba need not test indices for being negative, which costs half of the time.
"""

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
from numba import njit

from factorank.kernels.codes.bits import LANES, add_above, kth_bit, popcount, take_above, trailing_zeros
from factorank.kernels.codes.table import INSERTION, LEFT, RIGHT

WORD = 64
BITSET_LIMIT = 1 << 14

_u = np.uint64
_zero, _one, _six, _63 = _u(0), _u(1), _u(6), _u(63)
_everything = ~_zero
_jit = njit(cache=True, nogil=True, boundscheck=False, error_model="numpy")


# Counting: rows of permutations to Lehmer and insertion codes.


@_jit
def _put_count(out: Any, r: Any, i: Any, x: Any, smaller: Any, form: Any) -> None:
    """Put what an item's count means where the form has it: the lines of the table. Inlined."""
    if form == RIGHT:
        out[r, i] = x - smaller
    elif form == LEFT:
        out[r, i] = i - smaller
    else:
        out[r, x] = smaller


@cache
def count_word(form: int) -> Callable[..., int]:
    @_jit
    def count(rows: Any, out: Any) -> int:
        n = _u(rows.shape[1])
        full = _everything >> (_u(WORD) - n)
        faulty = np.int64(-1)
        for r in range(rows.shape[0] - 1, -1, -1):
            met, inside = _zero, True
            for i in range(n):
                x = _u(rows[r, i])
                inside &= x < n
                bit = _one << (x & _63)
                smaller = popcount(met & (bit - _one))
                met |= bit
                _put_count(out, r, i, x if x < n else _zero, smaller, form)
            if not inside or met != full:
                faulty = np.int64(r)
        return faulty

    return count


@cache
def count_bitset(form: int) -> Callable[..., int]:
    @_jit
    def count(rows: Any, out: Any) -> int:
        n = _u(rows.shape[1])
        words = np.empty((rows.shape[1] + WORD - 1) // WORD, np.uint64)
        below = np.empty((len(words) + LANES - 1) // LANES * LANES, np.uint16)
        faulty = np.int64(-1)
        for r in range(rows.shape[0] - 1, -1, -1):
            words[:] = 0
            below[:] = 0
            fresh = True
            for i in range(n):
                x = _u(rows[r, i])
                inside = x < n
                x = x if inside else _zero
                w, bit = x >> _six, _one << (x & _63)
                word = words[w]
                fresh &= inside & ((word & bit) == _zero)
                smaller = _u(below[w]) + popcount(word & (bit - _one))
                words[w] = word | bit
                add_above(below, w)
                _put_count(out, r, i, x, smaller, form)
            if not fresh:
                faulty = np.int64(r)
        return faulty

    return count


@cache
def count_tree(form: int) -> Callable[..., int]:
    @_jit
    def count(rows: Any, out: Any) -> int:
        n = _u(rows.shape[1])
        size = (rows.shape[1] + WORD - 1) // WORD
        words = np.empty(size, np.uint64)
        tree = np.empty(size + 1, np.int64)  # Fenwick, 1-based: the members of whole words
        faulty = np.int64(-1)
        for r in range(rows.shape[0] - 1, -1, -1):
            words[:] = 0
            tree[:] = 0
            fresh = True
            for i in range(n):
                x = _u(rows[r, i])
                inside = x < n
                x = x if inside else _zero
                w, bit = x >> _six, _one << (x & _63)
                word = words[w]
                new = inside & ((word & bit) == _zero)
                fresh &= new
                smaller = popcount(word & (bit - _one))
                j = np.int64(w)
                while j > 0:
                    smaller += _u(tree[j])
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


# Selecting: Lehmer and insertion codes to rows of permutations. Step s meets n - s free values.


@_jit
def _choice(codes: Any, r: Any, s: Any, n: Any, form: Any) -> Any:
    """Which position step s decides, which of the free values it takes, and whether its code allows that."""
    i = s if form == RIGHT else n - _one - s
    c = _u(codes[r, i])
    inside = c < n - s
    k = i - c if form == LEFT else c
    return i, k if inside else _zero, inside


@_jit
def _put_taken(out: Any, r: Any, i: Any, taken: Any, form: Any) -> None:
    if form == INSERTION:
        out[r, taken] = i
    else:
        out[r, i] = taken


@cache
def select_word(form: int) -> Callable[..., int]:
    @_jit
    def select(codes: Any, out: Any) -> int:
        n = _u(codes.shape[1])
        full = _everything >> (_u(WORD) - n)
        faulty = np.int64(-1)
        for r in range(codes.shape[0] - 1, -1, -1):
            free, good = full, True
            for s in range(n):
                i, k, inside = _choice(codes, r, s, n, form)
                good &= inside
                bit = kth_bit(free, k)
                free ^= bit
                _put_taken(out, r, i, trailing_zeros(bit), form)
            if not good:
                faulty = np.int64(r)
        return faulty

    return select


@cache
def select_bitset(form: int) -> Callable[..., int]:
    @_jit
    def select(codes: Any, out: Any) -> int:
        n = _u(codes.shape[1])
        size = (codes.shape[1] + WORD - 1) // WORD
        words = np.empty(size, np.uint64)
        before = np.empty((size + LANES) // LANES * LANES, np.uint16)
        faulty = np.int64(-1)
        for r in range(codes.shape[0] - 1, -1, -1):
            words[:] = _everything
            for j in range(len(before)):
                before[j] = j * WORD if j < size else 0xFFFF
            good = True
            for s in range(n):
                i, k, inside = _choice(codes, r, s, n, form)
                good &= inside
                w = take_above(before, k) - _one
                bit = kth_bit(words[w], k - _u(before[w]))
                words[w] ^= bit
                taken = (w << _six) + trailing_zeros(bit)
                _put_taken(out, r, i, taken, form)
            if not good:
                faulty = np.int64(r)
        return faulty

    return select


@cache
def select_tree(form: int) -> Callable[..., int]:
    @_jit
    def select(codes: Any, out: Any) -> int:
        n = _u(codes.shape[1])
        size = (codes.shape[1] + WORD - 1) // WORD
        words = np.empty(size, np.uint64)
        tree = np.empty(size + 1, np.int64)
        top = 1
        while top * 2 <= size:
            top *= 2
        faulty = np.int64(-1)
        for r in range(codes.shape[0] - 1, -1, -1):
            words[:] = _everything
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
                bit = kth_bit(words[w], _u(k))
                words[w] ^= bit
                taken = (_u(w) << _six) + trailing_zeros(bit)
                _put_taken(out, r, i, taken, form)
                j = w + 1
                while j <= size:
                    tree[j] -= 1
                    j += j & -j
            if not good:
                faulty = np.int64(r)
        return faulty

    return select


# Swapping: Fisher-Yates draws. Up to 16 items the whole list is the sixteen nibbles of a word.

_identity = _u(0xFEDCBA9876543210)
_15 = _u(15)


@_jit
def _shift(at: Any) -> Any:
    return at << _u(2)


@_jit
def swap_encode_nibbles(rows: Any, out: Any) -> int:
    n = _u(rows.shape[1])
    full = _everything >> (_u(WORD) - n)
    faulty = np.int64(-1)
    for r in range(rows.shape[0] - 1, -1, -1):
        held = place = _identity  # nibble v of place says where held has v
        met, inside = _zero, True
        for i in range(n):
            x = _u(rows[r, i])
            inside &= x < n
            x &= _15
            met |= _one << x
            j = (place >> _shift(x)) & _15
            moved = (held >> _shift(i)) & _15
            held ^= (x ^ moved) << _shift(j)
            place ^= (i ^ j) << _shift(moved)
            out[r, i] = j - i
        if not inside or met != full:
            faulty = np.int64(r)
    return faulty


@_jit
def swap_encode(rows: Any, out: Any, held: Any, place: Any) -> int:
    """``held`` and ``place`` are scratch of n unsigned integers that can hold n."""
    n = _u(rows.shape[1])
    faulty = np.int64(-1)
    for r in range(rows.shape[0] - 1, -1, -1):
        for i in range(n):
            held[i] = i
            place[i] = i
        good = True
        for i in range(n):
            x = _u(rows[r, i])
            inside = x < n
            x = x if inside else _zero
            j = _u(place[x])
            good &= inside & (j >= i)  # a value met before lies to the left
            moved = _u(held[i])
            held[j] = moved
            place[moved] = j
            place[x] = i
            out[r, i] = j - i
        if not good:
            faulty = np.int64(r)
    return faulty


@_jit
def swap_decode_nibbles(draws: Any, out: Any) -> int:
    n = _u(draws.shape[1])
    faulty = np.int64(-1)
    for r in range(draws.shape[0] - 1, -1, -1):
        held, good = _identity, True
        for i in range(n):
            d = _u(draws[r, i])
            good &= d < n - i
            j = (i + d) & _15
            drawn = (held >> _shift(j)) & _15
            held ^= (drawn ^ ((held >> _shift(i)) & _15)) << _shift(j)
            out[r, i] = drawn
        if not good:
            faulty = np.int64(r)
    return faulty


@_jit
def swap_decode(draws: Any, out: Any) -> int:
    n = _u(draws.shape[1])
    faulty = np.int64(-1)
    for r in range(draws.shape[0] - 1, -1, -1):
        for i in range(n):
            out[r, i] = i
        good = True
        for i in range(n):
            d = _u(draws[r, i])
            inside = d < n - i
            good &= inside
            j = i + d if inside else i
            drawn = out[r, j]
            out[r, j] = out[r, i]
            out[r, i] = drawn
        if not good:
            faulty = np.int64(r)
    return faulty


# The rest.


@_jit
def invert(rows: Any, out: Any) -> int:
    n = _u(rows.shape[1])
    faulty = np.int64(-1)
    for r in range(rows.shape[0] - 1, -1, -1):
        for i in range(n):
            out[r, i] = -1
        inside = True
        for i in range(n):
            x = _u(rows[r, i])
            inside &= x < n
            out[r, x if x < n else _zero] = i
        for i in range(n):
            inside &= out[r, i] >= 0
        if not inside:
            faulty = np.int64(r)
    return faulty


@_jit
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
