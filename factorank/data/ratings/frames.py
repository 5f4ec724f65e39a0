"""Ratings from frames and columns that are in memory already: pandas, polars, or a mapping of columns."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from factorank.data.ratings.ratings import Ratings
from factorank.data.ratings.tables import choose_columns, selected_columns
from factorank.errors import RatingsError


def as_ratings(
    table: Any,
    *,
    user: str | None = None,
    item: str | None = None,
    rating: str | None = None,
    time: str | None = None,
    implicit: bool = False,
    missing: str = "refuse",
) -> Ratings:
    """Ratings from a frame of pandas or polars or a mapping of columns; :class:`Ratings` are returned as is.

    Columns are recognised and rules are as for :func:`load_ratings`.

    >>> as_ratings({"userId": [1, 1, 2], "movie": ["a", "b", "b"], "stars": [5, 3, 4], "time": [7, 8, 9]})
    Ratings(users=2, items=2, ratings=3)
    >>> as_ratings({"user": [1, 1, 1, 2], "item": ["a", "a", "b", "b"]}, implicit=True).values
    tensor([1.5850, 1.0000, 1.0000])
    """
    if isinstance(table, Ratings):
        return table
    columns = {"user": user, "item": item, "rating": rating, "time": time}
    in_polars = type(table).__module__.partition(".")[0] == "polars"
    if in_polars and hasattr(table, "collect_schema"):
        names = table.collect_schema().names()
    else:
        names = list(table if isinstance(table, Mapping) else getattr(table, "columns", ()))
    if not names:
        raise RatingsError(
            "ratings are a table of fr.load_ratings, a frame of pandas or polars, or a mapping of columns,"
            f" not {type(table).__name__}"
        )
    where = "the table"
    chosen = choose_columns(list(map(str, names)), columns, where, implicit=implicit)
    if in_polars:
        values = selected_columns(table.lazy(), chosen, where, header=False, timed=time is not None)
    else:
        read = {role: _column(table[name], role, where) for role, name in chosen.items()}
        values = [read.get(role) for role in columns]
    return Ratings.from_rows(*values, where=where, missing=missing, implicit=implicit)


def _column(column: Any, role: str, where: str) -> np.ndarray:
    """A column of pandas or of any sequence as an array: ids are whole numbers or text."""
    array = np.asarray(column)
    if role in ("rating", "time"):
        if array.dtype.kind != "O":
            return array
        try:
            return array.astype(np.float64 if role == "rating" else "datetime64[us]")
        except (TypeError, ValueError) as error:
            raise RatingsError(f"{where}: the column of the {role} holds no {role}: {error}") from None
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        raise RatingsError(f"{where}: row {int(np.isfinite(array).argmin()) + 1} has no {role}")
    if array.dtype.kind == "O":
        texts = [isinstance(each, str) for each in array.tolist()]
        if not all(texts):
            row = texts.index(False)
            raise RatingsError(
                f"{where}: row {row + 1} has the {role} {array[row]!r}; ids are all whole numbers or all text"
            )
        return array.astype(str)
    return array
