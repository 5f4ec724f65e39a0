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
    reached = np.empty(n)  # infinite for items that the path has reached, else 0
    best = np.empty(n, np.int64)  # the place that an item is cheapest for
    for row in range(rows):
        cost, order = costs[row], orders[row]
        place_price[:], item_price[:], reached[:] = 0.0, np.inf, 0.0
        holder[:], order[:] = -1, -1
        for i in range(n):
            _lower(item_price, best, cost[i], reached, 0.0, reached, i)
        for j in range(n):  # items take the place that wants them most, if it is free: most are then settled
            if order[best[j]] < 0:
                order[best[j]] = j
                holder[j] = best[j]
        for start in range(n):
            if order[start] >= 0:
                continue
            distance[:], reached[:] = np.inf, 0.0
            place, walked = start, 0.0
            while True:
                _lower(distance, before, cost[place], item_price, walked - place_price[place], reached, place)
                walked = _least(distance, reached)
                nearest = 0
                while distance[nearest] + reached[nearest] != walked:
                    nearest += 1
                reached[nearest] = np.inf
                if holder[nearest] < 0:
                    break
                place = holder[nearest]
            place_price[start] += walked
            for j in range(n):
                if reached[j] > 0 and j != nearest:
                    place_price[holder[j]] += walked - distance[j]
                    item_price[j] -= walked - distance[j]
            item = nearest
            while True:
                place = before[item]
                holder[item] = place
                order[place], item = item, order[place]
                if place == start:
                    break


# Loops of their own without branches, which the compiler turns into vectors.


@njit(cache=True, nogil=True)
def _lower(values, sources, costs, prices, base, reached, source):  # type: ignore[no-untyped-def]
    """Bring each value of an item that is not reached down to its reduced cost, and note whose that is."""
    for j in range(len(values)):
        there = base + costs[j] - prices[j] + reached[j]
        lower = there < values[j]
        values[j] = there if lower else values[j]
        sources[j] = source if lower else sources[j]


@njit(cache=True, nogil=True, fastmath={"nnan", "nsz", "reassoc"})
def _least(distance, reached):  # type: ignore[no-untyped-def]
    """The least distance of an item that is not reached."""
    least = np.inf
    for j in range(len(distance)):
        there = distance[j] + reached[j]
        least = there if there < least else least
    return least
