"""The three layouts of a table of rankings, CSV or parquet.

* ``orders``: a column for each place (``place 1``, ``place 2``, …), best first, holding items' names; tied
  items share a cell, ``B = C``; a shorter ranking leaves its last cells empty.
* ``ranks``: a column for each item, holding its rank from 1; tied items share a rank, unranked items have an
  empty cell.
* ``long``: columns ``voter``, ``item`` and ``rank``, a line for each voter and item; an empty rank means
  that the item is not ranked.

A column ``count`` says how many voters share the ranking, a column ``voter`` names them in the wide layouts.
"""

import re
from collections.abc import Collection, Iterator, Sequence
from typing import Any

import torch

from factorank.data.rankings.checks import check_name, check_names, check_total, fail, levels_of, whole_number
from factorank.data.rankings.rankings import Rankings
from factorank.data.rankings.tables import LocatedTable

LAYOUTS = ("orders", "ranks", "long")
TIE = " = "
_PLACE = re.compile(r"(?:place[ _]?)?([0-9]+)", re.ASCII | re.IGNORECASE)

Votes = list[tuple[str, dict[str, int], int]]
"""For each ranking its place in the file, the level of each ranked item from 0, and the count."""


def parse(
    table: LocatedTable, layout: str | None, items: Sequence[str] | None, first_rank: int
) -> tuple[Rankings, list[str]]:
    """Rankings from a table, and the place of each; ``items`` are the names of all items, in order."""
    for number, column in enumerate(table.columns):
        if not column:
            fail(table.header, f"column {number + 1} has no name")
        if column in table.columns[:number]:
            fail(table.header, f"there are two columns {column!r}")
    layout = layout or _recognise(table)
    if not table.rows:
        fail(table.source, "there is no ranking in the table, only the names of its columns")
    if items is not None:
        items = check_names(items, "items")
    names, votes = {"orders": _orders, "ranks": _ranks, "long": _long}[layout](table, items, first_rank)
    ranks = [[levels.get(name, -1) for name in names] for _, levels, _ in votes]
    counts = [count for *_, count in votes]
    check_total(counts, table.source)
    return Rankings(names, torch.tensor(ranks), torch.tensor(counts)), [where for where, *_ in votes]


def unparse(rankings: Rankings, layout: str, source: str) -> tuple[list[str], list[list[Any]]]:
    """Columns and rows of a table in a layout; rankings that it would not give back raise an error."""
    items, ranks, counts = list(rankings.items), rankings.ranks.tolist(), rankings.counts.tolist()
    counted = any(count != 1 for count in counts)
    columns, cells = ["count"] if counted else [], [[count] if counted else [] for count in counts]
    numbers = [[None if rank < 0 else rank + 1 for rank in row] for row in ranks]
    if layout == "long":
        return ["voter", "item", "rank", *columns], [
            [voter, name, number, *count]
            for voter, (row, count) in enumerate(zip(numbers, cells, strict=True), start=1)
            for name, number in zip(items, row, strict=True)
        ]
    if layout == "ranks":
        for name in sorted({"count", "voter"}.intersection(items)):
            fail(source, f"an item is called {name!r}, as a column of its own in a table of ranks; use long")
        return columns + items, [count + row for count, row in zip(cells, numbers, strict=True)]
    for number, name in enumerate(items):
        if TIE in f" {name} ":
            fail(source, f"the item {name!r} holds {TIE!r}, which marks a tie in a table of orders; use long")
        if all(row[number] < 0 for row in ranks):
            fail(source, f"nobody ranks {name!r}, so a table of orders would lose it; use ranks or long")
    longest = 1 + max(max(row) for row in ranks)
    rows: list[list[Any]] = []
    for count, row in zip(cells, ranks, strict=True):
        places = [TIE.join(items[item] for item in level) for level in levels_of(row)]
        rows.append([*count, *places, *[None] * (longest - len(places))])
    return columns + [f"place {place}" for place in range(1, longest + 1)], rows


def _recognise(table: LocatedTable) -> str:
    columns = _wide_columns(table)
    if "voter" in table.columns and set(columns) == {"item", "rank"}:
        return "long"
    if columns and all(_PLACE.fullmatch(column) for column in columns):
        if all(column.isascii() and column.isdigit() for column in columns):
            names = "say {parameter='orders'} if they are places, {parameter='ranks'} if they are items"
            fault = f"the columns are named by numbers only: {names}"
            fail(table.header, f"{fault}, and add a line of column names if this is a ranking", "format")
        return "orders"
    for where, cells in table.rows:  # a first line that is a ranking has cells that later rows hold, too
        for column, cell in zip(table.columns, cells, strict=True):
            if column in columns and cell in columns and not str(cell).isdigit():
                places = ",".join(f"place {number}" for number in range(1, min(len(columns), 3) + 1))
                like = f"this line looks like a ranking, for {cell!r} is in a ranking at {where}, too"
                more = ",…" if len(columns) > 3 else ""
                fail(table.header, f"{like}; the first line names the columns: {places}{more}")
    return "ranks"


def _wide_columns(table: LocatedTable) -> list[str]:
    """The columns that hold ranks or items in a wide layout."""
    return [column for column in table.columns if column not in ("voter", "count")]


def _wide(table: LocatedTable) -> Iterator[tuple[str, dict[str, Any], int]]:
    """The place of each row, its cells except ``voter`` and ``count``, and its count."""
    voters: dict[str, str] = {}
    for where, cells in table.rows:
        row = dict(zip(table.columns, cells, strict=True))
        count = whole_number(row.pop("count"), where, "count") if "count" in row else 1
        if "voter" in row:
            voter = str(row.pop("voter"))
            if voter in voters:
                fail(where, f"voter {voter!r} is at {voters[voter]} already")
            voters[voter] = where
        yield where, row, count


def _orders(table: LocatedTable, items: Sequence[str] | None, first_rank: int) -> tuple[list[str], Votes]:
    places = _wide_columns(table)
    for number, column in enumerate(places, start=1):
        match = _PLACE.fullmatch(column)
        if match is None or match[1] != str(number):
            fail(table.header, f"column {column!r} is where 'place {number}' should be")
    if not places:
        fail(table.header, "there is no column 'place 1'")
    votes: Votes = []
    names_in: dict[Any, list[str]] = {}
    for where, row, count in _wide(table):
        cells = list(row.values())
        while cells and cells[-1] is None:
            cells.pop()
        if not cells:
            fail(where, "no item is ranked")
        levels: dict[str, int] = {}
        for level, (place, cell) in enumerate(zip(places, cells, strict=False)):
            if cell is None:
                fail(where, f"{place!r} is empty, but a later place is not")
            if cell not in names_in:  # most cells repeat an earlier one
                names_in[cell] = [_item(name.strip(), where, items) for name in str(cell).split(TIE)]
            for name in names_in[cell]:
                if name in levels:
                    fail(where, f"{name!r} is ranked twice, at {places[levels[name]]!r} and {place!r}")
                levels[name] = level
        votes.append((where, levels, count))
    return list(items or sorted({name for _, levels, _ in votes for name in levels}, key=_natural)), votes


def _ranks(table: LocatedTable, items: Sequence[str] | None, first_rank: int) -> tuple[list[str], Votes]:
    columns = _wide_columns(table)
    if not columns:
        fail(table.header, "there is no column for any item")
    for column in columns:
        _item(column, table.header, items)
    votes: Votes = []
    for where, row, count in _wide(table):
        cells = [(name, cell) for name, cell in row.items() if cell is not None]
        ranks = {name: _rank(cell, where, name, first_rank) for name, cell in cells}
        votes.append((where, _levels(ranks, first_rank, where), count))
    return list(items or columns), votes


def _long(table: LocatedTable, items: Sequence[str] | None, first_rank: int) -> tuple[list[str], Votes]:
    if set(table.columns) - {"count"} != {"voter", "item", "rank"}:
        there = ", ".join(table.columns)
        fail(table.header, f"a long table has voter, item, rank and perhaps count; the columns are {there}")
    names = dict.fromkeys(items or ())
    voters: dict[str, tuple[str, dict[str, int | None], int]] = {}
    for where, cells in table.rows:
        row = dict(zip(table.columns, cells, strict=True))
        for column in ("voter", "item"):
            if row[column] is None:
                fail(where, f"the {column} is missing")
        voter, name = str(row["voter"]), _item(str(row["item"]), where, None if items is None else names)
        count = whole_number(row["count"], where, "count") if "count" in row else 1
        first, ranks, before = voters.setdefault(voter, (where, {}, count))
        if count != before:
            fail(where, f"voter {voter!r} has count {count} here but {before} at {first}")
        if name in ranks:
            fail(where, f"voter {voter!r} has a line for item {name!r} already")
        ranks[name] = None if row["rank"] is None else _rank(row["rank"], where, name, first_rank)
        names.setdefault(name)
    votes: Votes = []
    for voter, (where, ranks, count) in voters.items():
        place = f"{where}: voter {voter!r}"
        ranked = {name: rank for name, rank in ranks.items() if rank is not None}
        votes.append((place, _levels(ranked, first_rank, place), count))
    return list(names), votes


def _item(name: str, where: str, items: Collection[str] | None) -> str:
    """The name of an item, which is one of ``items`` if these are given."""
    check_name(name, where)
    if items is not None and name not in items:
        more = f" and {len(items) - 8} more" if len(items) > 8 else ""
        fail(where, f"there is no item {name!r}; there are {', '.join(list(items)[:8])}{more}")
    return name


def _rank(cell: Any, where: str, name: str, first: int) -> int:
    if first == 1 and str(cell) in ("0", "0.0"):
        advice = "ranks begin with 1 (or say {parameter=0})"
        fail(where, f"the rank of {name!r} is 0; {advice}", parameter="first_rank")
    return whole_number(cell, where, f"rank of {name!r}", first)


def _levels(ranks: dict[str, int], first: int, where: str) -> dict[str, int]:
    """Levels from 0 for ranks as a file numbers them.

    Tied items share a number. The number after a tie is either the next one (1, 2, 2, 3) or the number of
    items before plus one (1, 2, 2, 4). Anything else is a gap.
    """
    if not ranks:
        fail(where, "no item is ranked")
    best = min(ranks, key=lambda name: ranks[name])
    if ranks[best] != first:
        fail(where, f"the ranks begin with {ranks[best]} ({best}); the best item has rank {first}")
    used = sorted(set(ranks.values()))
    level_of = {rank: level for level, rank in enumerate(used)}
    if used[-1] - first >= len(used):
        everyone = sorted(ranks.values())
        if any(rank != first + everyone.index(rank) for rank in used):
            missing = next(rank for rank in range(first, used[-1]) if rank not in level_of)
            above = next(rank for rank in used if rank > missing)
            name = next(name for name, rank in ranks.items() if rank == above)
            fail(where, f"rank {missing} is missing, but {name} has rank {above}")
    return {name: level_of[rank] for name, rank in ranks.items()}


def _natural(name: str) -> tuple[bool, int, str]:
    """A key that sorts names of digits by their value, before all other names."""
    number = name.isascii() and name.isdigit()
    return not number, int(name[-4000:]) if number else 0, name
