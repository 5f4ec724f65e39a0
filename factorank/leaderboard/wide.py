"""Wide tables of battles: one row a pair, with columns of wins, losses and ties; or a square of wins."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from factorank.errors import RankingsError
from factorank.leaderboard.columns import Place

COUNTS = {
    "model_a": ("wins_a", "win_a", "a_wins", "model_a_wins", "wins_model_a", "wins"),
    "model_b": ("wins_b", "win_b", "b_wins", "model_b_wins", "wins_model_b", "losses"),
    "tie": ("ties", "tie", "draws", "draw"),
}
"""The names that columns of counts go by, in any case; the first is the one that is asked for."""


def is_wide(columns: Mapping[str, Any]) -> bool:
    """Whether there are columns of wins of both items."""
    lower = {name.strip().lower() for name in columns}
    return all(lower & set(COUNTS[what]) for what in ("model_a", "model_b"))


def melted(
    columns: Mapping[str, Any], names: Mapping[str, str], place: Place
) -> tuple[dict[str, Any], Place]:
    """The same table with a row for each outcome of a pair, and how these rows are named in a message.

    ``names`` are those of the columns that hold ``model_a``, ``model_b`` and ``judge``. Any other column is
    refused: it may be one of counts whose name is misspelt.
    """
    known = {name for name in names.values() if name}
    rows = len(columns[names["model_a"]])
    result: dict[str, list[Any]] = {"model_a": [], "model_b": [], "winner": [], "count": [], "judge": []}
    for outcome, words in COUNTS.items():
        name = next((name for name in columns if name.strip().lower() in words), None)
        if name is None:
            continue
        known.add(name)
        result["count"] += list(checked_counts(columns[name], name, place))
        result["winner"] += [outcome] * rows
        for what in ("model_a", "model_b", "judge"):
            result[what] += list(columns[names[what]]) if names.get(what) else []
    for name in columns:
        if name not in known:
            raise RankingsError(
                f"column {name!r} is not understood: beside the two items there are columns of counts,"
                f" {', '.join(repr(words[0]) for words in COUNTS.values())}, and 'judge'"
            )
    return {name: column for name, column in result.items() if column}, lambda row: place(row % rows)


def square(columns: Mapping[str, Any], names: list[str], place: Place) -> tuple[dict[str, Any], Place]:
    """A square table of wins, with this header, as a table of counts; and how its rows are named."""
    rows = [str(name) for name in columns[names[0]].to_list()]
    wins: dict[str, list[Any]] = {"model_a": [], "model_b": [], "winner": [], "count": []}
    lines = []
    for name in names[1:]:
        for row, cell in enumerate(columns[name].to_list()):
            empty = cell is None or str(cell).strip() in ("", "-")
            if rows[row] == name and not empty and _number(cell) != 0:
                raise RankingsError(f"{place(row)}: column {name!r}: {name!r} is compared with itself")
            if rows[row] == name or empty:
                continue
            count = checked_counts([cell], name, lambda _, row=row: place(row))[0]  # type: ignore[misc]
            for key, value in zip(wins, (rows[row], name, "model_a", count), strict=True):
                wins[key].append(value)
            lines.append(row)
    return {key: np.array(value) for key, value in wins.items()}, lambda row: place(lines[row])


def checked_counts(column: Any, name: str, place: Place) -> np.ndarray:
    """Counts as float64; one that is no number, or negative, is an error that names row and column."""
    values = np.asarray(column)
    try:
        counts = values.astype(np.float64)
    except (TypeError, ValueError):
        row = next(row for row, value in enumerate(values.tolist()) if _number(value) is None)
        (value,) = values[row : row + 1].tolist()
        raise RankingsError(f"{place(row)}: column {name!r} holds {value!r}, which is no number") from None
    bad = ~np.isfinite(counts) | (counts < 0)
    if bad.any():
        row = int(bad.argmax())
        (value,) = values[row : row + 1].tolist()
        raise RankingsError(f"{place(row)}: column {name!r} holds {value!r}; a count is 0 or more")
    return counts


def _number(value: Any) -> float | None:
    try:
        return float(value)
    except (TypeError, ValueError):
        return None
