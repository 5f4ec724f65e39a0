"""Ratings from a file of any format."""

import hashlib
import json
import os
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from factorank.data.ratings.columns import ItemTable
from factorank.data.ratings.files import Source, find_ratings, read
from factorank.data.ratings.jester import read_jester
from factorank.data.ratings.movielens import read_double_colons, read_movies, release_name
from factorank.data.ratings.ratings import Ratings
from factorank.data.ratings.saving import VERSION
from factorank.data.ratings.tables import cells, is_header, read_items, read_table
from factorank.errors import RatingsError

PathLike = str | os.PathLike[str]
LEAST_JOKES = 10
"""A table of numbers without names of columns is a matrix of users by jokes if it has more columns."""


def load_ratings(
    path: PathLike,
    *,
    user: str | None = None,
    item: str | None = None,
    rating: str | None = None,
    time: str | None = None,
    titles: PathLike | None = None,
    implicit: bool = False,
    missing: str = "refuse",
    cache: PathLike | None = None,
) -> Ratings:
    """Ratings from a file, a folder or a zip; the format is recognised.

    * MovieLens 1M and 10M (``ratings.dat``, lines of ``user::item::rating::time``) and 20M, 25M, 32M
      (``ratings.csv``), with titles, genres and years from ``movies.dat`` or ``movies.csv`` beside it;
    * Jester as an npz or npy matrix or as the publisher's table, in Excel's format or as text;
    * any CSV or parquet with a row for each rating. Columns are recognised by name (``userId``, ``item``,
      ``stars``, …) unless ``user``, ``item`` and ``rating`` name them. Ids of digits are read as numbers.
      A column of times (``timestamp``, ``date``, …, or the one that ``time`` names) is kept;
    * a file of :meth:`Ratings.save`.

    A rating that is missing, NaN or infinite is refused, or its row is dropped if ``missing="drop"``. If a
    user rated an item twice, the latest rating counts, or the last row where there are no times. Users with
    few ratings are kept (see :meth:`Ratings.filter`). A damaged or half-downloaded zip, a cut line, or a
    table without the three columns raises :class:`RatingsError`.

    Args:
        titles: a CSV or parquet table of the items: their ids, a column ``title`` or ``name``, and numbers
            that become ``features``.
        implicit: the rows are choices, such as clicks, plays or purchases. They are counted, or their column
            of counts (``clicks``, ``plays``, …, or the one that ``rating`` names) is added up; no other
            column of ratings is read. A count of 0 is an item that was shown and not chosen
            (:mod:`factorank.data.ratings.choices`).
        cache: a folder in which the arrays are kept under a name made from the file's name, size and date
            and from these options; the next call reads them in a fraction of the time.

    >>> import tempfile
    >>> file = Path(tempfile.mkdtemp()) / "stars.csv"
    >>> _ = file.write_text("who,userId,movieId,stars\\nA,1,10,5\\nA,1,20,3.5\\nB,2,10,4\\n")
    >>> ratings = load_ratings(file)
    >>> ratings, ratings.ids, ratings.values
    (Ratings(users=2, items=2, ratings=3), [10, 20], tensor([5.0000, 3.5000, 4.0000]))
    """
    source = find_ratings(Path(path))
    if isinstance(source, Path) and source.suffix.lower() == ".safetensors":
        return Ratings.load(source)
    columns = {"user": user, "item": item, "rating": rating, "time": time}
    item_file = None if titles is None else find_ratings(Path(titles))
    if cache is None:
        return _load(source, columns, item_file, missing, implicit)
    key = _key(source, columns, item_file, missing, implicit)
    kept = Path(cache) / f"{_container(source).stem}-{key}.safetensors"
    with suppress(RatingsError):  # there is no copy, or a damaged one is made again
        return Ratings.load(kept)
    ratings = _load(source, columns, item_file, missing, implicit)
    ratings.save(kept)
    return ratings


def _load(
    source: Source, columns: dict[str, str | None], item_file: Source | None, missing: str, implicit: bool
) -> Ratings:
    if source.suffix.lower() in (".npz", ".npy", ".xls", ".xlsx"):
        ratings = read_jester(source)
    elif source.suffix.lower() == ".parquet":
        ratings = read_table(source, columns, missing, implicit)
    else:
        first = read(source, 1 << 16).split(b"\n", 1)[0].decode("utf-8-sig", errors="replace").strip()
        if "::" in first and "," not in first:
            ratings = read_double_colons(source, missing)
        elif len(names := cells(first)[1]) > LEAST_JOKES and not is_header(names):
            ratings = read_jester(source)
        else:
            ratings = read_table(source, columns, missing, implicit)
    if implicit and not ratings.implicit:  # of a format that has ratings: each of them is a choice
        ratings = replace(
            ratings, values=torch.ones_like(ratings.values), shift=0.0, scale=1.0, implicit=True
        )
    if item_file is not None:
        return _with_items(ratings, read_items(item_file, columns["item"]))
    parent: Any = source.parent  # of a member of a zip, it has a type that mypy does not know
    for movies in (parent / "movies.dat", parent / "movies.csv"):
        if source.name.lower() in ("ratings.dat", "ratings.csv") and movies.is_file():
            ratings = replace(ratings, source=release_name(source), shift=0.0, scale=1.0)
            return _with_items(ratings, read_movies(movies))
    return ratings


def _with_items(ratings: Ratings, table: ItemTable) -> Ratings:
    """The ratings with titles and features; an item that the table lacks has its id as title, and zeros."""
    row_of = {key: row for row, key in enumerate(table.ids)}
    rows = [row_of.get(key, -1) for key in ratings.ids]
    features = np.vstack([table.features, np.zeros(len(table.feature_names), dtype=np.float32)])[rows]
    titles = table.titles
    if titles is not None:
        titles = [titles[row] if row >= 0 else str(key) for row, key in zip(rows, ratings.ids, strict=True)]
    known = torch.from_numpy(features) if table.feature_names else None
    return replace(ratings, **table._replace(ids=ratings.ids, titles=titles, features=known)._asdict())


def _key(source: Source, columns: dict[str, str | None], item_file: Source | None, *options: Any) -> str:
    """A fingerprint of the files and options; not of the bytes, which would take as long as reading."""
    parts: list[object] = [VERSION, columns, *options]
    for each in (source, item_file):
        if each is not None:
            state = _container(each).stat()
            parts.append([os.path.realpath(str(each)), state.st_size, state.st_mtime_ns])
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:16]


def _container(source: Source) -> Path:
    """The file itself, or the zip that it is in."""
    return source if isinstance(source, Path) else Path(str(source.root.filename))
