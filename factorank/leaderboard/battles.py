"""Tables of battles, as people have them: who met whom, and who won."""

from collections.abc import Mapping
from dataclasses import dataclass
from numbers import Integral
from typing import Any

import numpy as np

from factorank.distributions.comparisons.battles import FIRST, SECOND, TIE
from factorank.errors import RankingsError
from factorank.leaderboard.columns import Place, columns_of, distinct, row_name
from factorank.leaderboard.wide import checked_counts, is_wide, melted

COLUMNS = {
    "model_a": ("model_a", "a", "left", "player_a", "item_a", "team_a", "first", "home", "white"),
    "model_b": ("model_b", "b", "right", "player_b", "item_b", "team_b", "second", "away", "black"),
    "winner": ("winner", "outcome", "result", "win"),
    "count": ("count", "weight", "counts", "n"),
    "judge": ("judge", "group", "voter", "user"),
}
"""The names that columns go by, in any case; the first is the one that is asked for."""
OPTIONAL = ("count", "judge")
WORDS = {
    FIRST: (*COLUMNS["model_a"], "win", "1-0"),
    SECOND: (*COLUMNS["model_b"], "loss", "0-1"),
    TIE: (
        "tie",
        "draw",
        "both",
        "tie (bothbad)",
        "bothbad",
        "both_bad",
        "tie (both bad)",
        "equal",
        "1/2-1/2",
    ),
}
"""The words for an outcome, in any case. The name of the winner itself is understood as well."""


@dataclass(frozen=True)
class BattleTable:
    """Battles of named items, checked: one row a battle, or a kind of battle with its count."""

    items: tuple[str, ...]
    pairs: np.ndarray
    outcomes: np.ndarray
    """0 if the first item of the pair won, 1 if the second, 2 for a tie."""
    counts: np.ndarray | None = None
    judges: np.ndarray | None = None


def battle_table(table: Any, place: Place = row_name) -> BattleTable:
    """Battles from a table with the columns ``model_a``, ``model_b``, ``winner`` and, if there are such,
    ``count`` and ``judge``: a dict of columns, a pandas or polars frame, or a structured numpy array. In the
    place of ``winner`` there may be counts, ``wins_a``, ``wins_b`` and ``ties``.

    ``place`` names a row in a message. With counts each kind of battle (of a judge) has one row.

    >>> battle_table({"model_a": ["x", "y"], "model_b": ["y", "z"], "winner": ["model_a", "tie"]}).pairs
    array([[0, 1],
           [1, 2]], dtype=int32)
    """
    if isinstance(table, BattleTable):
        return table
    from factorank.kernels.comparisons import first_fault

    columns = columns_of(table)
    if is_wide(columns):
        given = {what: _column(columns, what) for what in ("model_a", "model_b", "judge")}
        columns, place = melted(columns, given, place)
    names = {what: _column(columns, what) for what in COLUMNS}
    left, right = (columns[names[what]] for what in ("model_a", "model_b"))
    rows = len(left)
    for name in names.values():
        if name and len(columns[name]) != rows:
            raise RankingsError(f"column {name!r} has {len(columns[name])} rows, {names['model_a']!r} {rows}")
    if not rows:
        raise RankingsError("a leaderboard needs at least one battle, but the table has no rows")
    items, pairs = _numbered(left, right, names, place)
    row = first_fault(pairs, len(items))
    if row >= 0:
        raise RankingsError(f"{place(row)}: {items[pairs[row, 0]]!r} is compared with itself")
    if len(items) < 2:
        raise RankingsError("a leaderboard ranks at least two items")
    outcomes = _outcomes(columns[names["winner"]], names["winner"], items, pairs, place)
    judges = None if not names["judge"] else distinct(columns[names["judge"]])[0]
    counts = None
    if names["count"]:
        counts = checked_counts(columns[names["count"]], names["count"], place)
        if not counts.any():
            raise RankingsError(f"column {names['count']!r} holds no count above 0")
        _check_once(pairs, outcomes, judges, items, place)
    return BattleTable(items, pairs, outcomes, counts, judges)


def _column(columns: Mapping[str, Any], what: str) -> str:
    """The name of the column that holds ``what``; "" if there is none and none is needed."""
    by_lower = {name.strip().lower(): name for name in columns}
    for name in COLUMNS[what]:
        if name in by_lower:
            return by_lower[name]
    if what not in OPTIONAL:
        raise RankingsError(
            f"battles need a column {what!r}; the table has {', '.join(map(repr, columns)) or 'none'}"
        )
    return ""


def _numbered(
    left: Any, right: Any, names: dict[str, str], place: Place
) -> tuple[tuple[str, ...], np.ndarray]:
    """The names of the items, sorted, and the pairs as numbers."""
    columns = []
    for column, what in ((left, "model_a"), (right, "model_b")):
        codes, values = distinct(column)
        if None in values or "" in values:
            row = int(np.isin(codes, [i for i, value in enumerate(values) if value in (None, "")]).argmax())
            raise RankingsError(f"{place(row)}: column {names[what]!r} holds no name")
        columns.append((codes, values))
    _check_kinds(columns, names, place)
    every = {value for _, values in columns for value in values}
    numeric = all(isinstance(value, Integral) for value in every)
    items = tuple(map(str, sorted(every))) if numeric else tuple(sorted({str(value) for value in every}))
    number = {item: at for at, item in enumerate(items)}
    from factorank.kernels.comparisons import pair_up

    pairs = np.empty((len(columns[0][0]), 2), np.int32)
    (left, right) = (
        (codes, np.array([number[str(value)] for value in values], np.int32)) for codes, values in columns
    )
    pair_up(*left, *right, pairs)
    return items, pairs


def _check_kinds(columns: list[tuple[np.ndarray, list[Any]]], names: dict[str, str], place: Place) -> None:
    """Refuse names that are no text and no numbers, and different kinds: 1 and "1" would be one name."""
    kinds = {"a text": str, "an integer": Integral, "a fraction": float}
    first = ""
    for (codes, values), what in zip(columns, ("model_a", "model_b"), strict=True):
        for number, value in enumerate(values):
            fits = [each for each, type_ in kinds.items() if isinstance(value, type_)]
            kind = "" if isinstance(value, bool | np.bool_) or not fits else fits[0]
            if not kind or kind != (first or kind):
                where = f"{place(int((codes == number).argmax()))}: column {names[what]!r}"
                allowed = f", and {first} before" if first else "; names are texts or numbers"
                raise RankingsError(f"{where} holds {value!r}, {kind or type(value).__name__}{allowed}")
            first = kind


def _outcomes(column: Any, name: str, items: tuple[str, ...], pairs: np.ndarray, place: Place) -> np.ndarray:
    index, values = distinct(column)
    number = {item: at for at, item in enumerate(items)}
    meaning = {word: code for code, words in WORDS.items() for word in words}
    codes = np.full(len(values), -1, np.int8)
    winners = np.full(len(values), -1)
    for at, value in enumerate(map(str, values)):
        if value in number:
            winners[at] = number[value]
        elif value.strip().lower() in meaning:
            codes[at] = meaning[value.strip().lower()]
    result = codes[index]
    if (winners >= 0).any():
        winner = winners[index]
        result = np.where((winner >= 0) & (winner == pairs[:, 0]), FIRST, result).astype(np.int8)
        result = np.where((winner >= 0) & (winner == pairs[:, 1]), SECOND, result).astype(np.int8)
    if (codes < 0).any() and (result < 0).any():
        row = int((result < 0).argmax())
        why = (
            "which did not take part in this battle"
            if winners[index[row]] >= 0
            else "but a winner is 'model_a', 'model_b', 'tie' or the name of one of the two"
        )
        raise RankingsError(f"{place(row)}: column {name!r} holds {values[index[row]]!r}, {why}")
    return result


def _check_once(
    pairs: np.ndarray, outcomes: np.ndarray, judges: np.ndarray | None, items: tuple[str, ...], place: Place
) -> None:
    """Refuse two rows of counts for one kind of battle: one of them is likely a copy."""
    key = (pairs[:, 0].astype(np.int64) * len(items) + pairs[:, 1]) * 3 + outcomes
    if judges is not None:
        key = key * (int(judges.max()) + 1) + judges
    _, first, index = np.unique(key, return_index=True, return_inverse=True)
    again = first[index.reshape(-1)] != np.arange(len(key))
    if again.any():
        row = int(again.argmax())
        a, b = (items[item] for item in pairs[row])
        before = place(int(first[index.reshape(-1)[row]]))
        raise RankingsError(
            f"{place(row)}: {a!r} against {b!r} with this winner is counted already, {before}"
        )
