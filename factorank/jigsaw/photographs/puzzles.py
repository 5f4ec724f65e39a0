"""Puzzles of photographs with known solutions, and how well they are solved."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from factorank.errors import FactorankError
from factorank.jigsaw.evaluation import wilson
from factorank.jigsaw.photographs.model import turned_whole
from factorank.jigsaw.photographs.solving import Placed
from factorank.jigsaw.photographs.views import resize


@dataclass(frozen=True)
class Task:
    """What is done to a photograph to make a puzzle of it."""

    grid: tuple[int, int]
    turned: bool = False
    """Pieces are square and lie in any of four ways."""
    missing: float = 0.0
    """The share of the pieces that are taken away."""
    piece: int | None = None
    """The side of a piece in pixels, after the picture was scaled; its own resolution unless given."""


@dataclass(frozen=True)
class Puzzle:
    """Pieces in a random order, and where they belong."""

    pieces: Tensor
    """uint8 ``(n, height, width, 3)``."""
    slots: Tensor
    """int64 ``(n,)``."""
    turns: Tensor
    """How often each piece must be turned clockwise, int64 ``(n,)``."""
    truth: Tensor
    """All pieces by slot, ``(slots, height, width, 3)``."""


def cut_picture(picture: Tensor, grid: tuple[int, int], *, square: bool = False) -> Tensor:
    """Cut a picture ``(height, width, 3)`` into pieces by slot, ``(slots, height, width, 3)``.

    What is left over is cut off at the sides, the same on both; with ``square``, as much as leaves square
    pieces.

    >>> cut_picture(torch.zeros(33, 50, 3, dtype=torch.uint8), (4, 3)).shape
    torch.Size([12, 8, 16, 3])
    """
    rows, columns = grid
    height, width = picture.shape[0] // rows, picture.shape[1] // columns
    if square:
        height = width = min(height, width)
    if min(height, width) < 2:
        raise FactorankError(
            f"the picture has {picture.shape[1]}×{picture.shape[0]} pixels, too few for {rows}×{columns}"
            " pieces of at least 2"
        )
    top, left = (picture.shape[0] - rows * height) // 2, (picture.shape[1] - columns * width) // 2
    part = picture[top : top + rows * height, left : left + columns * width]
    return part.unflatten(1, (columns, width)).unflatten(0, (rows, height)).transpose(1, 2).flatten(0, 1)


def make_puzzle(picture: Tensor, task: Task, generator: torch.Generator) -> Puzzle:
    """A puzzle of a picture, uint8 ``(height, width, 3)``."""
    rows, columns = task.grid
    if task.piece is not None:
        pixels = cut_to(picture, rows / columns).movedim(-1, 0)[None].float()
        small = resize(pixels, (rows * task.piece, columns * task.piece))
        picture = small[0].movedim(0, -1).round().clamp(0, 255).to(torch.uint8)
    truth = cut_picture(picture, task.grid, square=task.turned)
    kept = len(truth) - round(task.missing * len(truth))
    slots = torch.randperm(len(truth), generator=generator)[:kept]
    turns = torch.zeros(kept, dtype=torch.int64)
    pieces = truth[slots]
    if task.turned:
        turns = torch.randint(4, (kept,), generator=generator)
        pieces = turn_pieces(pieces, -turns)
    return Puzzle(pieces, slots, turns, truth)


def cut_to(picture: Tensor, ratio: float) -> Tensor:
    """The middle of a picture that has a ratio of height to width."""
    height, width = picture.shape[:2]
    new_height, new_width = min(height, round(width * ratio)), min(width, round(height / ratio))
    top, left = (height - new_height) // 2, (width - new_width) // 2
    return picture[top : top + new_height, left : left + new_width]


def turn_pieces(pieces: Tensor, turns: Tensor) -> Tensor:
    """Square pieces ``(n, side, side, 3)``, each turned clockwise as often as ``turns`` ``(n,)`` says."""
    every = zip(pieces, turns.tolist(), strict=True)
    return torch.stack([torch.rot90(piece, -turn, (0, 1)) for piece, turn in every])


def right_pieces(puzzle: Puzzle, placed: Placed) -> np.ndarray:
    """Which pieces show the true pixels where they lie, bool ``(n,)``: identical pieces are equal."""
    laid = puzzle.pieces
    if placed.turns.any() or puzzle.turns.any():
        laid = turn_pieces(laid, torch.from_numpy(placed.turns))
    there = puzzle.truth[torch.from_numpy(placed.slots)]
    return (laid == there).flatten(1).all(1).numpy()


def right_up_to_a_turn(puzzle: Puzzle, placed: Placed, grid: tuple[int, int]) -> np.ndarray:
    """The same for the turn of the whole solution that leaves most pieces right."""
    step = 1 if grid[0] == grid[1] else 2
    ways = [right_pieces(puzzle, turned_whole(placed, grid, turn)) for turn in range(0, 4, step)]
    return max(ways, key=lambda right: right.sum())


def shares(right: Sequence[np.ndarray]) -> dict[str, Any]:
    """Shares of puzzles solved and of pieces right, with 95% intervals, of the right pieces of puzzles."""
    puzzles = len(right)
    solved = sum(bool(each.all()) for each in right)
    pieces = np.array([each.mean() for each in right])
    low, high = wilson(solved, puzzles)
    half = 1.96 * float(pieces.std()) / math.sqrt(puzzles)
    mean = float(pieces.mean())
    return {
        "puzzles": puzzles,
        "solved_identical": solved / puzzles,
        "solved_identical_low": low,
        "solved_identical_high": high,
        "pieces_identical": mean,
        "pieces_identical_low": max(0.0, mean - half),
        "pieces_identical_high": min(1.0, mean + half),
    }
