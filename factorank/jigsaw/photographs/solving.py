"""From one evaluation of the network to a solution and how sure it is.

The network runs on any device (:func:`read_pieces`); what it says of a puzzle is plain arrays
(:class:`Evidence`), from which the solution is worked out on the CPU (:func:`settle`).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from factorank.assignment import best_assignment
from factorank.baselines.edge_compatibility import EMPTY, assemble, fill
from factorank.jigsaw.photographs.assembly import FLOOR, WEIGHT, Scores, improve
from factorank.jigsaw.photographs.certainty import Certainty
from factorank.jigsaw.photographs.network import PhotographNetwork, Reading
from factorank.jigsaw.photographs.views import Views, views_of


@dataclass(frozen=True)
class Evidence:
    """What the network says of one puzzle."""

    grid: tuple[int, int]
    turns: int
    """1, or 4 for pieces that may be turned: label ``turns * i + t`` is piece i turned clockwise t times."""
    places: np.ndarray
    """Log-probabilities ``(labels, slots)`` of the label and slot of each piece: each piece's sum to one."""
    right: np.ndarray
    """Log-probabilities, of both borders, that label b lies right of label a; the last label is no piece:
    ``(labels + 1, labels + 1)``."""
    below: np.ndarray


@dataclass(frozen=True)
class Placed:
    """A solution of one puzzle."""

    slots: np.ndarray
    """The slot of each piece, int64 ``(n,)``."""
    turns: np.ndarray
    """How often each piece is turned clockwise, int64 ``(n,)``."""
    probability: float
    """Of the whole solution."""
    pieces: np.ndarray
    """The probability of each piece's place, ``(n,)``."""
    facts: tuple[float, float]
    """What the probability is derived from; see :class:`Certainty`."""
    piece_facts: np.ndarray
    """The same of each piece, ``(n, 2)``."""
    score: float
    """The score by which boards are compared."""
    upright: float | None = None
    """The probability that the picture stands upright, if one is known. It is part of ``probability``."""


@torch.no_grad()
def read_pieces(
    network: PhotographNetwork, pieces: Sequence[Tensor], grid: tuple[int, int], *, turned: bool = False
) -> list[Evidence]:
    """The evidence of puzzles of one grid, each uint8 ``(n, height, width, 3)``, in one evaluation.

    Puzzles may differ in the size of their pieces, not in their number.
    """
    device = next(network.parameters()).device
    every = [views_of(puzzle.to(device), turned=turned) for puzzle in pieces]
    views = Views(*(torch.stack(parts) for parts in zip(*every, strict=True)))
    with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
        reading = network(views, grid, turned=turned)
    if turned:
        return _turned_evidence(reading, grid)
    across, down = ((match.after_first(), match.before_second()) for match in reading.matches)
    return upright_evidence(reading.logits[-1], across, down, grid)


def upright_evidence(
    logits: Tensor, across: tuple[Tensor, Tensor], down: tuple[Tensor, Tensor], grid: tuple[int, int]
) -> list[Evidence]:
    """Of logits ``(batch, n, slots)`` and log-probabilities ``(batch, n, n + 1)`` of what meets each border.

    Those of an axis are of the piece after each piece, and of the piece before it.
    """
    right, below = (_beside(*(log_probs.clamp(min=FLOOR) for log_probs in axis)) for axis in (across, down))
    return _evidence(logits.float().log_softmax(-1), right, below, grid, 1)


def _turned_evidence(reading: Reading, grid: tuple[int, int]) -> list[Evidence]:
    places = reading.logits[-1].float().unflatten(1, (-1, 4)).flatten(2).log_softmax(-1)
    after = reading.matches[0].after_first().clamp(min=FLOOR)
    labels = torch.arange(after.shape[1], device=after.device)
    right, below = (
        _beside(after, after, _side(labels, first), _side(labels, (first + 2) % 4)) for first in (0, 3)
    )
    return _evidence(places.unflatten(-1, (4, -1)).flatten(1, 2), right, below, grid, 4)


def _evidence(
    places: Tensor, right: Tensor, below: Tensor, grid: tuple[int, int], turns: int
) -> list[Evidence]:
    arrays = [x.double().cpu().numpy() for x in (places, right, below)]
    return [Evidence(grid, turns, *each) for each in zip(*arrays, strict=True)]


def settle(evidence: Evidence, certainty: Certainty, *, search: bool = True, seed: int = 0) -> Placed:
    """Solve a puzzle from its evidence: by the assignment alone, or with a search from there."""
    labels, slots = evidence.places.shape
    turns, pieces, blank = evidence.turns, labels // evidence.turns, labels
    scores = Scores(
        evidence.right,
        evidence.below,
        np.concatenate([WEIGHT * np.maximum(evidence.places, 2 * FLOOR), np.zeros((1, slots))]),
        turns,
    )
    board = _assigned(evidence)
    if search:
        boards = [board]
        if turns == 1:
            right, below = -evidence.right[:-1, :-1], -evidence.below[:-1, :-1]
            joined = fill(assemble(right, below, evidence.grid), right, below, -scores.at[:-1])
            boards.append(np.where(joined == EMPTY, blank, joined))
        board = improve(scores, boards, seed=seed)
    flat = board.ravel()
    filled = np.flatnonzero(flat != blank)
    piece = flat[filled] // turns
    slot, turn = np.empty((2, pieces), dtype=np.int64)
    slot[piece], turn[piece] = filled, flat[filled] % turns
    own = turns * np.arange(pieces) + turn
    gains = scores.gains(board, slot)
    gains = gains if pieces < slots else gains[:-1]
    gains = gains - gains.max(0)
    fits = gains[own, np.arange(pieces)] - np.log(np.exp(gains).sum(0))
    believed = evidence.places[own, slot]
    facts = Certainty.facts(fits, believed)
    each = Certainty.piece_facts(fits, believed)
    return Placed(slot, turn, certainty.whole(facts), certainty.piece(each), facts, each, scores.total(board))


def _assigned(evidence: Evidence) -> np.ndarray:
    """The likeliest board by the places alone; empty slots hold the label after the last."""
    labels, slots = evidence.places.shape
    turns, pieces = evidence.turns, labels // evidence.turns
    by_turn = evidence.places.reshape(pieces, turns, slots)
    values = np.zeros((slots, slots))
    values[:pieces] = np.maximum(by_turn.max(1), -1e6)
    slot = best_assignment(torch.from_numpy(values)).numpy()[:pieces]
    board = np.full(slots, labels)
    piece = np.arange(pieces)
    board[slot] = turns * piece + by_turn.argmax(1)[piece, slot]
    return board.reshape(evidence.grid)


def _side(labels: Tensor, direction: int) -> Tensor:
    """The border, 4 i + k, that a label has in a direction."""
    return labels // 4 * 4 + (labels + direction) % 4


def _beside(after: Tensor, before: Tensor, own: Tensor | None = None, facing: Tensor | None = None) -> Tensor:
    """Log-probabilities of both borders ``(batch, labels + 1, labels + 1)``; the last label is no piece.

    ``after`` ``(batch, first, second + 1)`` is of what continues a border, ``before`` of what it continues.
    ``own`` and ``facing`` are the borders of the labels, unless they are the labels.
    """
    count = after.shape[1]
    own = torch.arange(count, device=after.device) if own is None else own
    facing = torch.arange(count, device=after.device) if facing is None else facing
    result = after.new_zeros(len(after), count + 1, count + 1)
    result[:, :-1, :-1] = after[:, own[:, None], facing] + before[:, facing[:, None], own].transpose(1, 2)
    result[:, :-1, -1], result[:, -1, :-1] = after[:, own, -1], before[:, facing, -1]
    return result
