"""MovieLens: ``::`` files (1M, 10M), and titles, genres and years of its movies (also of the CSV releases).

Harper and Konstan, "The MovieLens datasets: History and context", 2015.
"""

import csv
import io
import re
from pathlib import Path
from typing import Any

import numpy as np

from factorank.data.frames import error_names
from factorank.data.ratings.columns import ItemTable
from factorank.data.ratings.files import Source, read
from factorank.data.ratings.ratings import Ratings
from factorank.errors import RatingsError
from factorank.reading import decode

NO_GENRE = "(no genres listed)"
YEAR = (1980.0, 20.0)
"""The year is a feature as (year - 1980) / 20."""
DIGITS = 19
"""A number of so many digits may not fit into an int64."""
_NAME = re.compile(r"ml-?\d+[mk]", re.IGNORECASE)
_YEAR = re.compile(r"\((\d{4})[^)]*\)\s*$")


def read_double_colons(source: Source, missing: str) -> Ratings:
    """Ratings from lines ``user::item::rating::time``, read by polars if it is installed, else by numpy."""
    data, where = read(source), str(source)
    if not data.endswith(b"\n"):
        line = data.count(b"\n") + 1
        raise RatingsError(f"{where}:{line}: the last line has no end: the file was cut off; fetch it again")
    columns, release = _columns(data.replace(b"::", b"\t"), where), release_name(source)
    return Ratings.from_rows(*columns, where=where, missing=missing, scale=(0.0, 1.0), source=release)


def release_name(source: Source) -> str:
    """ "ml-1m", "ml-32m", … by the name of the folder or zip, else "movielens"."""
    folder = Path(str(source)).resolve().parent.stem
    return folder.lower() if _NAME.match(folder) else "movielens"


def read_movies(source: Source) -> ItemTable:
    """The movies of ``movies.dat`` or ``movies.csv``: titles, genre indicators and the scaled year."""
    data = read(source)
    if source.suffix.lower() == ".dat":
        try:
            text = data.decode("utf-8")
        except UnicodeDecodeError:  # the 1M release is in Latin-1
            text = data.decode("latin-1")
        rows = [line.split("::") for line in text.splitlines() if line]
    else:
        with io.StringIO(decode(data, source, RatingsError), newline="") as lines:
            try:
                rows = list(csv.reader(lines))[1:]
            except csv.Error as error:  # such as a quote that does not end
                raise RatingsError(f"{source}: not a CSV: {error}") from None
    for number, row in enumerate(rows, start=1):
        if len(row) != 3 or not (row[0].isascii() and row[0].isdigit() and len(row[0]) < DIGITS):
            raise RatingsError(f"{source}: row {number} is not a movie's id, title and genres: {row}")
    genres = sorted({genre for _, _, listed in rows for genre in listed.split("|")} - {NO_GENRE, ""})
    column = {genre: number for number, genre in enumerate(genres)}
    features = np.zeros((len(rows), len(genres) + 1), dtype=np.float32)
    for number, (_, title, listed) in enumerate(rows):
        for genre in listed.split("|"):
            if genre in column:
                features[number, column[genre]] = 1
        if year := _YEAR.search(title):
            features[number, -1] = (int(year[1]) - YEAR[0]) / YEAR[1]
    ids, titles = [int(row[0]) for row in rows], [row[1].strip() for row in rows]
    return ItemTable(ids, titles, features, [*genres, "year"], [(0.0, 1.0)] * len(genres) + [YEAR])


def _columns(data: bytes, where: str) -> tuple[Any, ...]:
    try:
        import polars
    except ImportError:
        polars = None
    with error_names(where, RatingsError, "not lines of user::item::rating::time"):
        if polars is None:
            table = np.loadtxt(io.BytesIO(data), delimiter="\t", ndmin=2)
            users, items, _, *times = table.T.astype(np.int64)
            return users, items, table[:, 2], *times[:1]
        types = {"user": polars.Int64, "item": polars.Int64, "rating": polars.Float32, "time": polars.Int64}
        data = b"user\titem\trating\ttime\n" + data
        frame = polars.read_csv(data, separator="\t", columns=list(types), schema_overrides=types)
    for role in ("user", "item"):
        if frame[role].null_count():
            raise RatingsError(f"{where}:{int(frame[role].is_null().arg_max()) + 1}: there is no {role}")
    given = ["user", "item", "rating"] + ["time"] * (not frame["time"].null_count())
    return tuple(frame[name].to_numpy() for name in given)
