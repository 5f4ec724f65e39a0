"""From matching borders to slots: beliefs about the slot of every piece, passed on from slot to slot.

A *label* is a piece, or a piece with a turn (label ``4 i + t`` turns piece i clockwise t times). The state
has a few numbers for every label and slot. In each round a label at a slot is told, for each of the four
sides, how probable the present beliefs make a neighbour that continues it. All rounds have the same weights.
Pieces have no identity and slots are known by their distance from the four sides, so one network solves every
grid.
"""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

FAINT = 1e-5
"""The probability of a neighbour below which nothing is learned from it."""
DIRECTIONS = ((0, 1), (-1, 0), (0, -1), (1, 0))
"""The steps (down, right) to the slot on the side 0 right, 1 top, 2 left and 3 bottom."""


class Neighbours(NamedTuple):
    """Probabilities of the label on each side of each label, as two readings of the matches."""

    labels: Tensor
    """``(*batch, 4, readings, labels, labels)``."""
    none: Tensor
    """That there is no piece: ``(*batch, 4, readings, labels)``."""


class Board(NamedTuple):
    """What a round has to know of the slots."""

    where: Tensor
    """Features ``(slots, hidden)``."""
    missing: Tensor
    """Whether there are fewer pieces than slots."""


class Placing(nn.Module):
    """Logits of every label and slot after some rounds."""

    def __init__(self, context: int = 64, channels: int = 16, hidden: int = 64, dropout: float = 0.2):
        super().__init__()
        self.channels = channels
        self.slots = nn.Sequential(nn.Linear(14, 64), nn.GELU(), nn.Linear(64, 64))
        self.content = nn.Sequential(nn.Dropout(dropout), nn.Linear(context, 64))
        self.sides = nn.Linear(8, 64)
        self.start = nn.Linear(64, channels)
        self.norm = nn.LayerNorm(channels)
        self.state = nn.Linear(channels, hidden)
        self.told = nn.Linear(4 * 4 + 3, hidden)
        self.where = nn.Linear(64, hidden)
        self.down = nn.Linear(hidden, channels)
        self.logit = nn.Linear(channels, 1)
        self.empty = nn.Parameter(torch.tensor([0.0, -4.0]))

    def forward(
        self,
        neighbours: Neighbours,
        content: Tensor,
        grid: tuple[int, int],
        rounds: int,
        *,
        turns: int = 1,
        allowed: Tensor | None = None,
    ) -> list[Tensor]:
        """Logits ``(*batch, labels, slots)`` after each round.

        ``content`` ``(*batch, labels, width)`` are features of the pieces. ``allowed``
        ``(*batch, labels)`` says which labels may be chosen.
        """
        state, board = self.begin(neighbours, content, grid, turns)
        outcome = []
        for _ in range(rounds):
            state = self.round(state, board, neighbours, grid, turns, allowed)
            outcome.append(self._allowed(self.logits(state), allowed))
        return outcome

    def begin(
        self, neighbours: Neighbours, content: Tensor, grid: tuple[int, int], turns: int = 1
    ) -> tuple[Tensor, Board]:
        """The state ``(*batch, labels, slots, channels)`` before the first round, and the board."""
        features = slot_features(grid, content.device)
        place = self.slots(features)
        sides = neighbours.none.movedim(-1, -3).flatten(-2).clamp(min=FAINT).log() / 4
        known = self.content(content) + self.sides(sides)
        state = self.start(F.gelu(known)[..., :, None, :] * place).float()
        # A tensor, so that a graph of this holds for puzzles with and without missing pieces.
        pieces = content.new_ones(content.shape[-2]).sum() / turns
        missing = pieces < features.new_ones(features.shape[0]).sum()
        return state, Board(self.where(place), missing)

    def round(
        self,
        state: Tensor,
        board: Board,
        neighbours: Neighbours,
        grid: tuple[int, int],
        turns: int = 1,
        allowed: Tensor | None = None,
    ) -> Tensor:
        """The state after one more round."""
        told = self._told(self.logits(state), neighbours, grid, turns, allowed, board.missing)
        hidden = self.state(self.norm(state)) + self.told(told) + board.where
        return state + self.down(F.gelu(hidden))

    def logits(self, state: Tensor) -> Tensor:
        """``(*batch, labels, slots)``."""
        with torch.autocast(state.device.type, enabled=False):
            return F.linear(state, self.logit.weight, self.logit.bias)[..., 0]

    def _told(
        self,
        logits: Tensor,
        neighbours: Neighbours,
        grid: tuple[int, int],
        turns: int,
        allowed: Tensor | None,
        missing: Tensor,
    ) -> Tensor:
        """What is said about each label at each slot, ``(*batch, labels, slots, 19)``."""
        logits = self._allowed(logits, allowed)
        of_piece = (logits.unflatten(-2, (-1, turns)).movedim(-2, -1).flatten(-2)).log_softmax(-1)
        of_piece = of_piece.unflatten(-1, (-1, turns)).movedim(-1, -2).flatten(-3, -2)
        empty = torch.where(missing, self.empty[0], self.empty[1]).expand(
            *logits.shape[:-2], 1, logits.shape[-1]
        )
        of_slot = torch.cat([logits, empty.to(logits.dtype)], -2).log_softmax(-2)[..., :-1, :]
        beliefs = torch.stack([of_piece, of_slot], -3).exp()  # (*batch, 2, labels, slots)
        nobody = (1 - beliefs.sum(-2)).clamp(0, 1)  # (*batch, 2, slots)
        heard = []
        for side, step in enumerate(DIRECTIONS):
            beside = _shifted(beliefs.unflatten(-1, grid), step, 0.0).flatten(-2)
            alone = _shifted(nobody.unflatten(-1, grid), step, 1.0).flatten(-2)
            probability = torch.einsum(
                "...rij,...bjs->...rbis", neighbours.labels[..., side, :, :, :], beside
            )
            none = neighbours.none[..., side, :, None, :, None] * alone[..., None, :, None, :]
            heard.append((probability.float() + none + FAINT).log() / 4)
        said = torch.stack(heard, -5).flatten(-5, -3)  # (*batch, 16, labels, slots)
        own = torch.stack([of_piece, of_slot, missing.to(of_slot.dtype).expand_as(of_slot)], -3)
        return torch.cat([said, own.clamp(-30, 30) / 4], -3).movedim(-3, -1)

    @staticmethod
    def _allowed(logits: Tensor, allowed: Tensor | None) -> Tensor:
        return logits if allowed is None else logits.masked_fill(~allowed[..., None], -1e4)


def slot_features(grid: tuple[int, int], device: torch.device) -> Tensor:
    """The distance of each slot from the four sides, near and far, ``(slots, 14)``."""
    rows, columns = grid
    down, right = (torch.arange(length, device=device, dtype=torch.float32) for length in grid)
    height, width = (torch.ones_like(line).sum() for line in (down, right))  # in a graph they are not fixed
    row, column = (x.expand(rows, columns).flatten() for x in (down[:, None], right))
    away = torch.stack([row, height - 1 - row, column, width - 1 - column], -1)
    size = torch.stack([height, width]).expand(row.shape[0], 2) / 8
    length = torch.stack([height, height, width, width])
    return torch.cat([torch.exp(-away), torch.exp(-away / 4), away / length, size], -1)


def upright_neighbours(across: tuple[Tensor, Tensor], down: tuple[Tensor, Tensor]) -> Neighbours:
    """Of log-probabilities of what continues a border and of what it continues, for both axes."""
    after_right, before_left = across
    after_bottom, before_top = down
    labels, none = [], []
    for own, others in (
        (after_right, before_left),
        (before_top, after_bottom),
        (before_left, after_right),
        (after_bottom, before_top),
    ):
        read = own.exp()[..., :-1], others.exp()[..., :-1].transpose(-1, -2)
        labels.append(torch.stack(read, -3))
        none.append(torch.stack([own[..., -1].exp(), 1 - read[1].sum(-1).clamp(0, 1)], -2))
    return Neighbours(torch.stack(labels, -4), torch.stack(none, -3))


def turned_neighbours(after: Tensor) -> Neighbours:
    """Of log-probabilities ``(*batch, 4 n, 4 n + 1)`` of what continues side k of piece i, at 4 i + k."""
    labels = torch.arange(after.shape[-2], device=after.device)
    read = after.exp()[..., :-1]
    others = read.transpose(-1, -2)
    lone = torch.stack([after[..., -1].exp(), 1 - others.sum(-1).clamp(0, 1)], -2)
    both = torch.stack([read, others], -3)
    matrices, none = [], []
    for side in range(4):
        # Turned clockwise t times, a piece has its side (d + t) mod 4 in direction d.
        own = labels // 4 * 4 + (labels + side) % 4
        facing = labels // 4 * 4 + (labels + side + 2) % 4
        matrices.append(both[..., own[:, None], facing])
        none.append(lone[..., own])
    return Neighbours(torch.stack(matrices, -4), torch.stack(none, -3))


def _shifted(values: Tensor, step: tuple[int, int], outside: float) -> Tensor:
    """``values[..., r, c]`` becomes the value one step on, or ``outside`` beyond the grid."""
    down, right = step
    rows, columns = values.shape[-2:]
    padded = F.pad(values, (1, 1, 1, 1), value=outside)
    return padded[..., 1 + down : 1 + down + rows, 1 + right : 1 + right + columns]
