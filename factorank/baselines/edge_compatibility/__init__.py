"""Jigsaw puzzles without learning: how well the borders of pieces fit, and assembly of the best fits.

>>> import numpy as np
>>> y, x = np.mgrid[0:48, 0:64]
>>> drawing = np.stack([3 * x, 4 * y, 255 - x - y], -1).astype(np.uint8)
>>> pieces = np.stack([drawing[i : i + 16, j : j + 16] for i in (32, 0, 16) for j in (16, 48, 0, 32)])
>>> solve_by_edges(pieces, (3, 4))
array([ 9, 11,  8, 10,  1,  3,  0,  2,  5,  7,  4,  6])
"""

from factorank.baselines.edge_compatibility.assembly import EMPTY, assemble, fill
from factorank.baselines.edge_compatibility.gradients import border_distances, relative_distances
from factorank.baselines.edge_compatibility.solver import solve_by_edges

__all__ = ["EMPTY", "assemble", "border_distances", "fill", "relative_distances", "solve_by_edges"]
