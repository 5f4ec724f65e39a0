"""Walks of ``sets`` for long rows: a bitset under a Fenwick tree over the members of its words."""

from typing import Any

import numpy as np

from factorank.kernels.codes.bits import EVERYTHING, WORD, jit, u64
from factorank.kernels.codes.sets import choice, meet, put_count, put_taken, take


@jit
def count_tree(rows: Any, out: Any, form: Any) -> Any:
    n = u64(rows.shape[1])
    words = np.empty((rows.shape[1] + WORD - 1) // WORD, np.uint64)
    tree = np.empty(len(words) + 1, np.int64)  # Fenwick, 1-based: the members of whole words
    faulty = np.int64(-1)
    for r in range(rows.shape[0] - 1, -1, -1):
        words[:] = 0
        tree[:] = 0
        fresh = True
        for i in range(n):
            x, w, smaller, new = meet(words, u64(rows[r, i]), n)
            fresh &= new
            j = np.int64(w)
            while j > 0:
                smaller += u64(tree[j])
                j -= j & -j
            _add_to_tree(tree, w, np.int64(new))
            put_count(out, r, i, x, smaller, form)
        faulty = faulty if fresh else np.int64(r)
    return faulty


@jit
def select_tree(codes: Any, out: Any, form: Any) -> Any:
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
            i, chosen, inside = choice(codes, r, s, n, form)
            good &= inside
            k = np.int64(chosen)
            w, jump = np.int64(0), top
            while jump:
                if w + jump <= size and tree[w + jump] <= k:
                    w += jump
                    k -= tree[w]
                jump >>= 1
            put_taken(out, r, i, take(words, u64(w), u64(k)), form)
            _add_to_tree(tree, w, -1)
        faulty = faulty if good else np.int64(r)
    return faulty


@jit
def _add_to_tree(tree: Any, w: Any, change: Any) -> None:
    j = np.int64(w) + 1
    while j < len(tree):
        tree[j] += change
        j += j & -j
