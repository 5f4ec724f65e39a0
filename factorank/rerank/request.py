"""From a user's names to tensors: items to ids, observations to places in the list."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from factorank.errors import FactorankError, RankerWarning, warn
from factorank.rerank.catalogue import Catalogue, Item
from factorank.rerank.keys import name_identity
from factorank.rerank.lists import Lists
from factorank.rerank.observations import (
    as_list,
    at_hand,
    is_one_user,
    item_key,
    preferences,
    unknown_item,
    whole_numbers,
)

NewItems = Mapping[Item, Mapping[str, float] | Sequence[float]]
"""Features of items that training did not have, by item."""


def read_request(
    catalogue: Catalogue,
    n: int,
    longest: int,
    items: Any,
    observed: Any,
    new: NewItems,
    seed: int,
    told: str,
    rating_range: tuple[float, float] | None,
    pinned: Any = None,
    forbidden: Any = (),
) -> tuple[Lists, Sequence[list[Item]], bool]:
    """The lists of one user or of many, of up to ``longest`` items and padded to n at least; the names of
    their items; whether it is one user.

    ``observed`` of a user is an order, best first, or a mapping from items to ratings, whose ties are broken
    at random, by item and seed. A NaN in it is an item without a rating: it joins the list. The ratings of
    mappings become the ``relevance`` of the lists, unchanged. ``told`` is what the ranker reads: if it is
    "ratings", those outside of ``rating_range`` are refused; if it is "order", one rating alone is warned of.
    ``pinned`` maps items to their places and joins the list; ``forbidden`` items leave it, and where they are
    observed they are hidden. Both are one for all lists, or a list with one for each.
    """
    items, observed, forbidden = at_hand(items), at_hand(observed), at_hand(forbidden)
    # The ratings of a frame of items are not those of an observed one.
    items = list(items) if isinstance(items, Mapping) else items
    single = is_one_user(items, observed)
    # The order of choices means nothing: the loop over names puts them in one of its own.
    if not single and not new and not pinned and not len(forbidden) and told != "choices":
        none = torch.zeros((len(items), 0), dtype=torch.int64)
        lists = lists_of_arrays(catalogue, n, longest, items, none if observed is None else observed)
        if lists is not None:
            return lists, _NamesOfIds(catalogue.ids, lists.items), single
    users, observations = [items], [observed]
    if not single:
        users = list(items)
        observations = [None] * len(users) if observed is None else list(observed)
    if len(users) != len(observations):
        raise FactorankError(
            f"there are {len(users)} lists of items but {len(observations)} of observed ones"
        )
    rows = []
    pins, banned = _each(pinned or {}, len(users), "pinned"), _each(forbidden, len(users), "forbidden")
    for user, (listed, observation) in enumerate(zip(users, observations, strict=True)):
        where = f"list {user}" if len(users) > 1 else "the list"
        names, preferred = preferences(catalogue, observation, where, seed, told, rating_range)
        own = _Asked(as_list(listed), names, preferred, pins[user], as_list(banned[user]), where)
        rows.append(_row(catalogue, longest, own, new))
    rated = told == "choices" or any(isinstance(observation, Mapping) for observation in observations)
    _warn(catalogue, rows, new, told)
    return _padded(catalogue, n, rows, rated), [row.names for row in rows], single


def lists_of_arrays(catalogue: Catalogue, n: int, longest: int, items: Any, observed: Any) -> Lists | None:
    """The lists of integer ids ``(users, m)`` and ``(users, r)``, -1 pads, without a Python loop.

    None where this does not apply: other input, ids that are no integers, or a list at fault, which the loop
    over names then explains.
    """
    listed, observed_ids = whole_numbers(items), whole_numbers(observed)
    if catalogue.sorted_ids is None:
        return None
    sorted_ids, by = catalogue.sorted_ids
    if listed is None or observed_ids is None or listed.ndim != 2 or observed_ids.ndim != 2:
        return None
    if len(listed) != len(observed_ids) or listed.shape[1] > longest or not listed.shape[1]:
        return None
    at = torch.searchsorted(sorted_ids, listed).clamp(max=len(sorted_ids) - 1)
    index = torch.where(sorted_ids[at] == listed, by[at], -1)
    if bool(((index < 0) & (listed != -1)).any()) or bool((sorted_ids == -1).any()) or _faulty(index):
        return None
    # The ids of a list, sorted, and the place that each came from: observed ids are looked up there.
    sorted_list, place_of = listed.sort(-1)
    at = torch.searchsorted(sorted_list, observed_ids).clamp(max=listed.shape[1] - 1)
    present = observed_ids != -1
    places = torch.where(present, place_of.gather(-1, at), -1)
    if bool((present & (sorted_list.gather(-1, at) != observed_ids)).any()) or _faulty(places):
        return None
    return Lists(torch.nn.functional.pad(index, (0, max(0, n - index.shape[1])), value=-1), places)


@dataclass
class _Row:
    """A list: the index and name of each item, the observed places, their ratings, features by place."""

    index: list[int]
    names: list[Item]
    observed: list[int]
    ratings: list[float]
    features: dict[int, list[float]]
    pinned: dict[int, int]
    hidden: list[int]


class _Asked(NamedTuple):
    """What is asked for a user: the names to rank, those that observations mention, the items with a
    preference, the places of pinned items, the names that must not be shown, and what errors call it."""

    names: list[Item]
    mentioned: list[Item]
    preferred: list[tuple[Item, float]]
    pinned: Mapping[Item, int]
    forbidden: list[Item]
    where: str


def _row(catalogue: Catalogue, n: int, asked: _Asked, new: NewItems) -> _Row:
    """The list of names, of those that the observations mention, and of those that are pinned."""
    names, where, preferred = asked.names, asked.where, asked.preferred
    observing = {item_key(catalogue, name) for name, _ in preferred}
    banned = {_key_of(name, catalogue, new, where) for name in asked.forbidden}
    if banned - observing:
        names = [name for name in names if item_key(catalogue, name) not in banned - observing]
    place_of: dict[Any, int] = {}
    for place, name in enumerate(names):
        if (first := place_of.setdefault(item_key(catalogue, name), place)) != place:
            raise FactorankError(
                f"{where} holds {name!r} at place {place} and, as {names[first]!r}, at {first}"
            )
    for name in (*asked.mentioned, *asked.pinned):
        if place_of.setdefault(item_key(catalogue, name), len(names)) == len(names):
            names.append(name)
    if len(names) > n:
        raise FactorankError(f"{where} has {len(names)} items, observed ones included; up to {n} are ranked")
    observed = [place_of[item_key(catalogue, name)] for name, _ in preferred]
    if len(set(observed)) < len(observed):
        twice = next(names[place] for place in observed if observed.count(place) > 1)
        raise FactorankError(f"{where} observes {twice!r} more than once; an order holds each item once")
    indices, features = [], {}
    for place, key in enumerate(place_of):  # in the order of the names
        if isinstance(key, tuple):
            if (name := names[place]) not in new:
                raise FactorankError(unknown_item(name, where, catalogue))
            features[place] = catalogue.feature_row(name, new[name])
            key = len(catalogue)
        indices.append(key)
    hidden = [place_of[key] for key in banned & observing]
    pinned = _pins(asked, {place_of[item_key(catalogue, name)]: name for name in asked.pinned}, observed)
    if banned and (
        forbidden := next((name for name in asked.pinned if item_key(catalogue, name) in banned), None)
    ):
        raise FactorankError(f"{where} pins {forbidden!r}, which is forbidden")
    shown = len(names) - len(hidden)
    if far := next((name for name, place in asked.pinned.items() if place >= shown), None):
        raise FactorankError(
            f"{where} pins {far!r} to place {asked.pinned[far]}; its places are 0 to {shown - 1}"
        )
    return _Row(indices, names, observed, [rating for _, rating in preferred], features, pinned, hidden)


def _pins(asked: _Asked, name_at: dict[int, Item], observed: list[int]) -> dict[int, int]:
    """The place in the answer of each pinned item, by its place in the list."""
    taken: dict[int, Item] = {}
    for name, place in asked.pinned.items():
        if isinstance(place, bool) or not isinstance(place, int | np.integer) or place < 0:
            raise FactorankError(
                f"{asked.where} pins {name!r} to {place!r}; places are whole numbers from 0 on"
            )
        if taken.setdefault(int(place), name) != name:
            raise FactorankError(f"{asked.where} pins {taken[int(place)]!r} and {name!r} to place {place}")
    if len(name_at) < len(asked.pinned):
        raise FactorankError(f"{asked.where} pins an item twice: {', '.join(map(repr, asked.pinned))}")
    if both := [name for place, name in name_at.items() if place in observed]:
        raise FactorankError(f"{asked.where} pins {both[0]!r}, which is observed: it is one or the other")
    return {place: int(asked.pinned[name]) for place, name in name_at.items()}


def _key_of(name: Item, catalogue: Catalogue, new: NewItems, where: str) -> Any:
    """The key of an item that the catalogue holds, or that is new."""
    key = item_key(catalogue, name)
    if catalogue.index(name) is None and name not in new:
        raise FactorankError(unknown_item(name, f"forbidden of {where}", catalogue))
    return key


def _each(asked: Any, count: int, what: str) -> list[Any]:
    """What is asked of each list: the same of all, or one of a list."""
    if isinstance(asked, Mapping) or not any(
        isinstance(part, list | tuple | set | Mapping) for part in asked
    ):
        return [asked] * count
    if len(asked) != count:
        raise FactorankError(
            f"there are {count} lists of items but {len(asked)} of {{parameter}}", parameter=what
        )
    return [{} if part is None and what == "pinned" else part for part in asked]


def _padded(catalogue: Catalogue, n: int, rows: list[_Row], rated: bool) -> Lists:
    longest = max((len(row.observed) for row in rows), default=0)
    n = max(n, *(len(row.index) for row in rows)) if rows else n

    def table(values: list[list[Any]], width: int, pad: float) -> Tensor:
        padded = [row + [pad] * (width - len(row)) for row in values]
        dtype = torch.float32 if math.isnan(pad) else torch.int64
        return torch.tensor(padded, dtype=dtype).view(len(rows), width)

    items = table([row.index for row in rows], n, -1)
    features = identity = None
    if any(row.features for row in rows):
        features, identity = torch.zeros(len(rows), n, len(catalogue.features)), items.clone()
        for user, row in enumerate(rows):
            for place, numbers in row.features.items():
                features[user, place] = torch.tensor(numbers)
                identity[user, place] = name_identity(row.names[place])
    pinned = hidden = None
    if any(row.pinned for row in rows):
        pinned = torch.tensor([[row.pinned.get(place, -1) for place in range(n)] for row in rows])
    if any(row.hidden for row in rows):
        hidden = torch.tensor([[place in row.hidden for place in range(n)] for row in rows])
    return Lists(
        items,
        table([row.observed for row in rows], longest, -1),
        features,
        table([row.ratings for row in rows], longest, math.nan) if rated else None,
        identity,
        pinned,
        hidden,
    )


def _warn(catalogue: Catalogue, rows: list[_Row], new: NewItems, told: str) -> None:
    """Say what of a request has no effect."""
    if new:
        listed = {name for row in rows for name in row.names}
        for name in new:
            if catalogue.index(name) is not None:
                text = f"new describes {name!r}, which was trained on: what was learnt of it counts"
                warn(text, RankerWarning)
            elif name not in listed:
                warn(f"new describes {name!r}, which no list asks for", RankerWarning)
    if told == "order":
        for user, row in enumerate(rows):
            if len(row.ratings) == 1 and not math.isnan(row.ratings[0]):
                where = f"list {user}" if len(rows) > 1 else "the list"
                return warn(
                    f"{where} has one rating, of {row.names[row.observed[0]]!r}, which changes nothing: this"
                    " ranker reads the order of two items or more; one with told='ratings' reads ratings",
                    RankerWarning,
                )
    return None


def _faulty(rows: Tensor) -> bool:
    """Whether a row ``(users, m)`` has a number twice, or a number after its padding of -1."""
    ended, values = rows < 0, rows.sort(-1).values
    repeated = (values[:, 1:] == values[:, :-1]) & (values[:, 1:] >= 0)
    return bool((repeated | (ended[:, :-1] & ~ended[:, 1:])).any())


class _NamesOfIds(Sequence[list[Any]]):
    """The names of lists of ids, looked up when they are read."""

    def __init__(self, ids: Sequence[Any], items: Tensor) -> None:
        self._ids, self._items = ids, items

    def __len__(self) -> int:
        return len(self._items)

    def __getitem__(self, index: Any) -> Any:
        return [self._ids[i] for i in self._items[index].tolist() if i >= 0]
