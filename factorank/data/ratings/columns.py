"""Compact arrays from columns of users, items and ratings."""

import warnings
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from factorank.data.ratings.choices import count_ratings, summed_counts
from factorank.errors import RatingsError

TOP = 5.0
"""The largest relevance: ratings on a longer scale are scaled to it."""
WIDEST = 1 << 26
"""The widest range of whole-number ids that is numbered by a table with an entry for each id."""


class CodedNames(NamedTuple):
    """A column of text: the different names, ascending, and the index of each row's name among them."""

    names: list[str]
    codes: np.ndarray


class ItemTable(NamedTuple):
    """Items by id, with titles and features ``(items, f)``."""

    ids: Sequence[str] | Sequence[int]
    titles: Sequence[str] | None
    features: Any
    feature_names: Sequence[str]
    feature_scales: Sequence[tuple[float, float]]


Ids = Sequence[str] | Sequence[int] | np.ndarray | CodedNames
"""A column of ids."""


def compact(
    users: Ids,
    items: Ids,
    values: Sequence[float] | np.ndarray | None,
    times: Sequence[int] | np.ndarray | None = None,
    *,
    where: str,
    missing: str = "refuse",
    first_row: int = 1,
    implicit: bool = False,
) -> dict[str, Any]:
    """The arrays of :class:`factorank.Ratings` from columns, grouped by user.

    A missing, NaN or infinite rating is refused, or its row is dropped if ``missing="drop"``. If a user rated
    an item several times, the latest rating counts; without times, or at equal ones, that of the last row.
    Counts of choices (``implicit``), one for each row if they are None, are added up and become ratings.
    Errors begin with ``where`` and count rows from ``first_row``.
    """
    if missing not in ("refuse", "drop"):
        raise RatingsError(f"missing is 'refuse' or 'drop', not {missing!r}")
    (user_names, user), (item_names, item) = _as_ids(users, where), _as_ids(items, where)
    ratings = np.ones(len(user), np.float32) if values is None else np.asarray(values, dtype=np.float32)
    if ratings.ndim != 1:
        raise RatingsError(f"{where}: ratings are a column of numbers, not of shape {ratings.shape}")
    time = None if times is None else _as_times(times, where)
    if not len(user) == len(item) == len(ratings) or (time is not None and len(time) != len(user)):
        lengths = f"{len(user)} users, {len(item)} items and {len(ratings)} ratings"
        lengths += "" if time is None else f", {len(time)} times"
        raise RatingsError(f"{where}: columns of one length are needed, not {lengths}")
    good = np.isfinite(ratings)
    if not good.all():
        if missing == "refuse":
            fault = f"row {int(good.argmin()) + first_row} has no rating, or one that is not a number"
            rows = f"{int((~good).sum()):,} of {len(good):,} rows are so"
            advice = (
                "If not rated, {parameter='drop'} leaves them out; if the file was cut off, fetch it again"
            )
            raise RatingsError(f"{where}: {fault}; {rows}. {advice}", parameter="missing")
        user, item, ratings = user[good], item[good], ratings[good]
        time = None if time is None else time[good]
    if not len(ratings):
        raise RatingsError(f"{where}: there are no ratings in it")
    user_ids, user = dense(user)
    item_ids, item = dense(item)
    rows_given = len(ratings)
    rows, sums = _grouped(user, item, time, len(item_ids), ratings if implicit else None, where)
    ratings = ratings[rows] if sums is None else sums
    user, item, ratings = user[rows], item[rows], np.require(ratings, requirements=["C", "W"])
    counts = np.bincount(user, minlength=len(user_ids))
    return {
        "starts": torch.from_numpy(np.concatenate([[0], counts.cumsum()])),
        "items": torch.from_numpy(item),
        "values": count_ratings(torch.from_numpy(ratings)) if implicit else torch.from_numpy(ratings),
        "times": None if time is None else torch.from_numpy(np.require(time[rows], requirements=["C", "W"])),
        "ids": _named(item_ids, item_names),
        "user_ids": _named(user_ids, user_names),
        "repeated": 0 if implicit else rows_given - len(ratings),
    }


def relevance_scale(values: Tensor) -> tuple[float, float]:
    """The shift and scale that turn ratings into relevances: 0 and 1 for ratings within 0..5."""
    low, high = float(values.min()), float(values.max())
    shift = max(0.0, -low)
    return shift, 1.0 if high + shift <= TOP else TOP / (high + shift)


def sparse_matrix(rows: Tensor, columns: Tensor, values: Tensor, shape: tuple[int, int]) -> Tensor:
    """A coalesced matrix with these values at these places; places outside of the shape are refused."""
    with warnings.catch_warnings():
        # Torch 2.11 warns that checks are off by default, even where they are turned on.
        warnings.filterwarnings("ignore", "Sparse invariant checks", UserWarning)
        places = torch.stack([rows, columns])
        return torch.sparse_coo_tensor(places, values, shape, check_invariants=True).coalesce()


def dense(ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The different ids, ascending, and the index of each row's id among them, as int32."""
    low, high = int(ids.min()), int(ids.max())
    if high - low < WIDEST:  # a table is several times faster than sorting millions of rows
        used = np.zeros(high - low + 1, dtype=bool)
        offset = ids - low if low else ids
        used[offset] = True
        index = np.cumsum(used, dtype=np.int32) - np.int32(1)
        return np.flatnonzero(used) + low, index[offset]
    different, index = np.unique(ids, return_inverse=True)
    return different, index.astype(np.int32)


def _grouped(
    users: np.ndarray,
    items: np.ndarray,
    times: np.ndarray | None,
    item_count: int,
    counts: np.ndarray | None,
    where: str,
) -> tuple[Any, np.ndarray | None]:
    """The rows sorted by user and item, of rows with the same pair the latest, or the last; and the sums of
    the ``counts`` of each pair."""
    keys = users.astype(np.int64) * item_count + items
    if counts is None and (keys[1:] > keys[:-1]).all():
        return slice(None), None
    order = keys.argsort(kind="stable") if times is None else np.lexsort((times, keys))
    sums = None if counts is None else summed_counts(keys, counts, order, where)
    keys = keys[order]
    return order[np.append(keys[1:] != keys[:-1], True)], sums


def _as_times(times: Any, where: str) -> np.ndarray:
    """Times as int64: whole numbers as they are, numbers with fractions and dates in millionths."""
    array = np.asarray(times)
    if array.dtype.kind == "M" and not np.isnat(array).any():
        return array.astype("datetime64[us]").astype(np.int64)
    if array.dtype.kind == "f" and np.isfinite(array).all():
        array = array if (array == array.round()).all() else array * 1e6
        if (abs(array) < 2.0**63).all():
            return array.astype(np.int64)
    if array.dtype.kind not in "iu":
        raise RatingsError(f"{where}: times are numbers or dates, all of them given, not {array.dtype}")
    return _as_int64(array, "times", where)


def _as_ids(ids: Any, where: str) -> tuple[list[str] | None, np.ndarray]:
    """Whole numbers for a column of ids, and the names that they stand for if the ids are text."""
    if isinstance(ids, CodedNames):
        return ids.names, ids.codes
    array = np.asarray(ids)
    if not array.size or (array.ndim == 1 and array.dtype.kind in "iu"):
        return None, _as_int64(array, "ids", where)
    if array.ndim != 1 or array.dtype.kind != "U":
        given = f"{array.dtype} {array.shape}"
        raise RatingsError(f"{where}: ids are a column of whole numbers or text, not {given}")
    names, index = np.unique(array, return_inverse=True)
    return names.tolist(), index


def _as_int64(array: np.ndarray, what: str, where: str) -> np.ndarray:
    """Whole numbers as int64; larger ones, which would become negative, are refused."""
    if array.dtype.kind == "u" and array.size and int(array.max()) >= 2**63:
        raise RatingsError(f"{where}: {what} are whole numbers below 2^63, not {int(array.max())}")
    return array.astype(np.int64, copy=False)


def _named(index: np.ndarray, names: list[str] | None) -> list[Any]:
    return [names[i] for i in index.tolist()] if names else index.tolist()
