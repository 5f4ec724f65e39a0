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
from collections.abc import Iterator, Sequence
from typing import Any

from factorank.data.rankings.checks import check_name, check_names, fail, plain_number, whole_number
from factorank.data.rankings.plain import PlainRankings, close_ranks, levels_of, ranks_from_levels
from factorank.data.rankings.tables import LocatedTable

LAYOUTS = ("orders", "ranks", "long")
TIE = " = "
_PLACE = re.compile(r"(?:place[ _]?)?([0-9]+)", re.ASCII | re.IGNORECASE)


def parse(
    table: LocatedTable, layout: str | None, items: Sequence[str] | None, first_rank: int
) -> PlainRankings:
    """Rankings from a table; ``items`` are the names of all items, in order, if the table may lack some."""
    names: set[str] = set()
    for column in table.columns:
        if not column:
            fail(table.header, f"column {table.columns.index(column) + 1} has no name")
        if column in names:
            fail(table.header, f"there are two columns {column!r}")
        names.add(column)
    layout = layout or _recognise(table)
    if not table.rows:
        fail(table.source, "there is no ranking in the table, only the names of its columns")
    if items is not None:
        items = check_names(items, "items")
    return {"orders": _parse_orders, "ranks": _parse_ranks, "long": _parse_long}[layout](
        table, items, first_rank
    )


def unparse(rankings: PlainRankings, layout: str, source: str) -> tuple[list[str], list[list[Any]]]:
    """Columns and rows of a table in a layout; rankings that it would not give back raise an error."""
    counted = any(count != 1 for count in rankings.counts)
    count_column = ["count"] if counted else []
    rows: list[list[Any]] = []
    if layout == "long":
        for voter, (row, count) in enumerate(zip(rankings.ranks, rankings.counts, strict=True), start=1):
            for name, rank in zip(rankings.items, row, strict=True):
                rows.append([voter, name, None if rank < 0 else rank + 1] + [count] * counted)
        return ["voter", "item", "rank", *count_column], rows
    if layout == "ranks":
        for name in ("count", "voter"):
            if name in rankings.items:
                fail(
                    source,
                    f"an item is called {name!r}, which is a column of its own in a table of ranks; use long",
                )
        for row, count in zip(rankings.ranks, rankings.counts, strict=True):
            rows.append([count] * counted + [None if rank < 0 else rank + 1 for rank in row])
        return count_column + rankings.items, rows
    for number, name in enumerate(rankings.items):
        if TIE in f" {name} ":
            fail(
                source,
                f"the item {name!r} holds {TIE!r}, which marks a tie in a table of orders; use ranks or long",
            )
        if all(row[number] < 0 for row in rankings.ranks):
            fail(source, f"nobody ranks {name!r}, so a table of orders would lose it; use ranks or long")
    longest = 1 + max(max(row) for row in rankings.ranks)
    for row, count in zip(rankings.ranks, rankings.counts, strict=True):
        cells = [TIE.join(rankings.items[item] for item in level) for level in levels_of(row)]
        rows.append([count] * counted + cells + [None] * (longest - len(cells)))
    return count_column + [f"place {place}" for place in range(1, longest + 1)], rows


def _recognise(table: LocatedTable) -> str:
    columns = [column for column in table.columns if column not in ("voter", "count")]
    if "voter" in table.columns and set(columns) == {"item", "rank"}:
        return "long"
    if columns and all(_PLACE.fullmatch(column) for column in columns):
        if all(column.isascii() and column.isdigit() for column in columns):
            fail(
                table.header,
                "the columns are named by numbers only: say {parameter='orders'} if they are places,"
                " {parameter='ranks'} if they are items, and add a line of column names if this is a ranking",
                parameter="format",
            )
        return "orders"
    _suspect_no_header(table, columns)
    return "ranks"


def _suspect_no_header(table: LocatedTable, columns: Sequence[str]) -> None:
    """Refuse a table whose first line is a ranking: its cells are also items of the rows below."""
    for where, cells in table.rows:
        for column, cell in zip(table.columns, cells, strict=True):
            if column in columns and cell in columns and not str(cell).isdigit():
                places = ",".join(f"place {number}" for number in range(1, min(len(columns), 3) + 1))
                fail(
                    table.header,
                    f"this line looks like a ranking, for {cell!r} is in a ranking at {where}, too; the first"
                    f" line names the columns: {places}{',…' if len(columns) > 3 else ''}",
                )


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


def _parse_orders(table: LocatedTable, items: Sequence[str] | None, first_rank: int) -> PlainRankings:
    places = [column for column in table.columns if column not in ("voter", "count")]
    for number, column in enumerate(places, start=1):
        match = _PLACE.fullmatch(column)
        if match is None or match[1] != str(number):
            fail(table.header, f"column {column!r} is where 'place {number}' should be")
    if not places:
        fail(table.header, "there is no column 'place 1'")
    listed: list[tuple[str, list[list[str]], int]] = []
    names: set[str] = set()
    levels_by_cell: dict[Any, list[str]] = {}
    for where, row, count in _wide(table):
        cells = list(row.values())
        used = max((place for place, cell in enumerate(cells, start=1) if cell is not None), default=0)
        if used == 0:
            fail(where, "no item is ranked")
        levels, here = [], dict[str, str]()
        for place, cell in zip(places[:used], cells[:used], strict=True):
            if cell is None:
                fail(where, f"{place!r} is empty, but a later place is not")
            level = levels_by_cell.get(cell)
            if level is None:  # most cells repeat an earlier one
                level = [check_name(name.strip(), where) for name in str(cell).split(TIE)]
                for name in level:
                    if items is not None and name not in items:
                        fail(where, f"there is no item {name!r}; there are {_listed(items)}")
                levels_by_cell[cell] = level
            for name in level:
                if name in here:
                    fail(where, f"{name!r} is ranked twice, at {here[name]!r} and {place!r}")
                here[name] = place
            levels.append(level)
        names.update(here)
        listed.append((where, levels, count))
    numbers = {name: number for number, name in enumerate(items or sorted(names, key=_natural))}
    ranks = [
        ranks_from_levels([[numbers[n] for n in level] for level in levels], len(numbers))
        for _, levels, _ in listed
    ]
    places = [where for where, *_ in listed]
    return PlainRankings(list(numbers), ranks, [count for *_, count in listed], places)


def _parse_ranks(table: LocatedTable, items: Sequence[str] | None, first_rank: int) -> PlainRankings:
    columns = [column for column in table.columns if column not in ("voter", "count")]
    if not columns:
        fail(table.header, "there is no column for any item")
    for column in columns:
        check_name(column, table.header)
        if items is not None and column not in items:
            fail(table.header, f"there is no item {column!r}; there are {_listed(items)}")
    names = list(items) if items is not None else columns
    numbers = {name: number for number, name in enumerate(names)}
    ranks, counts, places = [], [], []
    for where, row, count in _wide(table):
        ranked = {
            numbers[name]: _rank(cell, where, name, first_rank)
            for name, cell in row.items()
            if cell is not None
        }
        ranks.append(close_ranks(ranked, len(names), first_rank, where, names))
        counts.append(count)
        places.append(where)
    return PlainRankings(names, ranks, counts, places)


def _parse_long(table: LocatedTable, items: Sequence[str] | None, first_rank: int) -> PlainRankings:
    for column in ("voter", "item", "rank"):
        if column not in table.columns:
            fail(
                table.header,
                f"there is no column {column!r}; a long table has voter, item, rank and perhaps count",
            )
    for column in table.columns:
        if column not in ("voter", "item", "rank", "count"):
            fail(
                table.header,
                f"there is a column {column!r}; a long table has voter, item, rank and perhaps count",
            )
    numbers: dict[str, int] = {name: number for number, name in enumerate(items or [])}
    voters: dict[str, dict[int, int | None]] = {}
    firsts: dict[str, tuple[str, int]] = {}
    for where, cells in table.rows:
        row = dict(zip(table.columns, cells, strict=True))
        if row["voter"] is None or row["item"] is None:
            fail(where, f"the {'voter' if row['voter'] is None else 'item'} is missing")
        voter, name = str(row["voter"]), check_name(str(row["item"]), where)
        if items is not None and name not in numbers:
            fail(where, f"there is no item {name!r}; there are {_listed(items)}")
        item = numbers.setdefault(name, len(numbers))
        count = whole_number(row["count"], where, "count") if "count" in row else 1
        first = firsts.setdefault(voter, (where, count))
        if first[1] != count:
            fail(where, f"voter {voter!r} has count {count} here but {first[1]} at {first[0]}")
        marks = voters.setdefault(voter, {})
        if item in marks:
            fail(where, f"voter {voter!r} has a line for item {name!r} already")
        rank = row["rank"]
        marks[item] = None if rank is None else _rank(rank, where, name, first_rank)
    names = list(numbers)
    ranks = []
    for voter, marks in voters.items():
        where = f"{firsts[voter][0]}: voter {voter!r}"
        ranked = {item: rank for item, rank in marks.items() if rank is not None}
        ranks.append(close_ranks(ranked, len(names), first_rank, where, names))
    places = [f"{where}: voter {voter!r}" for voter, (where, _) in firsts.items()]
    return PlainRankings(names, ranks, [count for _, count in firsts.values()], places)


def _rank(cell: Any, where: str, name: str, first: int) -> int:
    value = plain_number(cell)
    if value is not None and value >= first:
        return value
    if first == 1 and str(cell) in ("0", "0.0"):
        advice = "ranks begin with 1 (or say {parameter=0})"
        fail(where, f"the rank of {name!r} is 0; {advice}", parameter="first_rank")
    return whole_number(cell, where, f"rank of {name!r}", first)


def _natural(name: str) -> tuple[bool, int, str]:
    """A key that sorts names of digits by their value, before all other names."""
    number = name.isascii() and name.isdigit()
    return not number, int(name[-4000:]) if number else 0, name


def _listed(items: Sequence[str]) -> str:
    return ", ".join(items[:8]) + (f" and {len(items) - 8} more" if len(items) > 8 else "")
