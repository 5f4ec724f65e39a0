"""Jester: a matrix of users by jokes, ratings of -10..10, as an npz/npy array or the publisher's table.

The publisher's table has the number of jokes rated in its first column and 99 where a joke was not rated; in
arrays NaN means the same. Goldberg et al., "Eigentaste: A constant time collaborative filtering algorithm",
2001.
"""

import io

import numpy as np

from factorank.data.frames import error_names, polars_module
from factorank.data.ratings.files import Source, on_disk, read
from factorank.data.ratings.ratings import Ratings
from factorank.errors import RatingsError

UNRATED = 99.0


def read_jester(source: Source) -> Ratings:
    """Ratings from an npz or npy matrix, or from the publisher's table as text or in Excel's format."""
    if source.suffix.lower() in (".npz", ".npy"):
        return from_matrix(_array(source), str(source))
    table = _sheet(source) if source.suffix.lower() in (".xls", ".xlsx") else _text(source)
    return from_matrix(_without_counts(table, str(source)), str(source))


def from_matrix(matrix: np.ndarray, where: str) -> Ratings:
    """Ratings from a matrix ``(users, jokes)``; NaN and 99 mean not rated. Users and jokes count from 1."""
    if matrix.ndim != 2 or matrix.dtype.kind not in "fiu":
        given = f"{matrix.dtype} {matrix.shape}"
        raise RatingsError(f"{where}: a matrix of users by jokes is needed, not {given}")
    matrix = matrix.astype(np.float32)
    rated = ~np.isnan(matrix) & (matrix != UNRATED)
    wrong = rated & ~(np.abs(matrix) <= 10)
    if wrong.any():
        user, joke = np.argwhere(wrong)[0]
        fault = f"in row {user + 1} joke {joke + 1} has {matrix[user, joke]:g}"
        raise RatingsError(f"{where}: ratings of jokes are -10..10, or 99 or NaN for none, but {fault}")
    users, jokes = np.nonzero(rated)
    columns, scale = (users + 1, jokes + 1, matrix[rated]), (10.0, 0.25)  # relevance (rating + 10) / 4
    return Ratings.from_rows(*columns, where=where, scale=scale, source="jester")


def _array(source: Source) -> np.ndarray:
    data = read(source)
    with error_names(source, RatingsError, "damaged or downloaded only in part, or no numpy file"):
        loaded = np.load(io.BytesIO(data), allow_pickle=False)
        arrays = {"": loaded} if isinstance(loaded, np.ndarray) else {name: loaded[name] for name in loaded}
    if len(arrays) != 1 and "ratings" not in arrays:
        there = f"there are {', '.join(arrays)}" if arrays else "there is none"
        raise RatingsError(f"{source}: an array 'ratings' is needed; {there}")
    return arrays["ratings"] if "ratings" in arrays else next(iter(arrays.values()))


def _text(source: Source) -> np.ndarray:
    text = read(source).decode("ascii", errors="replace")
    first = text.lstrip().split("\n", 1)[0]
    separator = next((each for each in (",", ";", "\t") if each in first), None)
    with error_names(source, RatingsError, "not a matrix of numbers"):
        return np.loadtxt(io.StringIO(text), delimiter=separator, ndmin=2, dtype=np.float32)


def _sheet(source: Source) -> np.ndarray:
    polars = polars_module(source, RatingsError)
    with on_disk(source) as path, error_names(source, RatingsError, "damaged, or no sheet of numbers"):
        try:
            frame = polars.read_excel(path, engine="calamine", has_header=False)
        except ImportError:
            advice = "pip install 'factorank[data]'; or save the sheet as CSV"
            raise RatingsError(f"{source}: Excel's format is read with fastexcel: {advice}") from None
        return frame.cast(polars.Float32).to_numpy()


def _without_counts(matrix: np.ndarray, where: str) -> np.ndarray:
    """The matrix without its first column if that is the number of jokes rated, which is then checked."""
    counts, rest = matrix[:, 0], matrix[:, 1:]
    if not ((counts == counts.round()) & (counts >= 0) & (counts <= rest.shape[1])).all():
        return matrix
    rated = (rest != UNRATED).sum(1)
    if (rated != counts).any():
        row = int((rated != counts).argmax())
        fault = f"row {row + 1} says {counts[row]:g} jokes were rated, but has {rated[row]} ratings"
        raise RatingsError(f"{where}: {fault}; the file is damaged")
    return rest
