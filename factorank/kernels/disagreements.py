"""Compiled loops of the rankers, on numpy arrays; imported only when they run, since numba loads slowly."""

import numpy as np
from numba import njit


@njit(cache=True)
def count_disagreements(listed, consensus, total):  # type: ignore[no-untyped-def]
    """``total[v, c]``: pairs of ``listed[v]``, best first, that the scores ``consensus[c]`` turn round."""
    lists, m = listed.shape
    scores = np.empty(m, dtype=consensus.dtype)
    for v in range(lists):
        for c in range(len(consensus)):
            for i in range(m):
                scores[i] = consensus[c, listed[v, i]]
            turned = 0
            for i in range(m - 1):
                for j in range(i + 1, m):
                    turned += scores[j] > scores[i]
            total[v, c] = turned
