"""The compiled loop of the places of independent insertions.

Imported only when it runs, since numba loads slowly.
"""

from numba import njit


@njit(cache=True, nogil=True)
def insertion_rows(probs, places):  # type: ignore[no-untyped-def]
    """Place probabilities ``(rows, n, n)``, written to ``places``, of insertion values ``(rows, n, n)``.

    An item moves back one place when a later one is inserted at or before its place. ``places`` begins as
    zeros.
    """
    rows, n, _ = probs.shape
    for row in range(rows):
        own, table = places[row], probs[row]
        for k in range(n):
            for item in range(k):
                line, moved_in, below = own[item], probs.dtype.type(0), probs.dtype.type(0)
                for place in range(k):
                    below += table[k, place]
                    moved = line[place] * below
                    line[place] += moved_in - moved
                    moved_in = moved
                line[k] = moved_in
            for place in range(k + 1):
                own[k, place] = table[k, place]
