"""Walks of ``sets`` for up to 1,024 values: counters of 16 bits, four to a machine word.

Sixteen words are the set. They lie in four groups of four. One machine word counts the members before each
group, one for each group those before each of its words. Four counters are updated or compared at once.
Four rows are walked side by side, since a step waits for the one before it in the same row.
"""

from typing import Any

import numpy as np

from factorank.kernels.codes import bits
from factorank.kernels.codes.bits import EVERYTHING, LOW_6, ONE, SIX, WORD, ZERO, jit, u64
from factorank.kernels.codes.sets import choice, first_of_four, put_count, scatter
from factorank.kernels.codes.table import INSERTION

LIMIT = 16 * WORD
"""The longest rows."""
COUNTERS = u64(0x0001000100010001)
"""One in each counter."""
LATER = u64(0x0001000100010000)
"""One in each counter but the first: shifted by some counters, in those after the one that comes first."""
TOPS = u64(0x8000800080008000)
"""The highest bit of each counter."""
LOW_2, LOW_16, TWO, THREE, FOUR, EIGHT = u64(3), u64(0xFFFF), u64(2), u64(3), u64(4), u64(8)
WORDS = u64(16)


@jit
def count_packed(rows: Any, out: Any, form: Any) -> Any:
    height, n = u64(rows.shape[0]), u64(rows.shape[1])
    words, below = np.empty(64, np.uint64), np.empty(16, np.uint64)
    faulty = np.int64(-1)
    r = ZERO
    while r < height:
        words[:] = 0
        below[:] = 0
        if r + FOUR <= height:
            a = b = c = d = ZERO  # the members before each group, for four rows
            good_a = good_b = good_c = good_d = True
            for i in range(n):
                a, good_a = _meet(rows, out, r, i, n, words, below, ZERO, a, good_a, form)
                b, good_b = _meet(rows, out, r + ONE, i, n, words, below, ONE, b, good_b, form)
                c, good_c = _meet(rows, out, r + TWO, i, n, words, below, TWO, c, good_c, form)
                d, good_d = _meet(rows, out, r + THREE, i, n, words, below, THREE, d, good_d, form)
            faulty = first_of_four(faulty, r, good_a, good_b, good_c, good_d)
            r += FOUR
        else:
            a, good_a = ZERO, True
            for i in range(n):
                a, good_a = _meet(rows, out, r, i, n, words, below, ZERO, a, good_a, form)
            if faulty < 0 and not good_a:
                faulty = np.int64(r)
            r += ONE
    return faulty


@jit
def select_packed(codes: Any, out: Any, form: Any) -> Any:
    height, n = u64(codes.shape[0]), u64(codes.shape[1])
    words, before, taken = np.empty(64, np.uint64), np.empty(16, np.uint64), np.empty(4 * LIMIT, np.uint16)
    faulty = np.int64(-1)
    r = ZERO
    while r < height:
        words[:] = EVERYTHING
        before[:] = u64(0x00C0008000400000)  # 0, 64, 128 and 192 values lie before the words of a group
        full = _groups_before(n)
        if r + FOUR <= height:
            a = b = c = d = full
            good_a = good_b = good_c = good_d = True
            for s in range(n):
                a, good_a = _pick(codes, out, r, s, n, words, before, taken, ZERO, a, good_a, form)
                b, good_b = _pick(codes, out, r + ONE, s, n, words, before, taken, ONE, b, good_b, form)
                c, good_c = _pick(codes, out, r + TWO, s, n, words, before, taken, TWO, c, good_c, form)
                d, good_d = _pick(codes, out, r + THREE, s, n, words, before, taken, THREE, d, good_d, form)
            if len(form) == INSERTION:
                for j in range(FOUR):
                    scatter(taken, j * u64(LIMIT), r + j, out)
            faulty = first_of_four(faulty, r, good_a, good_b, good_c, good_d)
            r += FOUR
        else:
            a, good_a = full, True
            for s in range(n):
                a, good_a = _pick(codes, out, r, s, n, words, before, taken, ZERO, a, good_a, form)
            if len(form) == INSERTION:
                scatter(taken, ZERO, r, out)
            if faulty < 0 and not good_a:
                faulty = np.int64(r)
            r += ONE
    return faulty


@jit
def _meet(
    rows: Any,
    out: Any,
    r: Any,
    i: Any,
    n: Any,
    words: Any,
    below: Any,
    j: Any,
    groups: Any,
    good: Any,
    form: Any,
) -> Any:
    """Step i of a row with the j-th set: the members before each group, and whether all is good so far."""
    x = u64(rows[r, i])
    inside = x < n
    x = x if inside else ZERO
    w, group, bit = x >> SIX, x >> EIGHT, ONE << (x & LOW_6)
    at, up = (w & LOW_2) << FOUR, group << FOUR
    w, group = w + j * WORDS, group + j * FOUR
    word, part = words[w], below[group]
    smaller = ((groups >> up) & LOW_16) + ((part >> at) & LOW_16) + bits.popcount(word & (bit - ONE))
    words[w] = word | bit
    below[group] = part + (LATER << at)
    put_count(out, r, i, x, smaller, form)
    return groups + (LATER << up), good & inside & ((word & bit) == ZERO)


@jit
def _pick(
    codes: Any, out: Any, r: Any, s: Any, n: Any, words: Any, before: Any, taken: Any, j: Any, groups: Any,
    good: Any, form: Any,
) -> Any:  # fmt: skip
    """Step s of a row with the j-th set: what is free before each group, and whether all is good so far."""
    i, k, inside = choice(codes, r, s, n, form)
    group, k, groups = _descend(groups, k)
    w, k, before[j * FOUR + group] = _descend(before[j * FOUR + group], k)
    w += group << TWO
    bit = bits.kth_bit(words[j * WORDS + w], k)
    words[j * WORDS + w] ^= bit
    value = (w << SIX) + bits.trailing_zeros(bit)
    if len(form) == INSERTION:
        taken[j * u64(LIMIT) + i] = (
            value  # scattered later: a store to a place not known yet would hold up the next steps
        )
    else:
        out[r, i] = value
    return groups, good & inside


@jit
def _descend(counters: Any, k: Any) -> Any:
    """Which of four holds the k-th member, which it is there, and the counters once it is taken."""
    reached = (TOPS + k * COUNTERS - counters) & TOPS  # where no more than k lie before
    at = bits.popcount(reached) - ONE
    return at, k - ((counters >> (at << FOUR)) & LOW_16), counters - ((reached ^ TOPS) >> u64(15))


@jit
def _groups_before(n: Any) -> Any:
    """How many of n values lie before each group of 256."""
    counters = ZERO
    for group in range(FOUR):
        counters |= min(u64(256) * group, n) << (group << FOUR)
    return counters
