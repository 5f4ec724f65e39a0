"""Better boards: from the assignment of the slots to one that also agrees with all matches of borders.

The score of a board is a sum of log-probabilities: of what lies beside each side of each piece, by the
matches, and of the slot of each piece, by the placing, with a weight. The search starts from given boards. It
assigns the pieces of sets of slots that do not touch, exactly, as long as that helps; it shifts the largest
part whose borders match and fills the rest anew. It never gives a board of a lower score than it started
from.
"""

from dataclasses import dataclass

import numpy as np
import torch

from factorank.assignment import best_assignment
from factorank.baselines.edge_compatibility import EMPTY, fill

WEIGHT = 0.5
"""How much the placing counts beside the matches."""
SURE = np.log(0.5)
"""The log-probability from which a match holds a part together."""
FLOOR = -14.0
"""The least log-probability: single impossible matches do not outweigh everything else."""


@dataclass(frozen=True)
class Scores:
    """What a board is scored by. The last label means that there is no piece."""

    right: np.ndarray
    """Log-probabilities, of both sides together, of label b to the right of label a:
    ``(labels + 1, labels + 1)``."""
    below: np.ndarray
    at: np.ndarray
    """Log-probabilities of labels at slots, ``(labels + 1, slots)``, with their weight."""
    turns: int = 1

    @property
    def nothing(self) -> int:
        return len(self.right) - 1

    def total(self, board: np.ndarray) -> float:
        """The score of a board ``(rows, columns)``."""
        padded = np.pad(board, 1, constant_values=self.nothing)
        rows, columns = padded[1:-1], padded[:, 1:-1]
        across = self.right[rows[:, :-1], rows[:, 1:]].sum()
        down = self.below[columns[:-1], columns[1:]].sum()
        return float(across + down + self.at[board.ravel(), np.arange(board.size)].sum())

    def gains(self, board: np.ndarray, slots: np.ndarray) -> np.ndarray:
        """The score of each label at each of the slots, with the neighbours that are there."""
        padded = np.pad(board, 1, constant_values=self.nothing)
        y, x = np.divmod(slots, board.shape[1])
        left, right = padded[y + 1, x], padded[y + 1, x + 2]
        above, under = padded[y, x + 1], padded[y + 2, x + 1]
        beside = self.right[left].T + self.right[:, right] + self.below[above].T + self.below[:, under]
        return beside + self.at[:, slots]


def improve(scores: Scores, boards: list[np.ndarray], *, tries: int = 4, seed: int = 0) -> np.ndarray:
    """The best board that is reached from some boards; labels, or ``scores.nothing`` for an empty slot."""
    random = np.random.default_rng(seed)
    best = max((polish(scores, board, random) for board in boards), key=scores.total)
    for _ in range(tries):
        total = scores.total(best)
        others = _rebuilt(scores, best)
        if not others:
            break
        others = sorted(others, key=scores.total, reverse=True)[:3]
        candidate = max((polish(scores, board, random) for board in others), key=scores.total)
        if scores.total(candidate) <= total + 1e-9:
            break
        best = candidate
    return best


def polish(scores: Scores, board: np.ndarray, random: np.random.Generator) -> np.ndarray:
    """Assign the labels of slots that do not touch, and exchange two that do, until nothing improves."""
    board, rest = board.copy(), 0
    y, x = np.divmod(np.arange(board.size), board.shape[1])
    sets = [np.flatnonzero((y + x) % 2 == parity) for parity in (0, 1)]
    while rest < 4:
        changed = False
        for slots in [*sets, _apart(board.shape, random), _apart(board.shape, random)]:
            changed |= _reassign(scores, board, slots)
        changed = changed or _swap(scores, board)
        rest = 0 if changed else rest + 2
    return board


def _swap(scores: Scores, board: np.ndarray) -> bool:
    """Exchange two slots that touch, which no set above holds together, if that helps; whether it did."""
    total = scores.total(board)
    for across in (True, False):
        for y, x in np.ndindex(board.shape[0] - (not across), board.shape[1] - across):
            first, second = (y, x), (y + (not across), x + across)
            board[first], board[second] = board[second], board[first]
            if scores.total(board) > total + 1e-9:
                return True
            board[first], board[second] = board[second], board[first]
    return False


def _reassign(scores: Scores, board: np.ndarray, slots: np.ndarray) -> bool:
    """Assign the pieces of some slots anew; whether that helped."""
    held = board.ravel()[slots]
    gains = scores.gains(board, slots)
    now = gains[held, np.arange(len(slots))].sum()
    turns, nothing = scores.turns, scores.nothing
    choices = held[:, None] if turns == 1 else held[:, None] // turns * turns + np.arange(turns)
    choices = np.where(held[:, None] == nothing, nothing, choices)  # (slots, turns)
    values = gains[choices]  # (piece, turn, slot)
    turn = values.argmax(1)
    value = values.max(1)
    order = best_assignment(torch.from_numpy(value)).numpy()  # the slot of each piece
    pieces = np.arange(len(slots))
    if value[pieces, order].sum() <= now + 1e-9:
        return False
    flat = board.ravel()
    flat[slots[order]] = choices[pieces, turn[pieces, order]]
    board[:] = flat.reshape(board.shape)
    return True


def _apart(shape: tuple[int, int], random: np.random.Generator) -> np.ndarray:
    """A random set of slots no two of which touch."""
    rank = random.random(shape)
    chosen = np.zeros(shape, dtype=bool)
    blocked = np.zeros((shape[0] + 2, shape[1] + 2), dtype=bool)
    for slot in rank.ravel().argsort():
        y, x = divmod(int(slot), shape[1])
        if not blocked[y + 1, x + 1]:
            chosen[y, x] = True
            blocked[[y, y + 2, y + 1, y + 1], [x + 1, x + 1, x, x + 2]] = True
    return np.flatnonzero(chosen.ravel())


def _rebuilt(scores: Scores, board: np.ndarray) -> list[np.ndarray]:
    """Boards on which only the largest matching part of a board is kept, wherever it can lie."""
    part = _largest_part(scores, board)
    if part.all():
        return []
    y, x = part.nonzero()
    rows, columns = board.shape
    used = board[board != scores.nothing]
    labels = (used[:, None] // scores.turns * scores.turns + np.arange(scores.turns)).ravel()
    boards = []
    for down in range(-y.min(), rows - y.max()):
        for across in range(-x.min(), columns - x.max()):
            if abs(down) + abs(across) > 4:
                continue
            start = np.full(board.shape, EMPTY)
            start[y + down, x + across] = board[y, x]
            filled = fill(
                start,
                -scores.right[:-1, :-1],
                -scores.below[:-1, :-1],
                -scores.at[:-1],
                turns=scores.turns,
                labels=labels,
            )
            boards.append(np.where(filled == EMPTY, scores.nothing, filled))
    return boards


def _largest_part(scores: Scores, board: np.ndarray) -> np.ndarray:
    """The slots of the largest part that is held together by sure matches, bool ``(rows, columns)``."""
    sure_right = scores.right[board[:, :-1], board[:, 1:]] > 2 * SURE
    sure_below = scores.below[board[:-1], board[1:]] > 2 * SURE
    there = board != scores.nothing
    mark = np.arange(board.size).reshape(board.shape)
    while True:
        before = mark.copy()
        low = np.minimum(mark[:, :-1], mark[:, 1:])
        mark[:, :-1] = np.where(sure_right, low, mark[:, :-1])
        mark[:, 1:] = np.where(sure_right, np.minimum(low, mark[:, 1:]), mark[:, 1:])
        low = np.minimum(mark[:-1], mark[1:])
        mark[:-1] = np.where(sure_below, low, mark[:-1])
        mark[1:] = np.where(sure_below, np.minimum(low, mark[1:]), mark[1:])
        if (mark == before).all():
            break
    names, counts = np.unique(mark[there], return_counts=True)
    result: np.ndarray = (mark == names[counts.argmax()]) & there
    return result
