"""Files of battles and of benchmark scores, as people have them."""

import io
import os
from pathlib import Path
from typing import Any

import numpy as np

from factorank.data.frames import error_names, polars_module
from factorank.data.parquet import check_parquet
from factorank.data.rankings import Rankings, read_rankings
from factorank.errors import RankingsError
from factorank.leaderboard.battles import COLUMNS, BattleTable, battle_table
from factorank.leaderboard.columns import Place
from factorank.leaderboard.scores import ScoreTable, score_table
from factorank.leaderboard.wide import is_wide, square

PREFLIB = (".soc", ".soi", ".toc", ".toi")
TEXT = (".csv", ".tsv", ".txt")
LINES = (".jsonl", ".ndjson")


def read_board(path: str | os.PathLike[str]) -> BattleTable | ScoreTable:
    """Battles, or scores of items on tasks, from a file; what it holds is told by its columns.

    * ``model_a, model_b, winner`` and perhaps ``count`` and ``judge``; or ``winner, loser`` and ``count``.
    * ``model_a, model_b, wins_a, wins_b, ties``: one row a pair.
    * A square table of wins: the first column names the items and the others are named after them; a cell
      says how often the item of the row beat that of the column.
    * ``item, task, score``; or one row an item (the first column) and one column a task.
    * A PrefLib file of rankings: each voter is a judge who has compared all pairs of items.

    Tables are CSV (also with semicolons or tabs), parquet, JSON lines, or a JSON list of objects. A fault is
    an error that names the file, the line and the column.
    """
    path = Path(path)
    suffix = path.suffix.lower()
    if suffix in PREFLIB:
        return ranked_pairs(read_rankings(path))
    frame, first_line = _frame(path, suffix)
    columns = {name: frame[name] for name in frame.columns}

    def place(row: int) -> str:
        return f"{path}: " + (f"line {row + first_line}" if first_line else f"row {row + 1}")

    try:
        return _understood(columns, place)
    except RankingsError as error:
        raise error if str(error).startswith(str(path)) else error.within(path) from None


def ranked_pairs(rankings: Rankings) -> BattleTable:
    """The pairs of items that rankings compare, ties included, each voter being a judge of their own."""
    ranks = rankings.ranks.repeat_interleave(rankings.counts, 0).numpy()
    first, second = np.triu_indices(ranks.shape[1], 1)
    left, right = ranks[:, first], ranks[:, second]
    voter, pair = np.nonzero((left >= 0) & (right >= 0))
    outcomes = np.where(left == right, 2, np.where(left < right, 0, 1))[voter, pair]
    pairs = np.column_stack([first[pair], second[pair]])
    return BattleTable(tuple(rankings.items), pairs, outcomes, None, voter)


def _frame(path: Path, suffix: str) -> tuple[Any, int]:
    """A polars frame, and the line of its first row, 0 where there are no lines."""
    if suffix not in (*TEXT, *LINES, ".json", ".parquet"):
        allowed = ", ".join((*TEXT, *LINES, ".json", ".parquet", *PREFLIB))
        raise RankingsError(f"{path}: a leaderboard reads files that end in {allowed}, not {suffix!r}")
    data = path.read_bytes()
    if not data.strip():
        raise RankingsError(f"{path}: the file is empty")
    polars = polars_module(path, RankingsError)
    with error_names(path, RankingsError, "not a table that can be read"):
        if suffix == ".parquet":
            check_parquet(io.BytesIO(data), path, RankingsError)
            return polars.read_parquet(io.BytesIO(data)), 0
        if suffix in LINES:
            return polars.read_ndjson(io.BytesIO(data), infer_schema_length=None), 1
        if suffix == ".json":
            return polars.read_json(io.BytesIO(data), infer_schema_length=None), 0
        head = data.split(b"\n", 1)[0]
        separator = max(",;\t", key=lambda sign: head.count(sign.encode()))
        return polars.read_csv(io.BytesIO(data), separator=separator, infer_schema=False), 2


def _understood(columns: dict[str, Any], place: Place) -> BattleTable | ScoreTable:
    lower = {name.strip().lower(): name for name in columns}
    there = [what for what, words in COLUMNS.items() if any(word in lower for word in words)]
    if "model_a" in lower or "model_b" in lower or is_wide(columns) or there[:3] == list(COLUMNS)[:3]:
        return battle_table(columns, place)
    if "winner" in lower and "loser" in lower:
        rest = {name: column for key, name in lower.items() for column in [columns[name]] if key != "loser"}
        rest |= {"model_a": columns[lower["winner"]], "model_b": columns[lower["loser"]]}
        return battle_table(rest, place)
    names = list(columns)
    if len(names) > 2 and set(names[1:]) == {str(name) for name in columns[names[0]].to_list()}:
        return battle_table(*square(columns, names, place))
    if "item" in lower or "model" in lower or "score" in lower or len(names) > 2:
        return score_table(columns, place)
    return battle_table(columns, place)
