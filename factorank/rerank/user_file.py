"""The preferences of one user, read from a file."""

import csv
import math
import os
from pathlib import Path

from factorank.errors import RatingsError


def read_user(path: str | os.PathLike[str]) -> list[str] | dict[str, float]:
    """The ratings of a CSV with the columns ``item`` and ``rating`` (NaN where that is empty), or the order,
    best first, of one with a column ``item`` alone.

    An item on two lines is refused, as is a rating that is no number.
    """
    with Path(path).open(newline="", encoding="utf-8-sig") as file:
        lines = csv.DictReader(file)
        columns = [str(name).strip().lower() for name in lines.fieldnames or ()]
        if "item" not in columns:
            raise RatingsError(f"{path}:1: expected the columns item and rating, or item alone")
        lines.fieldnames = columns
        ratings: dict[str, float] = {}
        for line in lines:
            number = lines.line_num
            item = (line["item"] or "").strip()
            if not item:
                raise RatingsError(f"{path}:{number}: there is no item")
            if item in ratings:
                raise RatingsError(f"{path}:{number}: {item!r} was on an earlier line already")
            text = (line.get("rating") or "").strip()
            try:
                ratings[item] = float(text) if text else math.nan
            except ValueError:
                raise RatingsError(
                    f"{path}:{number}: {item!r} is rated {text!r}, which is no number"
                ) from None
            if math.isinf(ratings[item]):
                raise RatingsError(f"{path}:{number}: {item!r} is rated {text!r}")
    return ratings if "rating" in columns else list(ratings)
