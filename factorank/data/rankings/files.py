"""Files of rankings: PrefLib, text tables and parquet."""

import os
from collections.abc import Sequence
from pathlib import Path

from factorank.data.rankings import layouts, preflib, tables, writing
from factorank.data.rankings.checks import fail
from factorank.data.rankings.headers import LAYOUTS
from factorank.data.rankings.rankings import Rankings
from factorank.files import write_whole

_SUFFIXES = {"csv": None, "txt": None, "tsv": "tsv", "tab": "tsv"}
"""Suffixes of text tables, and the separator where the suffix says it."""
FORMATS = (*LAYOUTS, *preflib.TYPES, *tables.SEPARATORS, "parquet")
"""What a reader can be told of a file: the layout of its table, or its kind."""


def read_rankings(
    path: str | os.PathLike[str],
    format: str | None = None,
    *,
    items: Sequence[str] | None = None,
    first_rank: int = 1,
) -> Rankings:
    """Rankings from a PrefLib file (.soc, .soi, .toc, .toi) or a table (.csv, .tsv, .txt, .parquet).

    Tables have one of five layouts (:mod:`factorank.data.rankings.layouts`), which the names of their columns
    tell; ``rankings.read_as`` says what was understood. Equal rankings become one row with the sum of their
    counts. A fault in the file raises a :class:`factorank.RankingsError` that begins with file and line.
    Names that are cleaned of control characters, and rankings with a count of 0, which are left out, are said
    in a :class:`factorank.RankingsWarning`.

    Args:
        format: overrules what suffix and columns say: the layout of a table (``"orders"``, ``"ranks"``,
            ``"scores"``, ``"long"``, ``"pairs"``), the separator of a text table (``"csv"`` for commas,
            ``"semicolons"``, ``"tsv"`` for tabs, ``"bars"``), or another kind of file (``"soc"``, …,
            ``"parquet"``).
        items: the names of all items, in order, for tables that do not mention every item.
        first_rank: the rank of the best item in tables of ranks.

    >>> import tempfile, pathlib
    >>> path = pathlib.Path(tempfile.mkdtemp(), "votes.csv")
    >>> _ = path.write_text("count,ann,bob,cat\\n3,1,2,3\\n1,2,1,\\n")
    >>> votes = read_rankings(path)
    >>> votes
    Rankings(3 items, 2 rows, 4 voters, strict)
    >>> votes.read_as
    "read as: one row for 'count' voters, columns are items, cells are ranks, 1 is best"
    """
    return read_rows(path, format, items, first_rank)[0]


def read_rows(
    path: str | os.PathLike[str],
    format: str | None,
    items: Sequence[str] | None,
    first_rank: int,
    merge: bool = True,
) -> tuple[Rankings, list[str]]:
    """The rankings and the place of each, the first of equal ones if they are merged into a row."""
    path, kind, layout = _format(path, format)
    if kind in preflib.TYPES:
        rankings, places = preflib.parse(path, kind)
        if items is not None and tuple(items) != rankings.items:
            fail(str(path), f"the items are {', '.join(rankings.items)}, not {', '.join(items)}")
        return rankings, places
    table = tables.read_parquet(path) if kind == "parquet" else tables.read_csv(path, kind)
    return layouts.parse(table, layout, items, first_rank, merge)


def write_rankings(rankings: Rankings, path: str | os.PathLike[str], format: str | None = None) -> None:
    """Write rankings to a PrefLib file (.soc, .soi, .toc, .toi) or a table (.csv, .tsv, .parquet).

    A table has the layout ``format``: "ranks", which is the default, "orders" or "long". The file is written
    whole or not at all. Reading it gives the same rankings back; rankings that the format cannot hold raise
    an error. There are two exceptions: a table of orders sorts the items unless the reader names them, and a
    table of ranks whose items are named by numbers is read with ``format="ranks"``.

    >>> import tempfile, pathlib, torch
    >>> path = pathlib.Path(tempfile.mkdtemp(), "votes.toi")
    >>> write_rankings(Rankings(["ann", "bob", "cat"], torch.tensor([[1, 0, 1]])), path)
    >>> path.read_text().splitlines()[-1]
    '1: 2,{1,3}'
    """
    path, kind, layout = _format(path, format)
    if len(rankings) == 0:
        fail(str(path), "there is no ranking to write")
    if kind in preflib.TYPES:
        write_whole(path, preflib.unparse(rankings.distinct(), path, kind))
        return
    if layout not in (None, *writing.WRITTEN):
        known = ", ".join(writing.WRITTEN)
        fail(
            str(path),
            f"rankings are not written as {{parameter={layout!r}}}; use {known}",
            parameter="format",
        )
    table = writing.unparse(rankings, layout or "ranks", str(path))
    write_whole(
        path,
        tables.parquet_bytes(*table, path) if kind == "parquet" else tables.csv_text(*table, kind or "csv"),
    )


def _format(path: str | os.PathLike[str], format: str | None) -> tuple[Path, str | None, str | None]:
    """The path, the kind of file (None for a table with any separator), and the layout if one is given."""
    path = Path(path)
    suffix = path.suffix.lower().lstrip(".")
    layout = format if format in LAYOUTS else None
    kinds = (*preflib.TYPES, *tables.SEPARATORS, "parquet")
    if format in kinds:
        return path, format, None
    known = (layout is not None) != (suffix in preflib.TYPES) or suffix in (*_SUFFIXES, "parquet")
    if not known or format != layout:
        wrong = f"{{parameter={format!r}}}" if format else f"the suffix {path.suffix!r}"
        there = f"{', '.join(kinds)}, and for tables the layouts {', '.join(LAYOUTS)}"
        fail(str(path), f"{wrong} is not a format of rankings; there are {there}", parameter="format")
    return path, suffix if suffix in kinds and suffix != "csv" else _SUFFIXES.get(suffix), layout
