"""Tables with a user, an item and a rating in each row, and perhaps a time: CSV or parquet, read by polars as
a stream, or frames and columns in memory."""

import re
from pathlib import Path
from typing import Any

import numpy as np

from factorank.data.frames import error_names, polars_module
from factorank.data.parquet import NOT_PARQUET, check_parquet
from factorank.data.ratings.columns import CodedNames, ItemTable
from factorank.data.ratings.files import Source, blocks, on_disk
from factorank.data.ratings.ratings import Ratings
from factorank.errors import RatingsError

COLUMN_NAMES = {
    "user": (
        *("user", "userid", "uid", "reviewer", "reviewerid", "customer", "customerid", "voter", "voterid"),
        *("visitor", "visitorid"),
    ),
    "item": (
        *("item", "itemid", "iid", "movie", "movieid", "product", "productid", "asin", "parentasin"),
        *("book", "bookid", "isbn", "anime", "animeid", "joke", "jokeid", "track", "trackid", "business"),
        *("businessid", "recipe", "recipeid", "beer", "beerid", "restaurant", "restaurantid"),
        *("sku", "song", "songid", "article", "articleid", "video", "videoid"),
    ),
    "rating": ("rating", "ratings", "score", "stars", "overall", "value", "bookrating", "relevance"),
    "time": (
        *("timestamp", "time", "datetime", "date", "ts", "unixreviewtime", "createdat", "ratedat"),
        "eventtime",
    ),
}
"""Names of columns that are recognised, in lower case and with letters only."""
COUNTS = (
    *("count", "counts", "clicks", "clicked", "click", "plays", "playcount", "listens", "views", "purchases"),
    *("quantity", "events", "weight", "interactions"),
)
"""Those of the column of counts of choices."""
TITLES = ("title", "name", "itemname", "movietitle", "booktitle")


def read_table(source: Source, named: dict[str, str | None], missing: str, implicit: bool = False) -> Ratings:
    """Ratings from a CSV or parquet file; ``named`` are the names of columns that are not recognised."""
    header, columns = True, None if implicit else _stream(source, named)
    if columns is None:
        header, columns = _collect(source, named, implicit)
    return Ratings.from_rows(
        *columns,
        implicit=implicit,
        missing=missing,
        where=str(source),
        first_row=1 + header,
        source=source.stem,
    )


def read_items(source: Source, item: str | None) -> ItemTable:
    """An item table: a column of ids, perhaps a column of titles, and all columns of numbers as features.

    Numbers are centred and divided by their standard deviation; a missing number counts as the mean.
    """
    polars = polars_module(source, RatingsError)
    with on_disk(source) as path, error_names(source, RatingsError, "not a table of items"):
        frame = _scan(path, source, least=2, inferred=None)[0].collect()
    names = frame.columns
    key = item if item in names else _guess(names, (*COLUMN_NAMES["item"], "id"))
    if key is None:
        raise RatingsError(f"{source}: no column of item ids is recognised; there are {', '.join(names)}")
    title = _guess(names, TITLES)
    numeric = [name for name in names if frame[name].dtype.is_numeric() and name not in (key, title)]
    features = np.zeros((len(frame), len(numeric)), dtype=np.float32)
    scales = []
    for number, name in enumerate(numeric):
        column = frame[name].cast(polars.Float64).to_numpy()
        good = np.isfinite(column)
        centre, width = (float(column[good].mean()), float(column[good].std())) if good.any() else (0.0, 0.0)
        width = width or 1.0
        features[good, number] = (column[good] - centre) / width
        scales.append((centre, width))
    titles = None if title is None else [str(each or "") for each in frame[title]]
    ids = frame[key]
    keys = ids.cast(polars.Int64).to_list() if ids.dtype.is_integer() else ids.cast(polars.String).to_list()
    return ItemTable(keys, titles, features, numeric, scales)


def choose_columns(
    names: list[str], named: dict[str, str | None], where: str, header: bool = True, implicit: bool = False
) -> dict[str, str]:
    """The columns of user, item and rating, and of the time if there is one: by ``named``, else by a
    recognised name, else by place. Choices (``implicit``) need no column of ratings: one of counts is taken
    for it, and without names of columns the third is the time."""
    chosen: dict[str, str] = {}
    by_place = ("user", "item", "time") if implicit else ("user", "item", "rating", "time")
    for role, wanted in named.items():
        counts = implicit and role == "rating"
        if not header and wanted is None and not counts and len(names) > by_place.index(role):
            wanted = names[by_place.index(role)]
        if wanted is None:
            free = names if role != "time" else [name for name in names if name not in chosen.values()]
            wanted = _guess(free, COUNTS if counts else COLUMN_NAMES[role])
        if wanted is None and (role == "time" or counts):
            continue
        if wanted is None or wanted not in names:
            what = f"no column is recognised as the {role}" if wanted is None else f"no column {wanted!r}"
            there = ", ".join(names[:20]) + (f" and {len(names) - 20:,} more" if len(names) > 20 else "")
            advice = f"there are {there}. Say {{parameter='COLUMN'}}"
            if role == "rating" and wanted is None:
                advice += ", or implicit if the rows are clicks, plays or purchases"
            raise RatingsError(f"{where}: {what}; {advice}", parameter=role)
        chosen[role] = wanted
    if len(set(chosen.values())) < len(chosen):
        raise RatingsError(f"{where}: {', '.join(chosen)} are different columns, but not in {chosen}")
    return chosen


def cells(line: str) -> tuple[str, list[str]]:
    """The separator of a table's first line, and its cells."""
    separator = max((",", "\t", ";", "|"), key=line.count)
    return separator, [cell.strip().strip('"') for cell in line.split(separator)]


def is_header(names: list[str]) -> bool:
    """Whether the first line of a table names its columns: some cell is not a number."""
    return not all(re.fullmatch(r"[-+]?\d+(\.\d*)?", name) for name in names)


def _guess(names: list[str], recognised: tuple[str, ...]) -> str | None:
    plain = {re.sub(r"[^a-z]", "", name.lower()): name for name in reversed(names)}
    return next((plain[name] for name in recognised if name in plain), None)


def _stream(source: Source, named: dict[str, str | None]) -> list[Any] | None:
    """The columns of a plain CSV in a zip, parsed while it is unpacked, without a copy of the table.

    A plain CSV names its columns, has whole numbers as ids and times, and no quotes, within which a line end
    would not end a row. For any other file the result is None.
    """
    if isinstance(source, Path) or source.suffix.lower() != ".csv":
        return None
    polars = polars_module(source, RatingsError)
    parts: list[tuple[np.ndarray, ...]] = []
    names: list[str] = []
    for block in blocks(source):
        if not names:
            first, _, block = block.partition(b"\n")
            separator, names = cells(first.decode("utf-8-sig", errors="replace").strip())
            if len(names) < 3 or not is_header(names) or b'"' in first:
                return None
            columns = list(choose_columns(names, named, str(source)).values())
            kinds = (polars.Int64, polars.Int64, polars.Float32, polars.Int64)
            types = dict(zip(columns, kinds, strict=False))
            header = separator.join(names).encode() + b"\n"
        if b'"' in block:
            return None
        try:
            block = header + block
            frame = polars.read_csv(block, separator=separator, columns=columns, schema_overrides=types)
        except polars.exceptions.PolarsError:
            return None
        read = [frame[name] for name in columns]
        if any(column.null_count() for column in (*read[:2], *read[3:])):
            return None
        parts.append(tuple(column.to_numpy() for column in read))
    return [np.concatenate(column) for column in zip(*parts, strict=True)] if parts else None


def _collect(source: Source, named: dict[str, str | None], implicit: bool = False) -> tuple[bool, list[Any]]:
    """Whether the table names its columns, and the columns: ids whole numbers or text, the rating Float32 or
    None, and the time if there is one."""
    fault: RatingsError
    with on_disk(source) as path:
        # Rows after the first thousand may have other types, such as 3.5 after whole numbers.
        for inferred in (1000, None):
            frame, header = _scan(path, source, 2 if implicit else 3, inferred=inferred)
            with error_names(source, RatingsError, "not a table of ratings"):
                names = frame.collect_schema().names()
            chosen = choose_columns(names, named, str(source), header, implicit)
            try:
                return header, selected_columns(frame, chosen, source, header, named["time"] is not None)
            except RatingsError as error:
                fault = error
        raise ("rating" in chosen and _no_number(path, source, chosen["rating"])) or fault


def selected_columns(frame: Any, chosen: dict[str, str], source: Any, header: bool, timed: bool) -> list[Any]:
    """The chosen columns of a lazy frame, for :meth:`Ratings.from_rows`.

    A column that only seems to be the time (``timed`` is False) is left out if it cannot be read as one.
    """
    polars = polars_module(source, RatingsError)
    columns = {role: polars.col(name).alias(role) for role, name in chosen.items()}
    if "rating" in columns:
        columns["rating"] = columns["rating"].cast(polars.Float32, strict=True)
    with error_names(source, RatingsError, "not a table of ratings"):
        read = frame.select(columns.values()).collect(engine="streaming")
    ids = [_ids(read[role].alias(chosen[role]), source, role, header) for role in ("user", "item")]
    times = [_times(read["time"].alias(chosen["time"]), source, header, timed)] if "time" in chosen else []
    return [*ids, read["rating"].to_numpy() if "rating" in chosen else None, *times]


def _times(column: Any, source: Any, header: bool, timed: bool) -> Any:
    """Times as numbers or dates of numpy, or None where the column does not hold them and need not."""
    import polars

    if column.dtype == polars.String:
        dates = column.str.to_datetime(strict=False, time_unit="us", time_zone="UTC")
        numbers = column.cast(polars.Float64, strict=False)
        column = numbers if numbers.null_count() <= dates.null_count() else dates
    if column.dtype.is_temporal():
        column = column.cast(polars.Datetime("us")).to_physical()
    if column.dtype.is_numeric() and not column.null_count():
        return column.to_numpy()
    if not timed:
        return None
    bad = column.is_null() if column.null_count() else polars.Series([True])
    raise RatingsError(f"{source}: row {int(bad.arg_max()) + 1 + header} has no time in {column.name!r}")


def _scan(path: Path, source: Source, least: int = 3, inferred: int | None = 1000) -> tuple[Any, bool]:
    """A lazy frame, and whether the file names its columns.

    The first ``inferred`` rows of a CSV, or all rows, decide its types; without any, all columns are text.
    """
    polars = polars_module(source, RatingsError)
    if source.suffix.lower() == ".parquet":
        with path.open("rb") as opened:
            check_parquet(opened, source, RatingsError)
        with error_names(source, RatingsError, NOT_PARQUET):
            frame = polars.scan_parquet(path)
            frame.collect_schema()
        return frame, True
    with path.open("rb") as file:
        first = file.readline(1 << 16)
    try:
        separator, names = cells(first.decode("utf-8-sig").strip())
    except UnicodeDecodeError:
        raise RatingsError(f"{source}: the first line is not UTF-8 text: {first[:40]!r}") from None
    if len(names) < least:
        count = "two" if least == 2 else "three"
        raise RatingsError(f"{source}: a table has at least {count} columns, but begins with {first[:80]!r}")
    named = is_header(names)
    return polars.scan_csv(path, separator=separator, has_header=named, infer_schema_length=inferred), named


def _no_number(path: Path, source: Source, column: str) -> RatingsError | None:
    """An error that names the first row whose rating is text and no number, or None if there is none."""
    import polars

    frame, header = _scan(path, source, inferred=0)
    try:
        with error_names(source, RatingsError, "not a table of ratings"):
            texts = frame.select(polars.col(column).cast(polars.String)).collect()[column]
    except RatingsError:  # it is not the rating that is at fault
        return None
    bad = texts.is_not_null() & texts.cast(polars.Float32, strict=False).is_null()
    if not bad.any():
        return None
    row, text = int(bad.arg_max()) + 1 + header, texts[int(bad.arg_max())]
    more = f"; {int(bad.sum()):,} of {len(bad):,} rows are so" if bad.sum() > 1 else ""
    return RatingsError(
        f"{source}: row {row} has the rating {text!r} in {column!r}, which is no number{more}"
    )


def _ids(column: Any, source: Source, role: str, header: bool) -> Any:
    polars = polars_module(source, RatingsError)
    if column.null_count():
        row = int(column.is_null().arg_max()) + 1 + header
        raise RatingsError(f"{source}: row {row} has no {role}; if the file was cut off, fetch it again")
    if column.dtype.is_integer():
        return column.to_numpy()
    if column.dtype not in (polars.String, polars.Categorical, polars.Enum):
        holds = f"{column.name!r} holds {column.dtype}"
        raise RatingsError(f"{source}: {holds}; a {role} is a whole number or text")
    text = column.cast(polars.String)
    names = text.unique().sort()
    return CodedNames(names.to_list(), text.cast(polars.Enum(names)).to_physical().to_numpy())
