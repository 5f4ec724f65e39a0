"""How many orders agree with a partial order, counted exactly where its connected parts are small."""

import math
from functools import lru_cache

import numpy as np

LARGEST_PART = 12
"""The most items of a connected part whose orders are counted: at most 2^12 sets are looked at."""


def log_share(above: np.ndarray) -> float | None:
    """The logarithm of the share of all orders that agree with a partial order, bool ``(n, n)`` and closed.

    Parts of the order that are not connected are independent. None if one of them is too large.

    >>> v_shape = np.array([[0, 1, 1, 0], [0, 0, 0, 0], [0, 0, 0, 0], [0, 0, 0, 0]], dtype=bool)
    >>> round(math.exp(log_share(v_shape)), 4)  # item 0 is the first of three
    0.3333
    """
    total = 0.0
    for part in _connected(above):
        if len(part) > LARGEST_PART:
            return None
        part.sort(key=lambda item: int(above[part, item].sum()))  # no item comes before one above it
        needs = tuple(sum(1 << k for k, other in enumerate(part) if above[other, item]) for item in part)
        total += math.log(_count(needs)) - math.lgamma(len(part) + 1)
    return total


def _connected(above: np.ndarray) -> list[list[int]]:
    """The connected parts of two items or more."""
    related = above | above.T
    parts, left = [], set(np.flatnonzero(related.any(1)).tolist())
    while left:
        part, fresh = [], [left.pop()]
        while fresh:
            item = fresh.pop()
            part.append(item)
            near = [other for other in np.flatnonzero(related[item]).tolist() if other in left]
            left.difference_update(near)
            fresh += near
        parts.append(part)
    return parts


@lru_cache(maxsize=4096)
def _count(needs: tuple[int, ...]) -> int:
    """The number of orders in which every item k comes after those of the set ``needs[k]``."""
    ways = {0: 1}
    for _ in needs:
        longer: dict[int, int] = {}
        for came, count in ways.items():
            for k, need in enumerate(needs):
                if not came >> k & 1 and need & ~came == 0:
                    longer[came | 1 << k] = longer.get(came | 1 << k, 0) + count
        ways = longer
    return ways[(1 << len(needs)) - 1]
