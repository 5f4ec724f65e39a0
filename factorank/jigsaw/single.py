"""Solving one puzzle: the pieces of a user, or a picture that is cut and scrambled first."""

import math
import os
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from factorank.data.pictures import at_most, read_picture, resized, square
from factorank.errors import FactorankError
from factorank.jigsaw.answer import Answer
from factorank.jigsaw.certainty import among_permutations
from factorank.jigsaw.model import pieces_of
from factorank.jigsaw.photographs import PhotographModel
from factorank.jigsaw.photographs.model import LARGEST as MOST_PIECES
from factorank.jigsaw.photographs.puzzles import Task, make_puzzle
from factorank.jigsaw.puzzles import cut
from factorank.jigsaw.solving import Search, assigns, law_of, precision_of, solve_puzzles, value_log_probs
from factorank.models import PermutationModel
from factorank.permutations import inverse, is_permutation, random_permutations

LARGEST = 1024
"""The side, in pixels, to which a larger picture is scaled down for a model of one grid."""
LONGEST = 4096
"""The longer side, in pixels, to which a larger picture is scaled down before it is cut."""


def solve(
    puzzle: Any,
    grid: int | tuple[int, int] | None = None,
    *,
    turned: bool = False,
    search: bool = True,
    model: PhotographModel | PermutationModel | None = None,
    nfe: int | None = None,
    seed: int = 0,
) -> Answer:
    """Solve a jigsaw puzzle.

    Args:
        puzzle: the pieces in any order, an array or tensor uint8 ``(n, height, width, 3)``. Where pieces are
            missing, slots stay empty. Or a picture, its path or uint8 ``(height, width, 3)``, which is cut
            and scrambled.
        grid: rows and columns, or one number for both; that of a model of one grid unless given.
        turned: pieces may lie in any of four ways; they are square. A picture is cut into square pieces.
        search: go on from the answer of one evaluation to the board that agrees best with all borders.
        model: the model for photographs that comes with the package unless given; or one of a single grid
            from :func:`factorank.jigsaw.load`, which takes no ``turned`` or missing pieces.
        nfe: for models of one grid: network evaluations; 1 unless given.
        seed: decides how a picture is scrambled.

    A picture with a longer side than 4,096 pixels is scaled down. Pieces are read one by one: no pixel of
    another piece is used.

    >>> import numpy as np
    >>> y, x = np.mgrid[0:96, 0:128]
    >>> drawing = np.stack([2 * x, 2 * y, 255 - x - y], -1).astype(np.uint8)  # redder to the right
    >>> pieces = np.stack([drawing[i : i + 32, j : j + 32] for i in (0, 32, 64) for j in (96, 64, 0, 32)])
    >>> answer = solve(pieces, grid=(3, 4))
    >>> answer.slots
    tensor([ 3,  2,  0,  1,  7,  6,  4,  5, 11, 10,  8,  9])
    >>> np.array_equal(answer.picture, drawing), answer.probability > 0.5
    (True, True)
    """
    if isinstance(model, PermutationModel):
        if turned:
            raise FactorankError("a model of one grid solves no puzzles of turned pieces", parameter="turned")
        return _by_one_grid(puzzle, grid, model, Search(nfe=nfe), seed)
    if nfe is not None:
        raise FactorankError("the model for photographs takes one evaluation", parameter="nfe")
    rows, columns = _checked_grid(grid)
    model = PhotographModel.load() if model is None else model
    picture = _as_picture(puzzle)
    if picture is None:
        pieces = _checked_pieces(puzzle, rows, columns, square=turned)
        placed = model.solve([pieces], (rows, columns), turned=turned, search=search)[0]
        truth: tuple[Tensor | None, Tensor | None] = (None, None)
    else:
        task = Task((rows, columns), turned=turned)
        whole = torch.from_numpy(at_most(picture, LONGEST))
        made = make_puzzle(whole, task, torch.Generator().manual_seed(seed))
        pieces, truth = made.pieces, (made.slots, made.turns if turned else None)
        placed = model.solve([pieces], (rows, columns), turned=turned, search=search)[0]
    return Answer(
        (rows, columns),
        pieces,
        torch.from_numpy(placed.slots),
        placed.probability,
        truth[0],
        torch.from_numpy(placed.turns) if turned else None,
        truth[1],
        torch.from_numpy(placed.pieces),
        placed.upright,
    )


def _checked_grid(grid: int | tuple[int, int] | None) -> tuple[int, int]:
    if grid is None:
        raise FactorankError("a puzzle is solved with a {parameter} or a model", parameter="grid")
    rows, columns = (grid, grid) if isinstance(grid, int) else grid
    if min(rows, columns) < 1 or not 2 <= rows * columns <= MOST_PIECES:
        raise FactorankError(
            f"a puzzle has 2 to {MOST_PIECES} pieces, not {rows}×{columns}", parameter="grid"
        )
    return rows, columns


def _checked_pieces(puzzle: Any, rows: int, columns: int, *, square: bool) -> Tensor:
    pieces = _as_pieces(puzzle)
    if not 2 <= len(pieces) <= rows * columns:
        raise FactorankError(f"a {rows}×{columns} puzzle has {rows * columns} pieces, not {len(pieces)}")
    height, width = pieces.shape[1:3]
    if min(height, width) < 2:
        raise FactorankError(f"a piece has at least 2×2 pixels, not {height}×{width}")
    if square and height != width:
        raise FactorankError(
            f"pieces that may be turned are square, not {height}×{width}", parameter="turned"
        )
    return pieces


def _by_one_grid(
    puzzle: Any, grid: int | tuple[int, int] | None, model: PermutationModel, search: Search, seed: int
) -> Answer:
    """Solve with a model of one grid.

    It reads pieces of its own size. The middle square of a picture is resized whole, then cut. Loose pieces
    are resized one by one.
    """
    encoder, true_slots = pieces_of(model), None
    side = encoder.grid
    if grid not in (None, side, (side, side)):
        rows, columns = (grid, grid) if isinstance(grid, int) else grid or (side, side)
        raise FactorankError(
            f"the model solves {side}×{side} puzzles, not {rows}×{columns}", parameter="grid"
        )
    picture = _as_picture(puzzle)
    if picture is None:
        pieces = _as_pieces(puzzle)
        if len(pieces) != side**2:
            raise FactorankError(f"a {side}×{side} puzzle has {side**2} pieces, not {len(pieces)}")
        small = _resized_pieces(pieces, encoder.piece)
    else:
        picture = square(picture)
        if len(picture) < side * 2:
            raise FactorankError(
                f"the picture has {len(picture)} pixels on its shorter side, too few for {side} pieces of at"
                " least 2"
            )
        true_slots = random_permutations(side**2, generator=torch.Generator().manual_seed(seed))
        lengths = min(len(picture), LARGEST) // side, encoder.piece
        scaled = (torch.from_numpy(resized(picture, side * length)) for length in lengths)
        pieces, small = (cut(whole, side)[true_slots] for whole in scaled)
    slots, probability = _slots(model, small, search)
    return Answer((side, side), pieces, slots, probability, true_slots)


def _as_picture(puzzle: Any) -> np.ndarray | None:
    """The pixels of a picture; None for anything else."""
    if isinstance(puzzle, str | os.PathLike):
        return read_picture(puzzle)
    if isinstance(puzzle, np.ndarray | Tensor) and puzzle.ndim == 3 and puzzle.shape[-1] == 3:
        array = np.array(puzzle.cpu() if isinstance(puzzle, Tensor) else puzzle)
        if array.dtype == np.uint8:
            return array
    return None


def _as_pieces(puzzle: Any) -> Tensor:
    # A copy: torch takes no array that is read-only or runs backward.
    array = np.array(puzzle.detach().cpu().numpy() if isinstance(puzzle, Tensor) else puzzle)
    if array.dtype != np.uint8 or array.ndim != 4 or array.shape[-1] != 3 or array.size == 0:
        raise FactorankError(
            "a puzzle is the path of a picture or pieces uint8 (n, height, width, 3), not"
            f" {array.dtype} {array.shape}"
        )
    return torch.from_numpy(array)


def _resized_pieces(pieces: Tensor, side: int) -> Tensor:
    """Pieces ``(n, height, width, 3)`` scaled to ``(n, side, side, 3)``."""
    if pieces.shape[1:3] == (side, side):
        return pieces
    channels_first = pieces.movedim(-1, 1).float()
    scaled = F.interpolate(channels_first, (side, side), mode="bilinear", antialias=True, align_corners=False)
    return scaled.round().clamp(0, 255).to(torch.uint8).movedim(1, -1).contiguous()


@torch.no_grad()
def _slots(model: PermutationModel, pieces: Tensor, search: Search) -> tuple[Tensor, float]:
    """The slots ``(n,)`` of pieces of the model's size, and their probability."""
    device = next(model.parameters()).device
    batch = pieces[None].to(device)
    orders = solve_puzzles(model, batch, search)
    with precision_of(device):
        if assigns(model, search):
            probability = among_permutations(value_log_probs(model, batch)[0], orders[0])
        else:
            probability = math.exp(float(law_of(model, batch, search).log_prob(orders)[0]))
    order = orders[0].cpu()
    if not bool(is_permutation(order)):
        raise FactorankError(
            "the model's solution uses a slot twice: inline codes can leave the permutations"
        )
    return (order if pieces_of(model).direction == "slot-of-piece" else inverse(order)), probability
