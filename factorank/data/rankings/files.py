"""Files of rankings: PrefLib, CSV and parquet."""

import os
from collections.abc import Sequence
from pathlib import Path

from factorank.data.rankings import layouts, preflib, tables
from factorank.data.rankings.checks import fail
from factorank.data.rankings.rankings import Rankings
from factorank.files import write_whole


def read_rankings(
    path: str | os.PathLike[str],
    format: str | None = None,
    *,
    items: Sequence[str] | None = None,
    first_rank: int = 1,
) -> Rankings:
    """Rankings from a PrefLib file (.soc, .soi, .toc, .toi), a CSV or a parquet table.

    Equal rankings become one row with the sum of their counts. A fault in the file raises a
    :class:`factorank.RankingsError` that begins with file and line.

    Args:
        format: the kind of file (``"soc"``, …, ``"csv"``, ``"parquet"``) where the suffix does not say it, or
            the layout of a table (``"orders"``, ``"ranks"``, ``"long"``: see
            :mod:`factorank.data.rankings.layouts`) where the names of its columns do not.
        items: the names of all items, in order, for tables that do not mention every item.
        first_rank: the rank of the best item in tables of ranks.

    >>> import tempfile, pathlib
    >>> path = pathlib.Path(tempfile.mkdtemp(), "votes.csv")
    >>> _ = path.write_text("count,ann,bob,cat\\n3,1,2,3\\n1,2,1,\\n")
    >>> read_rankings(path)
    Rankings(3 items, 2 rows, 4 voters, strict)
    """
    return read_rows(path, format, items, first_rank)[0].distinct()


def read_rows(
    path: str | os.PathLike[str], format: str | None, items: Sequence[str] | None, first_rank: int
) -> tuple[Rankings, list[str]]:
    """The rankings with a row for each row of the file, equal rows included, and the place of each row."""
    path, kind, layout = _format(path, format)
    if kind in preflib.TYPES:
        rankings, places = preflib.parse(path, kind)
        if items is not None and tuple(items) != rankings.items:
            fail(str(path), f"the items are {', '.join(rankings.items)}, not {', '.join(items)}")
        return rankings, places
    table = tables.read_csv(path) if kind == "csv" else tables.read_parquet(path)
    return layouts.parse(table, layout, items, first_rank)


def write_rankings(rankings: Rankings, path: str | os.PathLike[str], format: str | None = None) -> None:
    """Write rankings to a PrefLib file (.soc, .soi, .toc, .toi), a CSV or a parquet table, by the suffix.

    A table has the layout ``format``, by default ``"ranks"``. The file is written whole or not at all.
    Reading it gives the same rankings back; rankings that the format cannot hold raise an error. There are
    two exceptions: a table of orders sorts the items unless the reader names them, and a table of ranks whose
    items are named by numbers is read with ``format="ranks"``.

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
    table = layouts.unparse(rankings, layout or "ranks", str(path))
    write_whole(path, tables.csv_text(*table) if kind == "csv" else tables.parquet_bytes(*table, path))


def _format(path: str | os.PathLike[str], format: str | None) -> tuple[Path, str, str | None]:
    """The path, the kind of file, and the layout if ``format`` gives one."""
    path = Path(path)
    kind, layout = path.suffix.lower().lstrip("."), None
    if format in layouts.LAYOUTS:
        layout = format
    elif format is not None:
        kind = format
    kinds = (*preflib.TYPES, "csv", "parquet")
    if kind not in kinds or (layout and kind in preflib.TYPES):
        wrong = f"{{parameter={format!r}}}" if format else f"the suffix {path.suffix!r}"
        known = f"{', '.join(kinds)}, and for csv and parquet the layouts {', '.join(layouts.LAYOUTS)}"
        fail(str(path), f"{wrong} is not a format of rankings; there are {known}", parameter="format")
    return path, kind, layout
