"""One user's items as frames and series of pandas and polars hold them."""

from collections.abc import Sequence
from typing import Any

from factorank.data.ratings.tables import choose_columns
from factorank.errors import FactorankError, RatingsError


def plain(part: Any) -> Any:
    """A frame as a mapping from items to ratings, or as a list of items where it has no ratings; anything
    else as it is.

    Columns are recognised by the names that :func:`factorank.load_ratings` recognises. A series is its
    values. One whose index says more than their places is refused, because its values may be ratings.
    """
    if type(part).__module__.partition(".")[0] not in ("pandas", "polars"):
        return part
    if hasattr(part, "collect"):
        part = part.collect()
    if hasattr(part, "columns"):
        return _of_frame(part)
    index = getattr(part, "index", None)
    if getattr(index, "dtype", None) is not None and _says_more(part, index):
        raise FactorankError(
            "a series with items as its index is not read: to_dict() makes ratings by item of it, to_list() a"
            " list of its values"
        )
    return part


def _of_frame(frame: Any) -> Any:
    names = [str(name) for name in frame.columns]
    column: dict[str, str] = {}
    for role in ("item", "rating", "user"):
        try:
            column |= choose_columns(names, {role: None}, "the frame")
        except RatingsError:
            continue
    if "item" not in column:
        raise FactorankError(
            "a frame of one user's items has a column of items, such as 'item', and perhaps one of ratings,"
            f" such as 'rating'; this one has {', '.join(names)}"
        )
    if "user" in column and len(set(frame[column["user"]].to_list())) > 1:
        raise FactorankError(
            f"the frame holds several users in {column['user']!r}; give a list with a frame for each"
        )
    items = frame[column["item"]].to_list()
    if "rating" not in column:
        return items
    return rated(items, frame[column["rating"]].to_list(), "the frame")


def rated(items: Sequence[Any], ratings: Sequence[Any], where: str) -> dict[Any, Any]:
    """A mapping from items to ratings; an item that is there twice is refused."""
    by_item = dict(zip(items, ratings, strict=True))
    if len(by_item) < len(items):
        twice = next(item for place, item in enumerate(items) if item in items[:place])
        raise FactorankError(f"{where} rates {twice!r} more than once")
    return by_item


def _says_more(series: Any, index: Any) -> bool:
    """Whether the values of a series of pandas may be ratings of what is in its index."""
    if index.dtype.kind not in "iu":
        return True
    counts = index.tolist() == list(range(len(index)))
    return bool(getattr(series.dtype, "kind", "O") == "f" and not counts)
