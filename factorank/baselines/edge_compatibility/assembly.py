"""Assembly of a puzzle from how well pieces fit together: join the best fits, then fill the holes."""

import numpy as np

EMPTY = -1
CANDIDATES = 12
"""How many of the best fits of each border are tried."""


def assemble(right: np.ndarray, below: np.ndarray, grid: tuple[int, int]) -> np.ndarray:
    """Join pieces, the best fits first, into parts that neither overlap nor outgrow the grid.

    ``right[i, j]`` is the cost of piece j to the right of piece i, ``below[i, j]`` that of piece j below it.
    Gives the board ``(rows, columns)`` with the largest part, in the middle of where it can lie, and
    :data:`EMPTY` slots.
    """
    n = len(right)
    part_of = np.arange(n)
    members = {i: [i] for i in range(n)}
    place = np.zeros((n, 2), dtype=int)  # down and right, from the first piece of the part
    for cost, i, j, down, across in _best_first(right, below):
        if not np.isfinite(cost):
            break
        first, second = part_of[i], part_of[j]
        if first == second:
            continue
        shift = place[i] + (down, across) - place[j]
        moved = place[members[second]] + shift
        both = np.concatenate([place[members[first]], moved])
        if (np.ptp(both, axis=0) >= grid).any():
            continue
        if len({(int(y), int(x)) for y, x in both}) < len(both):
            continue
        place[members[second]] = moved
        part_of[members[second]] = first
        members[first] += members.pop(second)
        if len(members[first]) == n:
            break
    largest = max(members.values(), key=len)
    board = np.full(grid, EMPTY)
    where = place[largest] - place[largest].min(0)
    where += (np.array(grid) - 1 - where.max(0)) // 2
    board[where[:, 0], where[:, 1]] = largest
    return board


def fill(
    board: np.ndarray,
    right: np.ndarray,
    below: np.ndarray,
    extra: np.ndarray | None = None,
    *,
    turns: int = 1,
    labels: np.ndarray | None = None,
) -> np.ndarray:
    """Fill the empty slots of a board: those with most neighbours first, with the label that fits best there.

    ``right`` and ``below`` are costs of labels; label l is piece ``l // turns``. ``extra``, ``(labels,
    slots)``, are costs of a label at a slot. ``labels`` are those that may be used; all unless given.
    """
    board = board.copy()
    columns = board.shape[1]
    free = np.ones(len(right), dtype=bool) if labels is None else np.isin(np.arange(len(right)), labels)
    for label in board[board != EMPTY]:
        free[label // turns * turns : (label // turns + 1) * turns] = False
    right, below = (np.where(np.isfinite(costs), costs, 1e6) for costs in (right, below))
    while free.any() and (board == EMPTY).any():
        around = np.pad(board, 1, constant_values=EMPTY)
        known = around != EMPTY
        count = known[:-2, 1:-1].astype(int) + known[2:, 1:-1] + known[1:-1, :-2] + known[1:-1, 2:]
        open_slots = np.flatnonzero(((board == EMPTY) & (count == count[board == EMPTY].max())).ravel())
        chosen = free.nonzero()[0]
        costs = np.zeros((len(chosen), len(open_slots)))
        for column, slot in enumerate(open_slots):
            y, x = divmod(int(slot), columns)
            if (label := around[y + 1, x]) != EMPTY:
                costs[:, column] += right[label, chosen]
            if (label := around[y + 1, x + 2]) != EMPTY:
                costs[:, column] += right[chosen, label]
            if (label := around[y, x + 1]) != EMPTY:
                costs[:, column] += below[label, chosen]
            if (label := around[y + 2, x + 1]) != EMPTY:
                costs[:, column] += below[chosen, label]
        if extra is not None:
            costs += extra[np.ix_(chosen, open_slots)]
        best, where = divmod(int(costs.argmin()), len(open_slots))
        label = chosen[best]
        board.ravel()[open_slots[where]] = label
        free[label // turns * turns : (label // turns + 1) * turns] = False
    return board


def _best_first(right: np.ndarray, below: np.ndarray) -> list[tuple[float, int, int, int, int]]:
    """Fits (cost, piece, piece, down, across) of borders and their best candidates, the best first."""
    fits = {}
    for costs, down, across in ((right, 0, 1), (below, 1, 0)):
        kept = min(CANDIDATES, len(costs))
        for i, best in enumerate(np.argpartition(costs, kept - 1, axis=1)[:, :kept]):
            fits.update({(i, int(j), down, across): float(costs[i, j]) for j in best if j != i})
        for j, best in enumerate(np.argpartition(costs, kept - 1, axis=0)[:kept].T):
            fits.update({(int(i), j, down, across): float(costs[i, j]) for i in best if i != j})
    return sorted((cost, *fit) for fit, cost in fits.items())
