"""Patience sorting in numba: the length of the longest increasing subsequence."""

from typing import Any

import numpy as np

from factorank.kernels.codes.bits import jit


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
