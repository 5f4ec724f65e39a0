"""From columns of users, items and ratings to compact arrays."""

from typing import Any, NamedTuple

import numpy as np
import torch

from factorank.data.ratings.core import Ratings
from factorank.errors import RatingsError

MISSING = ("refuse", "drop")
TOP = 5.0
"""The largest relevance: what is rated on a longer scale is scaled to it."""
WIDEST = 1 << 26
"""The widest range of whole-number ids for which a table with an entry for each is made."""


class Coded(NamedTuple):
    """A column of text: the different names, ascending, and the place of each row's among them."""

    names: list[str]
    codes: np.ndarray


def from_columns(
    users: Any,
    items: Any,
    values: Any,
    *,
    where: str,
    missing: str = "refuse",
    first_row: int = 1,
    scale: tuple[float, float] | None = None,
    source: str = "table",
) -> Ratings:
    """Ratings from three columns; ``scale`` is (shift, scale) of the relevance, :func:`scale_of` if None.

    Rules: a missing, NaN or infinite rating is refused, or its row dropped if ``missing="drop"``; where a
    user rated an item more than once, the last row counts.
    """
    if missing not in MISSING:
        raise RatingsError(f"missing is 'refuse' or 'drop', not {missing!r}")
    values = np.asarray(values, dtype=np.float32)
    (user_names, users), (item_names, items) = _as_ids(users, where), _as_ids(items, where)
    if not len(users) == len(items) == len(values):
        raise RatingsError(
            f"{where}: columns of one length are needed, not {len(users)} users, {len(items)} items and"
            f" {len(values)} ratings"
        )
    good = np.isfinite(values)
    if not good.all():
        if missing == "refuse":
            row = int(good.argmin())
            raise RatingsError(
                f"{where}: row {row + first_row} has no rating, or one that is not a number;"
                f" {int((~good).sum()):,} of {len(good):,} rows are so. If they mean 'not rated',"
                " missing='drop' leaves them out; if the file was cut off, fetch it again"
            )
        users, items, values = users[good], items[good], values[good]
    if not len(values):
        raise RatingsError(f"{where}: there are no ratings in it")
    user_ids, users = dense(users)
    item_ids, items = dense(items)
    rows = len(values)
    users, items, values = _grouped(users, items, values, len(item_ids))
    counts = np.bincount(users, minlength=len(user_ids))
    shift, factor = scale_of(values) if scale is None else scale
    return Ratings(
        starts=torch.from_numpy(np.concatenate([[0], counts.cumsum()])),
        items=torch.from_numpy(items),
        values=torch.from_numpy(values),
        ids=_named(item_ids, item_names),
        user_ids=_named(user_ids, user_names),
        shift=shift,
        scale=factor,
        source=source,
        repeated=rows - len(values),
    )


def scale_of(values: np.ndarray) -> tuple[float, float]:
    """The shift and scale that make relevances of ratings: none for ratings within 0..5."""
    low, high = float(values.min()), float(values.max())
    shift = max(0.0, -low)
    return shift, 1.0 if high + shift <= TOP else TOP / (high + shift)


def dense(ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The different ids, ascending, and the index of each row's among them, as int32."""
    low, high = int(ids.min()), int(ids.max())
    if high - low < WIDEST:  # by a table: several times faster than sorting millions of rows
        seen = np.zeros(high - low + 1, dtype=bool)
        offset = ids - low if low else ids
        seen[offset] = True
        index = np.cumsum(seen, dtype=np.int32) - np.int32(1)
        return np.flatnonzero(seen) + low, index[offset]
    found, index = np.unique(ids, return_inverse=True)
    return found, index.astype(np.int32)


def _grouped(
    users: np.ndarray, items: np.ndarray, values: np.ndarray, item_count: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rows sorted by user and item, of each pair the last."""
    keys = users.astype(np.int64) * item_count + items
    if not (keys[1:] > keys[:-1]).all():
        order = keys.argsort(kind="stable")
        keys = keys[order]
        last = np.append(keys[1:] != keys[:-1], True)
        order = order[last]
        users, items, values = users[order], items[order], values[order]
    return users, items, np.require(values, requirements=["C", "W"])


def _as_ids(ids: Any, where: str) -> tuple[list[str] | None, np.ndarray]:
    """The names behind a column of ids, if they are text, and whole numbers."""
    if isinstance(ids, Coded):
        return ids.names, ids.codes
    array = np.asarray(ids)
    if not array.size or (array.ndim == 1 and array.dtype.kind in "iu"):
        return None, array.astype(np.int64, copy=False)
    if array.ndim != 1 or array.dtype.kind != "U":
        raise RatingsError(
            f"{where}: ids are a column of whole numbers or text, not {array.dtype} {array.shape}"
        )
    names, index = np.unique(array, return_inverse=True)
    return names.tolist(), index


def _named(index: np.ndarray, names: list[str] | None) -> list[Any]:
    return index.tolist() if names is None else [names[i] for i in index.tolist()]
