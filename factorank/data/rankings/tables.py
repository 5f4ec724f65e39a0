"""Tables as cells of text: CSV with any usual separator, and parquet, with the place of each row."""

import csv
import io
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from factorank.data.frames import error_names, polars_module
from factorank.data.parquet import NOT_PARQUET, check_parquet
from factorank.data.rankings.checks import fail, read_text, shown
from factorank.errors import RankingsError

SEPARATORS = {"csv": ",", "semicolons": ";", "tsv": "\t", "bars": "|"}
"""The kinds of text tables and what separates their cells."""
_NAMED = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "bars"}


@dataclass
class Table:
    """The names of the columns, and rows that are read anew each time they are asked for."""

    source: str
    columns: list[str]
    header: str
    """Where the names of the columns stand, for messages."""
    rows: Callable[[], Iterator[tuple[str, Sequence[str]]]]
    """The place of each row and its cells, white space around them taken off; an empty cell is ''."""
    about: str = ""
    """How the file was read, where that is worth a word: "separated by semicolons"."""
    decimal_comma: bool = False
    """Whether 1,5 is a number, because commas do not separate the cells."""


def read_csv(path: Path, kind: str | None = None) -> Table:
    """A text table: one line of column names; cells in double quotes may hold anything.

    ``kind`` is one of :data:`SEPARATORS`; without it the separator is the one that the first line holds and
    that makes all rows equally long.
    """
    text = read_text(path)
    separator = SEPARATORS.get(kind or "")
    if text[:4].lower() == "sep=" and text[4] in _NAMED and text[5:6] == "\n":  # spreadsheets use such a line
        separator, text = separator or text[4], text[5:]
    separator = separator or _separator(text, path)
    records = _records(text, path, separator)
    header, columns = next(records)
    if len(columns) == 1 and (others := _outside_quotes(text)):
        other = others[0]
        advice = next(name for name, sign in SEPARATORS.items() if sign == other)
        fault = f"the columns are separated by {_NAMED[other]}, not {_NAMED[separator]}"
        fail(f"{path}:{header}", f"{fault}: say {{parameter={advice!r}}}", parameter="format")

    def rows() -> Iterator[tuple[str, Sequence[str]]]:
        records = _records(text, path, separator)
        next(records)
        for line, cells in records:
            if len(cells) != len(columns):
                have = f"the row has {len(cells)} cells, but there are {len(columns)} columns"
                fail(f"{path}:{line}", have)
            yield f"{path}:{line}", cells

    about = "" if separator == "," else f"separated by {_NAMED[separator]}"
    return Table(str(path), columns, f"{path}:{header}", rows, about, separator != ",")


def csv_text(columns: Sequence[str], rows: Sequence[Sequence[Any]], kind: str = "csv") -> str:
    """Columns and rows as the text of a table."""
    text = io.StringIO()
    separator = SEPARATORS[kind]
    writer = csv.writer(text, lineterminator="\n", delimiter=separator)
    alone = len(columns) == 1 and any(sign in columns[0] for sign in _NAMED)
    quoted = csv.writer(text, lineterminator="\n", delimiter=separator, quoting=csv.QUOTE_ALL)
    (quoted if alone else writer).writerow(columns)
    # A row of one empty cell would be a blank line; csv quotes it.
    writer.writerows(rows)
    return text.getvalue()


def read_parquet(path: Path) -> Table:
    """The cells of a parquet file, rows counted from 1."""
    data = path.read_bytes()
    if not data:
        fail(str(path), "the file is empty")
    polars = polars_module(path, RankingsError)
    check_parquet(io.BytesIO(data), path, RankingsError)
    with error_names(path, RankingsError, NOT_PARQUET):
        frame = polars.read_parquet(io.BytesIO(data))
    columns = list(frame.columns)

    def rows() -> Iterator[tuple[str, Sequence[str]]]:
        for number, cells in enumerate(frame.iter_rows(), start=1):
            where = f"{path}: row {number}"
            for column, cell in zip(columns, cells, strict=True):
                if isinstance(cell, bool) or not isinstance(cell, str | int | float | None):
                    fail(where, f"column {shown(column)} holds a {type(cell).__name__}, not a name or number")
            yield where, ["" if cell is None else str(cell).strip() for cell in cells]

    return Table(str(path), [column.strip() for column in columns], f"{path}: columns", rows)


def parquet_bytes(columns: Sequence[str], rows: Sequence[Sequence[Any]], path: Path) -> bytes:
    """Columns and rows as the bytes of a parquet file."""
    polars = polars_module(path, RankingsError)
    data = io.BytesIO()
    polars.DataFrame(dict(zip(columns, map(list, zip(*rows, strict=True)), strict=True))).write_parquet(data)
    return data.getvalue()


def _records(text: str, path: Path, separator: str) -> Iterator[tuple[int, list[str]]]:
    """The line that each row begins on, and its cells."""
    reader = csv.reader(io.StringIO(text, newline=""), strict=True, delimiter=separator)
    line = 0
    try:
        for cells in reader:
            begin, line = line + 1, reader.line_num
            if cells:
                yield begin, [cell.strip() for cell in cells]
    except csv.Error as error:
        fail(f"{path}:{line + 1}", f"not a row of values separated by {_NAMED[separator]}: {error}")


def _separator(text: str, path: Path) -> str:
    """The separator that the first line holds; of several, the one that makes all rows equally long."""
    there = _outside_quotes(text)
    if len(there) < 2:
        return there[0] if there else ","
    fitting = [sign for sign in there if _equally_long(text, path, sign)]
    if len(fitting) > 1:
        ways = ", ".join(f"{{parameter={name!r}}}" for name, sign in SEPARATORS.items() if sign in fitting)
        names = " or ".join(_NAMED[sign] for sign in fitting)
        fault = f"the cells may be separated by {names}: say one of {ways}"
        fail(f"{path}:1", fault, parameter="format")
    return fitting[0] if fitting else there[0]


def _equally_long(text: str, path: Path, separator: str) -> bool:
    try:
        lengths = {len(cells) for _, cells in _records(text, path, separator)}
    except RankingsError:
        return False
    return len(lengths) == 1


def _outside_quotes(text: str) -> list[str]:
    """The separators in the first row, those inside quoted cells left out; commas first."""
    bare = ""
    for number, part in enumerate(text.strip("\n").split('"')):
        inside = number % 2 == 1
        line, end, _ = part.partition("\n")
        bare += "" if inside else line
        if end and not inside:
            break
    return [sign for sign in _NAMED if sign in bare]
