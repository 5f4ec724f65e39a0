"""Selecting walks in numba: Lehmer and insertion codes to permutations.

Step s meets n - s free values and takes the k-th smallest. The set of free values is kept in the same three
ways as in ``counting``; in a machine word a selection finds the k-th set bit.
"""

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from factorank.kernels.codes.bits import (
    EVERYTHING,
    LANES,
    ONE,
    SIX,
    WORD,
    ZERO,
    jit,
    kth_bit,
    take_above,
    trailing_zeros,
    u64,
)
from factorank.kernels.codes.table import INSERTION, LEFT, RIGHT


@jit
def _choice(codes: Any, r: Any, s: Any, n: Any, form: Any) -> Any:
    """Which position step s decides, which of the free values it takes, and whether its code allows that."""
    i = s if form == RIGHT else n - ONE - s
    c = u64(codes[r, i])
    inside = c < n - s
    k = i - c if form == LEFT else c
    return i, k if inside else ZERO, inside


@jit
def _put_taken(out: Any, r: Any, i: Any, taken: Any, form: Any) -> None:
    if form == INSERTION:
        out[r, taken] = i
    else:
        out[r, i] = taken


@cache
def select_word(form: int) -> Callable[..., int]:
    @jit
    def select(codes: Any, out: Any) -> int:
        n = u64(codes.shape[1])
        full = EVERYTHING >> (u64(WORD) - n)
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
    @jit
    def select(codes: Any, out: Any) -> int:
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
                w = take_above(before, k) - ONE
                bit = kth_bit(words[w], k - u64(before[w]))
                words[w] ^= bit
                taken = (w << SIX) + trailing_zeros(bit)
                _put_taken(out, r, i, taken, form)
            if not good:
                faulty = np.int64(r)
        return faulty

    return select


@cache
def select_tree(form: int) -> Callable[..., int]:
    @jit
    def select(codes: Any, out: Any) -> int:
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
                bit = kth_bit(words[w], u64(k))
                words[w] ^= bit
                taken = (u64(w) << SIX) + trailing_zeros(bit)
                _put_taken(out, r, i, taken, form)
                j = w + 1
                while j <= size:
                    tree[j] -= 1
                    j += j & -j
            if not good:
                faulty = np.int64(r)
        return faulty

    return select
