"""CSV and parquet files as cells, with the place of each row."""

import csv
import io
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from factorank.data.frames import error_names, polars_module
from factorank.data.rankings.checks import fail, read_text
from factorank.errors import RankingsError

_SEPARATOR = re.compile(r"[;\t|]")


@dataclass
class LocatedTable:
    """Cells with the place of each row in the file; an empty cell is None."""

    source: str
    columns: list[str]
    rows: list[tuple[str, Sequence[Any]]]
    header: str
    """Where the names of the columns stand, for messages."""


def read_csv(path: Path) -> LocatedTable:
    """The cells of a CSV file: commas, double quotes, one line of column names."""
    text = read_text(path)
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    rows: list[tuple[str, Sequence[Any]]] = []
    columns: list[str] = []
    line = 0
    try:
        for cells in reader:
            begin, line = line + 1, reader.line_num
            where = f"{path}:{begin}"
            if not cells:
                continue
            cells = [cell.strip() for cell in cells]
            if not columns:
                columns, header = cells, where
                # A quoted name may hold a separator.
                quoted = text.lstrip().startswith('"')
                if len(cells) == 1 and not quoted and (separator := _SEPARATOR.search(cells[0])):
                    fail(where, f"the columns are separated by {separator[0]!r}; they should be by commas")
            elif len(cells) != len(columns):
                fail(where, f"the row has {len(cells)} cells, but there are {len(columns)} columns")
            else:
                rows.append((where, [cell or None for cell in cells]))
    except csv.Error as error:
        fail(f"{path}:{line + 1}", f"not a row of comma-separated values: {error}")
    return LocatedTable(str(path), columns, rows, header)


def csv_text(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """Columns and rows as the text of a CSV file."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    alone = len(columns) == 1 and _SEPARATOR.search(columns[0])
    (csv.writer(text, lineterminator="\n", quoting=csv.QUOTE_ALL) if alone else writer).writerow(columns)
    # A row of one empty cell would be a blank line; csv quotes it.
    writer.writerows(rows)
    return text.getvalue()


def read_parquet(path: Path) -> LocatedTable:
    """The cells of a parquet file, rows counted from 1."""
    data = path.read_bytes()
    if not data:
        fail(str(path), "the file is empty")
    polars = polars_module(path, RankingsError)
    with error_names(path, RankingsError, "not a parquet file that can be read"):
        frame = polars.read_parquet(io.BytesIO(data))
    rows: list[tuple[str, Sequence[Any]]] = []
    for number, cells in enumerate(frame.iter_rows(), start=1):
        where = f"{path}: row {number}"
        for column, cell in zip(frame.columns, cells, strict=True):
            if isinstance(cell, bool) or not isinstance(cell, str | int | float | None):
                fail(where, f"column {column!r} holds a {type(cell).__name__}, not a name or whole number")
            if isinstance(cell, float) and not math.isfinite(cell):
                fail(where, f"column {column!r} holds {cell}; leave it null if the item is not ranked")
        rows.append((where, [cell.strip() or None if isinstance(cell, str) else cell for cell in cells]))
    return LocatedTable(str(path), list(frame.columns), rows, f"{path}: columns")


def parquet_bytes(columns: Sequence[str], rows: Sequence[Sequence[Any]], path: Path) -> bytes:
    """Columns and rows as the bytes of a parquet file."""
    polars = polars_module(path, RankingsError)
    data = io.BytesIO()
    polars.DataFrame(dict(zip(columns, map(list, zip(*rows, strict=True)), strict=True))).write_parquet(data)
    return data.getvalue()
