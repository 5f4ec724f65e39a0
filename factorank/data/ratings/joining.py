"""Two tables of ratings as one: what came later counts."""

from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from factorank.data.ratings.columns import CodedNames
from factorank.data.ratings.ratings import Ratings
from factorank.errors import RatingsError


def joined(earlier: Ratings, later: Ratings) -> Ratings:
    """The ratings of both tables; of two ratings of an item by a user that of the later table counts, and
    choices are added up. Items and users keep their ids. Titles, features and units are those of the earlier
    table, and for new items those of the later one.

    >>> old = Ratings.from_rows(["ann", "bob"], ["x", "y"], [5.0, 3.0])
    >>> new = Ratings.from_rows(["ann", "cid"], ["x", "z"], [1.0, 4.0])
    >>> both = joined(old, new)
    >>> both, both.ids, both.values
    (Ratings(users=3, items=3, ratings=3), ['x', 'y', 'z'], tensor([1., 3., 4.]))
    """
    if earlier.implicit != later.implicit:
        raise RatingsError("one of the tables holds choices and the other one ratings")
    tables = [table.to("cpu") for table in (earlier, later)]
    users, items = _names(tables, "user_ids", "users"), _names(tables, "ids", "items")
    values = torch.cat([table.values for table in tables])
    if earlier.implicit:
        values = torch.exp2(values) - 1
    times = None
    if all(table.times is not None for table in tables):
        times = torch.cat([table.times for table in tables if table.times is not None]).numpy()
    scale = (earlier.shift, earlier.scale)
    # Rows of the later table stand last: without times, or at equal ones, they count.
    whole = Ratings.from_rows(
        users, items, values.numpy(), times, implicit=earlier.implicit, scale=scale, source=earlier.source
    )
    return replace(whole, **_about_items(tables, whole.ids))


def _names(tables: list[Ratings], ids: str, rows: str) -> Any:
    """A column of the ids of both tables, a row each."""
    named = [getattr(table, ids) for table in tables]
    index = [getattr(table, rows).numpy() for table in tables]
    kinds = {isinstance(name, int) for names in named for name in names}
    if len(kinds) > 1:
        raise RatingsError(f"the {rows} of one table are numbers and those of the other one text")
    if kinds == {True}:
        parts = [np.asarray(names)[own] for names, own in zip(named, index, strict=True)]
        return np.concatenate(parts)
    every = sorted({*named[0], *named[1]})
    place = {name: number for number, name in enumerate(every)}
    codes = [
        np.array([place[name] for name in names], dtype=np.int64)[own]
        for names, own in zip(named, index, strict=True)
    ]
    return CodedNames(every, np.concatenate(codes))


def _about_items(tables: list[Ratings], ids: Any) -> dict[str, Any]:
    """Titles and features of items, from the first table that knows them."""
    first, second = tables
    places = [{name: number for number, name in enumerate(table.ids)} for table in tables]
    titles = None
    if first.titles is not None or second.titles is not None:
        titles = [_first_title(tables, places, name) for name in ids]
    features: Tensor | None = None
    if first.features is not None:
        features = torch.zeros(len(ids), first.features.shape[1])
        same = second.features is not None and list(second.feature_names) == list(first.feature_names)
        for row, name in enumerate(ids):
            if (at := places[0].get(name)) is not None:
                features[row] = first.features[at]
            elif same and (at := places[1].get(name)) is not None:
                features[row] = _in_units(second, first, at)
    about = {"feature_names": first.feature_names, "feature_scales": first.feature_scales}
    return {"titles": titles, "features": features} | about


def _first_title(tables: list[Ratings], places: list[dict[Any, int]], name: Any) -> str:
    for table, place in zip(tables, places, strict=True):
        if table.titles is not None and name in place:
            return table.titles[place[name]]
    return str(name)


def _in_units(table: Ratings, other: Ratings, row: int) -> Tensor:
    """The features of an item of a table in the units of another one's."""
    assert table.features is not None
    numbers = table.features[row]
    if not table.feature_scales or not other.feature_scales:
        return numbers
    own, theirs = (torch.tensor(list(each.feature_scales)) for each in (table, other))
    return (numbers * own[:, 1] + own[:, 0] - theirs[:, 0]) / theirs[:, 1]
