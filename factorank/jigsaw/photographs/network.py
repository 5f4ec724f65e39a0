"""The network for photographs: one model for every grid, for turned and for missing pieces."""

from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from factorank.jigsaw.photographs.matching import BorderMatching, Matches
from factorank.jigsaw.photographs.placing import Placing, turned_neighbours, upright_neighbours
from factorank.jigsaw.photographs.views import PIECE, Views


class Reading(NamedTuple):
    """What one evaluation gives."""

    logits: list[Tensor]
    """Logits ``(*batch, labels, slots)`` after each round; the last ones are the answer."""
    matches: tuple[Matches, ...]
    """Right with left and bottom with top borders; or all sides at once, for turned pieces."""


class PhotographNetwork(nn.Module):
    """Pieces of a photograph to beliefs about their slots, and their turns, in one evaluation.

    Args:
        context: the width of the features of a whole piece.
        width: the width of the convolutions along a border.
        features: the features of a border that are compared.
        channels: numbers in the state of a label at a slot.
        hidden: hidden units of a round.
        dropout: of what a piece shows when its slot is guessed from that alone.
    """

    def __init__(
        self,
        context: int = 96,
        width: int = 128,
        features: int = 48,
        channels: int = 16,
        hidden: int = 96,
        dropout: float = 0.2,
    ) -> None:
        super().__init__()
        self.options: dict[str, Any] = {
            "context": context,
            "width": width,
            "features": features,
            "channels": channels,
            "hidden": hidden,
            "dropout": dropout,
        }
        self.look = PieceContent(context)
        self.matching = BorderMatching(width, features, context)
        self.placing = Placing(context, channels, hidden, dropout)

    def forward(
        self, views: Views, grid: tuple[int, int], *, turned: bool = False, rounds: int | None = None
    ) -> Reading:
        """Read the pieces of puzzles.

        With ``turned`` a label is a piece and a turn. Only the first piece has its turn fixed: it is laid as
        it is given, because without that a puzzle has four solutions, turned as a whole.
        """
        content = self.look(views.turned)
        rounds = rounds or rounds_for(grid)
        if not turned:
            across, down = self.matching.upright(views, content)
            neighbours = upright_neighbours(*((m.after_first(), m.before_second()) for m in (across, down)))
            logits = self.placing(neighbours, content[..., 0, :], grid, rounds)
            return Reading(logits, (across, down))
        matches = self.matching.turned(views, content)
        neighbours = turned_neighbours(matches.after_first())
        labels = torch.arange(4 * content.shape[-3], device=content.device)
        allowed = ((labels >= 4) | (labels == 0)).expand(*content.shape[:-3], -1)
        # What a piece shows says how the picture stands, which the first piece has decided already.
        nothing = torch.zeros_like(content).flatten(-3, -2)
        logits = self.placing(neighbours, nothing, grid, rounds, turns=4, allowed=allowed)
        return Reading(logits, (matches,))


class PieceContent(nn.Module):
    """Convolutions over a whole piece ``(*batch, 3, PIECE, PIECE)`` to features ``(*batch, width)``."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(3, 32, 4, stride=2, padding=1),
            nn.GELU(),
            nn.Conv2d(32, 64, 4, stride=2, padding=1),
            nn.GELU(),
            nn.Conv2d(64, 96, 4, stride=2, padding=1),
            nn.GELU(),
        )
        self.down = nn.Linear(96 * (PIECE // 8) ** 2, width)
        self.norm = nn.LayerNorm(width)

    def forward(self, pieces: Tensor) -> Tensor:
        features = self.layers(pieces.flatten(0, -4)).flatten(1)
        return self.norm(F.gelu(self.down(features))).unflatten(0, pieces.shape[:-3])


def rounds_for(grid: tuple[int, int]) -> int:
    """Rounds in which every piece hears of every side of the picture."""
    return min(6 + max(grid), 20)
