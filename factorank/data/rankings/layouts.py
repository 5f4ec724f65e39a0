"""The layouts of a table of rankings, CSV or parquet.

* ``orders``: a column for each place (``place 1``, ``place 2``, …), best first, holding items' names; tied
  items share a cell, ``B = C``; a shorter ranking leaves its last cells empty.
* ``ranks``: a column for each item, holding its rank from 1; tied items share a rank, unranked items have an
  empty cell.
* ``scores``: the same with numbers of which the highest is best; equal scores are ties.
* ``long``: columns ``voter``, ``item`` and ``rank`` (or ``score``), a line for each voter and item; an empty
  rank means that the item is not ranked.
* ``pairs``: columns ``winner`` and ``loser``, a line for each comparison.

A column ``count`` says how many voters share the ranking, a column ``voter`` names them in the wide layouts.
:mod:`factorank.data.rankings.headers` says which names columns may have.
"""

from array import array
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from factorank.data.rankings.checks import MOST_RANKS, check_names, fail, shown, whole_number
from factorank.data.rankings.headers import Columns, understood
from factorank.data.rankings.numbering import Numbers, missing, rank_levels, score_levels
from factorank.data.rankings.rankings import Rankings
from factorank.data.rankings.rows import RankingRows
from factorank.data.rankings.tables import Table

TIE = " = "


def parse(
    table: Table, layout: str | None, items: Sequence[str] | None, first_rank: int, merge: bool
) -> tuple[Rankings, list[str]]:
    """Rankings from a table, and the place of each; ``items`` are the names of all items, in order."""
    columns = understood(table, layout)
    if next(table.rows(), None) is None:
        fail(table.source, "there is no ranking in the table, only the names of its columns")
    rows = RankingRows(table.source, merge, None if items is None else check_names(items, "items"))
    readers: dict[str, Callable[..., list[str] | None]] = {"orders": _orders, "long": _long, "pairs": _pairs}
    names = readers.get(columns.layout, _wide_numbers)(table, columns, rows, first_rank)
    rankings = rows.rankings(names if items is None else None, read_as=columns.read_as(table, first_rank))
    return rankings, rows.places


def _orders(table: Table, columns: Columns, rows: RankingRows, first_rank: int) -> list[str] | None:
    items_in: dict[str, list[int]] = {}
    for where, cells, count in _wide(table, columns):
        while cells and missing(cells[-1]):
            cells.pop()
        if not cells:
            fail(where, "no item is ranked")
        level_of: dict[int, int] = {}
        for level, cell in enumerate(cells):
            if missing(cell):
                place, what = (
                    shown(table.columns[columns.cells[level]]),
                    f"holds {cell!r}" if cell else "is empty",
                )
                fail(where, f"{place} {what}, but a later place is not")
            if cell not in items_in:  # most cells repeat an earlier one
                items_in[cell] = [rows.item(name.strip(), where) for name in cell.split(TIE)]
            for item in items_in[cell]:
                if item in level_of:
                    places = [shown(table.columns[columns.cells[at]]) for at in (level_of[item], level)]
                    name = shown(list(rows.number)[item])
                    fail(where, f"{name} is ranked twice, at {places[0]} and {places[1]}")
                level_of[item] = level
        rows.add(where, list(level_of), list(level_of.values()), count)
    return sorted(rows.number, key=_natural)


def _wide_numbers(table: Table, columns: Columns, rows: RankingRows, first_rank: int) -> list[str] | None:
    if not columns.cells:
        fail(table.header, "there is no column for any item")
    items = [rows.item(table.columns[i], table.header) for i in columns.cells]
    for at, item in enumerate(items):
        if not rows.closed and item != at:
            fail(table.header, f"two columns are called {shown(list(rows.number)[item])}")
    numbers, number_of = Numbers(table.decimal_comma), np.array(items)
    named = [table.columns[i] for i in columns.cells]
    for where, cells, count in _wide(table, columns):
        levels, there = _levels(cells, numbers, columns, first_rank, where, named)
        rows.add(where, number_of[there], levels, count)
    return None


def _long(table: Table, columns: Columns, rows: RankingRows, first_rank: int) -> list[str] | None:
    item_column, value_column = columns.cells
    assert columns.voter is not None
    numbers = Numbers(table.decimal_comma)
    texts: dict[float, str] = {}
    voters: dict[str, tuple[str, int, array[int], array[float]]] = {}
    for line, (where, cells) in enumerate(table.rows()):
        voter = cells[columns.voter]
        for what, cell in ("voter", voter), ("item", cells[item_column]):
            if not cell:
                fail(where, f"the {what} is missing")
        item, count = rows.item(cells[item_column], where), _count(cells, columns, where)
        first, before, items, values = voters.setdefault(voter, (where, count, array("q"), array("d")))
        if count != before:
            fail(where, f"voter {shown(voter)} has count {count} here but {before} at {first}")
        value = numbers[cells[value_column]]
        if value == np.inf:
            what = "score" if columns.scores else "rank"
            name, cell = shown(cells[item_column]), shown(cells[value_column])
            fail(where, f"the {what} of {name} is {cell}, not a number")
        texts.setdefault(value, cells[value_column])
        items.append(item)
        values.append(value)
        if line >= MOST_RANKS:
            fail(table.source, f"there are more than {MOST_RANKS:,} lines; no more ranks can be held")
    names = list(rows.number)
    for voter, (where, count, items, values) in voters.items():
        place, number_of = f"{where}: voter {shown(voter)}", np.array(items)
        _check_once(table, columns, voter, number_of, names)
        cells = ["" if np.isnan(value) else texts[value] for value in values]
        named = [names[item] for item in items]
        levels, there = _levels(cells, numbers, columns, first_rank, place, named)
        rows.add(place, number_of[there], levels, count)
    return None


def _pairs(table: Table, columns: Columns, rows: RankingRows, first_rank: int) -> list[str] | None:
    winner, loser = columns.cells
    for where, cells in table.rows():
        for i in columns.cells:
            if not cells[i]:
                fail(where, f"the {table.columns[i]} is missing")
        pair = rows.item(cells[winner], where), rows.item(cells[loser], where)
        if pair[0] == pair[1]:
            fail(where, f"{shown(cells[winner])} is both winner and loser")
        rows.add(where, pair, (0, 1), _count(cells, columns, where))
    return sorted(rows.number, key=_natural)


def _wide(table: Table, columns: Columns) -> Iterator[tuple[str, list[str], int]]:
    """The place of each row of a wide table, its cells, and its count."""
    named = columns.index if columns.voter is None else [columns.voter, *columns.index]
    voters: dict[tuple[int, str], str] = {}
    for where, cells in table.rows():
        for i in named:
            if (before := voters.setdefault((i, cells[i]), where)) != where:
                what = "voter" if i == columns.voter else f"row {shown(table.columns[i])}"
                fail(where, f"{what} {shown(cells[i])} is at {before} already")
        yield where, [cells[i] for i in columns.cells], _count(cells, columns, where)


def _count(cells: Sequence[str], columns: Columns, where: str) -> int:
    if columns.count is None:
        return 1
    cell = cells[columns.count]
    if missing(cell):
        fail(where, "the count is missing")
    return whole_number(cell, where, "count", 0)


def _levels(
    cells: Sequence[str],
    numbers: Numbers,
    columns: Columns,
    first_rank: int,
    where: str,
    names: Sequence[str],
) -> tuple[np.ndarray, np.ndarray]:
    """The levels of the cells that are not missing, and which these are."""
    values = numbers.of(cells)
    absent = np.isnan(values)
    there = np.arange(len(values))
    if absent.any():
        there = np.flatnonzero(~absent)
        cells, names = [cells[i] for i in there.tolist()], [names[i] for i in there.tolist()]
    if columns.scores:
        return score_levels(cells, values[there], where, names), there
    return rank_levels(cells, values[there], first_rank, where, names), there


def _check_once(table: Table, columns: Columns, voter: str, items: np.ndarray, names: Sequence[str]) -> None:
    """A voter has one line for an item."""
    if len(np.unique(items)) == len(items):
        return
    seen: set[str] = set()
    for where, cells in table.rows():  # again, for the line of the second
        if cells[columns.voter or 0] == voter:
            if (name := cells[columns.cells[0]]) in seen:
                fail(where, f"voter {shown(voter)} has a line for item {shown(name)} already")
            seen.add(name)


def _natural(name: str) -> tuple[bool, int, str]:
    """A key that sorts names of digits by their value, before all other names."""
    number = name.isascii() and name.isdigit()
    return not number, int(name[-4000:]) if number else 0, name
