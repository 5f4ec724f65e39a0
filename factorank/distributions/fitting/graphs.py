"""Transitive closure and strongly connected groups of a small dense graph: who is above whom."""

from typing import TypeVar

import numpy as np
from torch import Tensor

Edges = TypeVar("Edges", np.ndarray, Tensor)


def closure(edges: Edges) -> Edges:
    """Warshall's transitive closure of bool ``(*batch, n, n)``: whether b can be reached from a."""
    reach = edges | edges
    for k in range(reach.shape[-1]):
        reach |= reach[..., :, k, None] & reach[..., None, k, :]
    return reach


def strongly_connected(edges: np.ndarray) -> bool:
    """Whether every node of bool ``(n, n)`` can be reached from every other."""
    return _reaches_all(edges) and _reaches_all(edges.T)


def groups(edges: np.ndarray) -> list[np.ndarray]:
    """The strongly connected components, no edge going from a later one to an earlier one.

    >>> groups(np.array([[0, 1, 0], [1, 0, 0], [1, 0, 0]], dtype=bool))
    [array([2]), array([0, 1])]
    """
    reach = closure(edges) | np.eye(len(edges), dtype=bool)
    mutual = reach & reach.T
    first = mutual.argmax(1)  # each component is named by its least node
    # Who reaches another component reaches strictly more nodes, so counting them sorts topologically.
    names = sorted(set(first.tolist()), key=lambda node: (-int(reach[node].sum()), node))
    return [np.flatnonzero(first == name) for name in names]


def _reaches_all(edges: np.ndarray) -> bool:
    met = np.zeros(len(edges), dtype=bool)
    met[0] = True
    fresh = met.copy()
    while fresh.any():
        fresh = edges[fresh].any(0) & ~met
        met |= fresh
    return bool(met.all())
