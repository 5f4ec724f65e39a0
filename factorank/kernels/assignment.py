"""The compiled loop of the assignment. Import it only to assign something, since numba loads slowly."""

import numpy as np
from numba import njit

from factorank.kernels.threads import in_threads

GRAIN = 1 << 18
"""Products of elements and n that a thread should have at least: about a millisecond of work."""


def assign(costs: np.ndarray, orders: np.ndarray) -> None:
    """Write the cheapest assignment of each ``costs (rows, n, n)`` into ``orders (rows, n)``."""
    in_threads(_assign, costs, orders, costs.size * costs.shape[-1] // GRAIN)


@njit(cache=True, nogil=True)
def _assign(costs, orders):  # type: ignore[no-untyped-def]
    """Assign row by row.

    Places enter one after the other. A new one takes an item along the path of least reduced cost, on which
    places hand their items on (Dijkstra's algorithm); the prices of places and items keep every reduced cost
    at 0 or more and those of the assigned pairs at 0.
    """
    rows, n, _ = costs.shape
    place_price, item_price, distance = np.empty(n), np.empty(n), np.empty(n)
    holder = np.empty(n, np.int64)  # the place that holds an item, or -1
    before = np.empty(n, np.int64)  # the place from which the path comes to an item
    reached = np.empty(n, np.bool_)
    best = np.empty(n, np.int64)  # the place that an item is cheapest for
    for row in range(rows):
        cost, order = costs[row], orders[row]
        place_price[:], item_price[:] = 0.0, np.inf
        holder[:], order[:] = -1, -1
        for i in range(n):
            for j in range(n):
                if cost[i, j] < item_price[j]:
                    item_price[j] = cost[i, j]
                    best[j] = i
        for j in range(n):  # items take the place that wants them most, if it is free: most are then settled
            if order[best[j]] < 0:
                order[best[j]] = j
                holder[j] = best[j]
        for start in range(n):
            if order[start] >= 0:
                continue
            distance[:], reached[:] = np.inf, False
            place, walked = start, 0.0
            while True:
                nearest, least = -1, np.inf
                for j in range(n):
                    if reached[j]:
                        continue
                    there = walked + cost[place, j] - place_price[place] - item_price[j]
                    if there < distance[j]:
                        distance[j] = there
                        before[j] = place
                    if distance[j] < least:
                        nearest, least = j, distance[j]
                reached[nearest] = True
                walked = least
                if holder[nearest] < 0:
                    break
                place = holder[nearest]
            place_price[start] += walked
            for j in range(n):
                if reached[j] and j != nearest:
                    place_price[holder[j]] += walked - distance[j]
                    item_price[j] -= walked - distance[j]
            item = nearest
            while True:
                place = before[item]
                holder[item] = place
                order[place], item = item, order[place]
                if place == start:
                    break
