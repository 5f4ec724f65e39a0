"""Jester: a matrix of users by jokes, ratings of -10..10, as an npz/npy array or the publisher's table.

The publisher's table has the number of jokes rated in its first column and 99 where a joke was not rated; in
arrays NaN means the same. Goldberg et al., "Eigentaste: A constant time collaborative filtering algorithm",
2001.
"""

import io

import numpy as np

from factorank.data.frames import first_line, polars_module
from factorank.data.ratings.files import Source, on_disk, read
from factorank.data.ratings.ratings import Ratings
from factorank.errors import RatingsError

UNRATED = 99.0
SHIFT, SCALE = 10.0, 0.25
"""Relevance (rating + 10) / 4, so 0..5."""


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
        raise RatingsError(
            f"{where}: ratings of jokes are -10..10, or 99 or NaN for none, but in row {user + 1} joke"
            f" {joke + 1} has {matrix[user, joke]:g}"
        )
    users, jokes = np.nonzero(rated)
    columns = users + 1, jokes + 1, matrix[rated]
    return Ratings.from_rows(*columns, where=where, scale=(SHIFT, SCALE), source="jester")


def _array(source: Source) -> np.ndarray:
    data = read(source)
    try:
        loaded = np.load(io.BytesIO(data), allow_pickle=False)
        arrays = {"": loaded} if isinstance(loaded, np.ndarray) else {name: loaded[name] for name in loaded}
    except Exception as error:  # a damaged zip, npy header or stream has an error of its own
        fault = f"damaged or downloaded only in part, or no numpy file: {error}"
        raise RatingsError(f"{source}: {fault}") from None
    if len(arrays) > 1 and "ratings" not in arrays:
        raise RatingsError(f"{source}: an array 'ratings' is needed; there are {', '.join(arrays)}")
    return arrays.get("ratings", next(iter(arrays.values())))


def _text(source: Source) -> np.ndarray:
    text = read(source).decode("ascii", errors="replace")
    first = text.lstrip().split("\n", 1)[0]
    separator = next((each for each in (",", ";", "\t") if each in first), None)
    try:
        return np.loadtxt(io.StringIO(text), delimiter=separator, ndmin=2, dtype=np.float32)
    except ValueError as error:
        raise RatingsError(f"{source}: not a matrix of numbers: {error}") from None


def _sheet(source: Source) -> np.ndarray:
    polars = polars_module(source, RatingsError)
    with on_disk(source) as path:
        try:
            frame = polars.read_excel(path, engine="calamine", has_header=False)
            return frame.cast(polars.Float32).to_numpy()
        except ImportError:
            raise RatingsError(
                f"{source}: Excel's format is read with fastexcel: pip install 'factorank[data]'; or save the"
                " sheet as CSV"
            ) from None
        except Exception as error:  # fastexcel's and polars' own
            raise RatingsError(f"{source}: damaged, or no sheet of numbers: {first_line(error)}") from None


def _without_counts(matrix: np.ndarray, where: str) -> np.ndarray:
    """The matrix without its first column if that is the number of jokes rated, which is then checked."""
    counts, rest = matrix[:, 0], matrix[:, 1:]
    if ((counts == counts.round()) & (counts >= 0) & (counts <= rest.shape[1])).all():
        rated = (rest != UNRATED).sum(1)
        if (rated != counts).any():
            row = int((rated != counts).argmax())
            raise RatingsError(
                f"{where}: row {row + 1} says {counts[row]:g} jokes were rated, but has {rated[row]}"
                " ratings; the file is damaged"
            )
        return rest
    return matrix
