"""The solver by edges as a whole."""

import numpy as np

from factorank.baselines.edge_compatibility.assembly import assemble, fill
from factorank.baselines.edge_compatibility.gradients import border_distances, relative_distances
from factorank.errors import FactorankError


def solve_by_edges(pieces: np.ndarray, grid: tuple[int, int]) -> np.ndarray:
    """The slot of each piece, row by row: int64 ``(n,)``.

    ``pieces``, uint8 ``(n, height, width, 3)``, lie upright, and none is missing.
    """
    rows, columns = grid
    if len(pieces) != rows * columns:
        raise FactorankError(f"a {rows}×{columns} puzzle has {rows * columns} pieces, not {len(pieces)}")
    right, below = (relative_distances(distances) for distances in border_distances(pieces))
    board = fill(assemble(right, below, grid), right, below)
    slots = np.empty(len(pieces), dtype=np.int64)
    slots[board.ravel()] = np.arange(len(pieces))
    return slots
