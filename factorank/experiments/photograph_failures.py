"""What stands between the solver of photographs and all puzzles solved: a look at those that are not.

A wrong piece has a reason that its pixels show. It is *flat* if the colours along its borders vary by less
than a few levels: sky, water, a wall out of focus. It is *repeated* if another piece continues one of its
neighbours as well as it does, by the distance without learning. Otherwise it is *other*: mostly a piece whose
slot was taken by one of the first two kinds, or a part that lies shifted.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from factorank.baselines.edge_compatibility import border_distances, solve_by_edges
from factorank.experiments.photographs import puzzles_of, solve_all
from factorank.jigsaw.photographs import PhotographModel
from factorank.jigsaw.photographs.puzzles import Puzzle, Task, cut_picture, right_pieces, shares

FLAT = 4.0
"""The mean absolute deviation, in grey levels, below which a border is flat."""


def failures(
    model: PhotographModel,
    pictures: Sequence[Tensor],
    task: Task,
    *,
    names: Sequence[str] | None = None,
    say: Callable[[str], None] = lambda text: None,
) -> Iterator[dict[str, Any]]:
    """A row for each puzzle that is not solved: its wrong slots, their reasons, and how flat each slot is."""
    for index, picture in enumerate(pictures):
        puzzle = puzzles_of([picture], task, 1)[0]
        placed = solve_all(model, [puzzle], task)[0]
        right = right_pieces(puzzle, placed)
        if right.all():
            continue
        flatness = contrast(puzzle.truth)
        wrong = np.sort(puzzle.slots.numpy()[~right])
        reasons = reasons_of(puzzle, task.grid, wrong, flatness)
        say(f"picture {index}: {len(wrong)} wrong, {', '.join(reasons)}")
        yield {
            "experiment": "photograph-failures",
            "picture": index if names is None else names[index],
            "grid": task.grid[0],
            "columns": task.grid[1],
            "probability": placed.probability,
            "wrong": wrong.tolist(),
            "reasons": reasons,
            "contrast": [round(float(value), 1) for value in flatness],
        }


def on_blocks(
    pictures: Sequence[Tensor], *, grid: int = 9, size: int = 32, longer: int = 48
) -> Iterator[dict[str, Any]]:
    """What the solver without learning makes of cuts on the 8×8 blocks of JPEG files, and four pixels off.

    Pieces have the same size in both rows: ``size`` along the shorter side of a picture, ``longer`` along the
    other, both multiples of 8.
    """
    for offset in (0, 4):
        right = []
        for index, picture in enumerate(pictures):
            lying = picture.shape[0] < picture.shape[1]
            height, width = (size, longer) if lying else (longer, size)
            part = picture[offset : offset + grid * height, offset : offset + grid * width]
            pieces = cut_picture(part, (grid, grid))
            slots = torch.randperm(grid**2, generator=torch.Generator().manual_seed(index))
            right.append(solve_by_edges(pieces[slots].numpy(), (grid, grid)) == slots.numpy())
        yield {
            "experiment": "photograph-blocks",
            "method": "edge-compatibility",
            "grid": grid,
            "offset": offset,
            **shares(right),
        }


def contrast(pieces: Tensor) -> np.ndarray:
    """The mean absolute deviation of the colours along the borders of pieces, ``(n,)``, in grey levels."""
    pixels = pieces.double()
    borders = torch.cat([pixels[:, 0], pixels[:, -1], pixels[:, :, 0], pixels[:, :, -1]], 1)
    return (borders - borders.mean(1, keepdim=True)).abs().mean((1, 2)).numpy()


def reasons_of(puzzle: Puzzle, grid: tuple[int, int], wrong: np.ndarray, flatness: np.ndarray) -> list[str]:
    """Why the pieces of some slots are wrong: "flat", "repeated" or "other"."""
    right, below = border_distances(puzzle.truth.numpy())
    rows, columns = grid
    result = []
    for slot in wrong:
        y, x = divmod(int(slot), columns)
        fits = [
            (costs[at], costs[at][axis_slot])
            for costs, at, axis_slot, there in (
                (right, slot - 1, slot, x > 0),
                (right.T, slot + 1, slot, x + 1 < columns),
                (below, slot - columns, slot, y > 0),
                (below.T, slot + columns, slot, y + 1 < rows),
            )
            if there
        ]
        repeated = any((candidates <= own).sum() > 1 for candidates, own in fits)
        result.append("flat" if flatness[slot] < FLAT else "repeated" if repeated else "other")
    return result
