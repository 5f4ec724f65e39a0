"""One puzzle and its solution: the pieces of a user, or a picture that is cut and scrambled first."""

import math
import os
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from factorank.data.pictures import read_picture, resized, square
from factorank.errors import FactorankError
from factorank.jigsaw.certainty import among_permutations
from factorank.jigsaw.model import pieces_of
from factorank.jigsaw.puzzles import cut, join
from factorank.jigsaw.shipped import load, not_shipped
from factorank.jigsaw.solving import Search, assigns, law_of, precision_of, solve_puzzles, value_log_probs
from factorank.models import PermutationModel
from factorank.permutations import inverse, is_permutation, random_permutations

LARGEST = 1024
"""The side, in pixels, to which a larger picture is scaled down before it is cut."""


@dataclass(frozen=True, eq=False)
class Answer:
    """A solved puzzle."""

    grid: tuple[int, int]
    """Rows and columns."""
    pieces: Tensor
    """The pieces in the order of the puzzle, uint8 ``(n, height, width, 3)``."""
    slots: Tensor
    """The slot of each piece, row by row: int64 ``(n,)``."""
    probability: float
    """The model's probability of the whole solution, among the permutations."""
    true_slots: Tensor | None = None
    """The true slot of each piece, for a puzzle that was made of a picture."""

    @property
    def picture(self) -> np.ndarray:
        """The pieces put together, uint8 ``(height, width, 3)``, at their own resolution."""
        return self._laid(self.slots)

    @property
    def scrambled(self) -> np.ndarray:
        """The pieces row by row in the order of the puzzle, as a picture."""
        return self._laid(torch.arange(len(self.pieces)))

    @property
    def truth(self) -> np.ndarray:
        """The picture that the puzzle was made of."""
        return self._laid(self._true_slots())

    @property
    def wrong(self) -> list[int]:
        """The slots whose pixels differ from those of the true picture."""
        laid, true = (self.pieces[inverse(slots)] for slots in (self.slots, self._true_slots()))
        return (laid != true).flatten(1).any(-1).nonzero()[:, 0].tolist()

    @property
    def summary(self) -> str:
        """A line for people."""
        share = 100 * self.probability
        percent = "over 99.9%" if share > 99.95 else "below 0.1%" if share < 0.05 else f"{share:.1f}%"
        solution = f"probability of the solution {percent}"
        if self.true_slots is None:
            return solution
        n, wrong = len(self.pieces), len(self.wrong)
        return f"{f'{n - wrong} of' if wrong else 'all'} {n} pieces right, {solution}"

    def _laid(self, slots: Tensor) -> np.ndarray:
        return join(self.pieces[inverse(slots)], self.grid[0]).numpy()

    def _true_slots(self) -> Tensor:
        if self.true_slots is None:
            raise FactorankError("the truth is known only of a puzzle that was made of a picture")
        return self.true_slots


def solve(
    puzzle: Any,
    grid: int | tuple[int, int] | None = None,
    *,
    model: PermutationModel | None = None,
    nfe: int | None = None,
    seed: int = 0,
) -> Answer:
    """Solve a jigsaw puzzle.

    Args:
        puzzle: the pieces in any order, an array or tensor uint8 ``(n, height, width, 3)``; or the path of a
            picture. The middle square of a picture is scaled to at most 1,024 pixels, cut and scrambled.
        grid: rows and columns, or one number for both; the model's unless given.
        model: a model of :func:`factorank.jigsaw.load`; the shipped one for the grid unless given.
        nfe: network evaluations; 1 unless given.
        seed: decides how a picture is scrambled.

    The model reads pieces of its own size. A picture is resized whole, then cut. Loose pieces are resized one
    by one: no pixel of another piece is used.

    >>> import numpy as np
    >>> y, x = np.mgrid[0:96, 0:96]
    >>> drawing = np.stack([2 * x, 2 * y, 255 - x - y], -1).astype(np.uint8)  # redder to the right
    >>> pieces = np.stack([drawing[i : i + 32, j : j + 32] for i in (0, 32, 64) for j in (64, 0, 32)])
    >>> answer = solve(pieces, grid=(3, 3))
    >>> answer.slots
    tensor([2, 0, 1, 5, 3, 4, 8, 6, 7])
    >>> np.array_equal(answer.picture, drawing), answer.probability > 0.5
    (True, True)
    """
    picture = square(read_picture(puzzle)) if isinstance(puzzle, str | os.PathLike) else None
    model = _model_for(grid, model)
    encoder, true_slots = pieces_of(model), None
    side = encoder.grid
    if picture is None:
        pieces = _checked_pieces(puzzle, side)
        small = _resized_pieces(pieces, encoder.piece)
    elif len(picture) < side * 2:
        raise FactorankError(
            f"{puzzle}: the picture has {len(picture)} pixels on its shorter side, too few for {side} pieces"
            " of at least 2"
        )
    else:
        true_slots = random_permutations(side**2, generator=torch.Generator().manual_seed(seed))
        lengths = min(len(picture), LARGEST) // side, encoder.piece
        scaled = (torch.from_numpy(resized(picture, side * length)) for length in lengths)
        pieces, small = (cut(whole, side)[true_slots] for whole in scaled)
    slots, probability = _slots(model, small, Search(nfe=nfe))
    return Answer((side, side), pieces, slots, probability, true_slots)


def _model_for(grid: int | tuple[int, int] | None, model: PermutationModel | None) -> PermutationModel:
    rows, columns = (grid, grid) if grid is None or isinstance(grid, int) else grid
    if model is None:
        if rows is None:
            raise FactorankError("a puzzle is solved with a {parameter} or a model", parameter="grid")
        if rows != columns:
            raise not_shipped(rows, columns)
        return load(rows)
    side = pieces_of(model).grid
    if grid is not None and (rows, columns) != (side, side):
        raise FactorankError(
            f"the model solves {side}×{side} puzzles, not {rows}×{columns}", parameter="grid"
        )
    return model


def _checked_pieces(puzzle: Any, grid: int) -> Tensor:
    # A copy: torch takes no array that is read-only or runs backward.
    array = np.array(puzzle.detach().cpu().numpy() if isinstance(puzzle, Tensor) else puzzle)
    if array.dtype != np.uint8 or array.ndim != 4 or array.shape[-1] != 3 or array.size == 0:
        raise FactorankError(
            "a puzzle is the path of a picture or pieces uint8 (n, height, width, 3), not"
            f" {array.dtype} {array.shape}"
        )
    if len(array) != grid**2:
        raise FactorankError(f"a {grid}×{grid} puzzle has {grid**2} pieces, not {len(array)}")
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
