"""Columns of tables, of whatever kind, and the distinct values in them."""

import ctypes
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from factorank.errors import RankingsError

Place = Callable[[int], str]
"""How a row is named in a message."""


def row_name(row: int) -> str:
    """How a row is named in a message, where a table has no lines."""
    return f"row {row}"


def columns_of(table: Any) -> Mapping[str, Any]:
    """The columns of a table of any usual kind, by name, as they are."""
    if isinstance(table, Mapping):
        columns = table
    elif isinstance(table, np.ndarray) and table.dtype.names:
        columns = {name: table[name] for name in table.dtype.names}
    elif isinstance(table, np.ndarray) and table.ndim == 2 and table.shape[1] == 3:
        columns = dict(zip(("model_a", "model_b", "winner"), table.T, strict=True))
    elif hasattr(table, "columns") and hasattr(table, "__getitem__"):
        columns = {str(name): table[name] for name in table.columns}
    else:
        raise RankingsError(
            "battles are a table: a dict of columns, a pandas or polars frame, a structured numpy array, or"
            f" one of three columns (model_a, model_b, winner), not {type(table).__name__}"
        )
    return {str(name): column for name, column in columns.items()}


def distinct(column: Any) -> tuple[np.ndarray, list[Any]]:
    """The number of the value in each row, int32, and the values themselves, in the order they come.

    A missing value is None. Millions of rows take some tens of milliseconds.

    >>> distinct(["b", "a", None, "b"])
    (array([0, 1, 2, 0], dtype=int32), ['b', 'a', None])
    """
    from factorank.kernels.labels import number_words

    source = type(column).__module__.partition(".")[0]
    if source == "polars":
        codes, first = number_words(_polars_words(column))
        return _merged(codes, column[first].to_list())
    if source == "pandas" and column.dtype != object:
        numbers, uniques = column.factorize()  # missing values have the number -1
        codes, values = numbers.astype(np.int32), uniques.tolist()
        return (
            (np.where(codes < 0, len(values), codes), [*values, None])
            if (codes < 0).any()
            else (codes, values)
        )
    if not isinstance(column, np.ndarray) or column.dtype.kind not in "iub":
        column = np.asarray(column, dtype=object)
    codes, first = number_words(_numpy_words(column))
    return _merged(codes, column[first].tolist())


def _polars_words(column: Any) -> np.ndarray:
    """Integers ``(rows,)`` that are the same where the values of a polars column are."""
    import polars

    if column.dtype in (polars.String, polars.Categorical) or isinstance(column.dtype, polars.Enum):
        column = column.cast(polars.Categorical).to_physical()
    if not column.dtype.is_integer():
        return _numpy_words(np.asarray(column.to_list(), dtype=object))
    return np.ascontiguousarray(column.cast(polars.Int64).fill_null(np.iinfo(np.int64).min).to_numpy())


def _numpy_words(values: np.ndarray) -> np.ndarray:
    """Integers ``(rows,)`` that differ where values do; where values are equal they may differ, too.

    Of objects their addresses: equal names are mostly the same object, and few remain to be compared.
    """
    if values.dtype != object:
        return values.astype(np.int64)
    values = np.ascontiguousarray(values)
    address = values.__array_interface__["data"][0]
    memory = (ctypes.c_char * values.nbytes).from_address(address)
    return (
        np.frombuffer(memoryview(memory).cast("B"), np.int64).copy() if len(values) else np.empty(0, np.int64)
    )


def _merged(codes: np.ndarray, values: list[Any]) -> tuple[np.ndarray, list[Any]]:
    """The same with equal values given one number, and missing ones as None."""
    numbers: dict[Any, int] = {}
    each = [
        numbers.setdefault(None if value is None or value != value else value, len(numbers))
        for value in values
    ]
    if len(numbers) < len(values):
        codes = np.array(each, np.int32)[codes]
    return codes, list(numbers)
