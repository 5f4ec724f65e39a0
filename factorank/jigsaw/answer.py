"""The answer to one puzzle: where its pieces go, how sure that is, and the picture."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from factorank.errors import FactorankError

DOUBTFUL = 0.9
"""A piece whose probability is below this is doubtful."""
EMPTY = 128
"""The grey of an empty slot."""


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
    """That the whole solution is right; right up to a turn of the whole if pieces may be turned and the model
    does not know which way is ``upright``."""
    true_slots: Tensor | None = None
    """The true slot of each piece, for a puzzle that was made of a picture."""
    turns: Tensor | None = None
    """How often each piece is turned clockwise, int64 ``(n,)``; None if no piece could be turned."""
    true_turns: Tensor | None = None
    piece_probability: Tensor | None = None
    """The probability of each piece's place, float64 ``(n,)``, up to a turn of the whole; None from models
    that give only that of the whole."""
    upright: float | None = None
    """The probability that the picture stands upright, if pieces may be turned and the model knows of it. It
    is part of ``probability``."""

    @property
    def picture(self) -> np.ndarray:
        """The pieces put together, uint8 ``(height, width, 3)``, at their own resolution; empty slots are
        grey."""
        return self.laid(self.slots, self.turns)

    @property
    def scrambled(self) -> np.ndarray:
        """The pieces row by row in the order of the puzzle, as a picture."""
        return self.laid(torch.arange(len(self.pieces)))

    @property
    def truth(self) -> np.ndarray:
        """The picture that the puzzle was made of."""
        return self.laid(*self._truth())

    @property
    def wrong(self) -> list[int]:
        """The slots whose pixels differ from those of the true picture."""
        solution, truth = (self._by_slot(*which) for which in ((self.slots, self.turns), self._truth()))
        return (solution != truth).flatten(1).any(-1).nonzero()[:, 0].tolist()

    @property
    def empty(self) -> list[int]:
        """The slots without a piece."""
        filled = set(self.slots.tolist())
        return [slot for slot in range(self.grid[0] * self.grid[1]) if slot not in filled]

    @property
    def doubtful(self) -> dict[int, float]:
        """The slots whose piece is doubtful, with its probability."""
        if self.piece_probability is None:
            return {}
        sure = zip(self.slots.tolist(), self.piece_probability.tolist(), strict=True)
        return dict(sorted((slot, chance) for slot, chance in sure if chance < DOUBTFUL))

    @property
    def summary(self) -> str:
        """A line for people."""
        share = 100 * self.probability
        percent = "over 99.9%" if share > 99.95 else "below 0.1%" if share < 0.05 else f"{share:.1f}%"
        turned = "" if self.turns is None or self.upright is not None else " up to a turn of the whole"
        solution = f"probability of the solution{turned} {percent}"
        if self.empty:
            solution = f"{len(self.empty)} of {self.grid[0] * self.grid[1]} slots empty, {solution}"
        if self.true_slots is None:
            return solution
        n, wrong = len(self.pieces), len(self.wrong)
        return f"{f'{n - wrong} of' if wrong else 'all'} {n} pieces right, {solution}"

    def laid(self, slots: Tensor, turns: Tensor | None = None) -> np.ndarray:
        """A picture of the pieces in some slots, each turned clockwise so often."""
        rows, columns = self.grid
        by_slot = self._by_slot(slots, turns)
        joined = by_slot.unflatten(0, (rows, columns)).transpose(1, 2).flatten(2, 3).flatten(0, 1)
        return joined.numpy()

    def _by_slot(self, slots: Tensor, turns: Tensor | None) -> Tensor:
        pieces = self.pieces
        if turns is not None:
            pairs = zip(pieces, turns.tolist(), strict=True)
            pieces = torch.stack([torch.rot90(piece, -turn, (0, 1)) for piece, turn in pairs])
        by_slot = torch.full((self.grid[0] * self.grid[1], *pieces.shape[1:]), EMPTY, dtype=torch.uint8)
        by_slot[slots] = pieces
        return by_slot

    def _truth(self) -> tuple[Tensor, Tensor | None]:
        if self.true_slots is None:
            raise FactorankError("the truth is known only of a puzzle that was made of a picture")
        return self.true_slots, self.true_turns
