"""A small network, drawn photographs, and evidence that knows the truth."""

import numpy as np
import torch
import torch.nn.functional as F

from factorank.jigsaw.photographs import PhotographModel
from factorank.jigsaw.photographs.network import PhotographNetwork
from factorank.jigsaw.photographs.solving import Evidence

SMALL = {"context": 8, "width": 8, "features": 6, "channels": 4, "hidden": 8}


def small_model(seed=0):
    torch.manual_seed(seed)
    return PhotographModel(PhotographNetwork(**SMALL).eval())


def photograph(height=96, width=128, seed=0):
    """A smooth random picture with some texture, uint8 ``(height, width, 3)``."""
    chooser = torch.Generator().manual_seed(seed)
    levels = [
        F.interpolate(torch.rand((1, 3, side, side + 2), generator=chooser), (height, width), mode="bicubic")
        for side in (4, 9, 20)
    ]
    whole = 0.6 * levels[0] + 0.3 * levels[1] + 0.1 * levels[2]
    return (255 * whole[0].movedim(0, -1)).round().clamp(0, 255).to(torch.uint8)


def knowing(puzzle, grid, turns=1, *, places=True, chance=0.9):
    """Evidence whose matches, and places if wanted, favour the truth of a puzzle."""
    rows, columns = grid
    pieces, slots = len(puzzle.pieces), rows * columns
    labels = turns * pieces
    low, high = np.log((1 - chance) / labels), np.log(chance)
    at = np.full((rows + 2, columns + 2), labels)
    own = turns * np.arange(pieces) + (puzzle.turns.numpy() if turns > 1 else 0)
    slot = puzzle.slots.numpy()
    at[slot // columns + 1, slot % columns + 1] = own
    right, below = (np.full((labels + 1, labels + 1), 2 * low) for _ in range(2))
    for y in range(rows + 2):
        for x in range(columns + 2):
            if x + 1 < columns + 2:
                right[at[y, x], at[y, x + 1]] = 2 * high
            if y + 1 < rows + 2:
                below[at[y, x], at[y + 1, x]] = 2 * high
    belief = np.full((labels, slots), np.log(1 / (turns * slots)))
    if places:
        belief[:] = np.log((1 - chance) / (turns * slots))
        belief[own, slot] = high
    return Evidence(grid, turns, belief, right, below)
