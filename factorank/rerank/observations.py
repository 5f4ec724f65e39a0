"""What users are known to prefer, as they name it: orders, ratings, histories; one user or many."""

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from factorank.errors import FactorankError
from factorank.rerank.catalogue import Catalogue, Item
from factorank.rerank.frames import plain
from factorank.rerank.keys import name_identity, sorted_by_key


def read_histories(
    catalogue: Catalogue,
    observed: Any,
    seed: int,
    told: str,
    rating_range: tuple[float, float] | None,
) -> tuple[Tensor, Tensor, bool]:
    """The histories of one user or of many, of any length: items ``(rows, h)``, best first, -1 pads; their
    ratings, NaN where there are none; whether it is one user."""
    observed = at_hand(observed)
    single = is_one_user(None, observed)
    rows = []
    for user, observation in enumerate([observed] if single else observed):
        where = f"history {user}" if not single else "the history"
        _, preferred = preferences(catalogue, observation, where, seed, told, rating_range)
        index = known_items(catalogue, [name for name, _ in preferred], where)
        if len(set(index)) < len(index):
            twice = next(preferred[place][0] for place, i in enumerate(index) if index.count(i) > 1)
            raise FactorankError(f"{where} holds {twice!r} more than once")
        rows.append((index, [rating for _, rating in preferred]))
    longest = max((len(index) for index, _ in rows), default=0)
    items = [index + [-1] * (longest - len(index)) for index, _ in rows]
    ratings = [own + [math.nan] * (longest - len(own)) for _, own in rows]
    shape = (len(rows), longest)
    return torch.tensor(items, dtype=torch.int64).view(shape), torch.tensor(ratings).view(shape), single


def known_items(catalogue: Catalogue, names: Sequence[Item], where: str = "the list") -> list[int]:
    """The numbers of items, all of which the catalogue holds."""
    numbers = []
    for name in names:
        index = catalogue.index(name)
        if index is None:
            raise FactorankError(unknown_item(name, where, catalogue))
        numbers.append(index)
    return numbers


def preferences(
    catalogue: Catalogue,
    observation: Any,
    where: str,
    seed: int,
    told: str,
    rating_range: tuple[float, float] | None,
) -> tuple[list[Item], list[tuple[Item, float]]]:
    """What a user's observations mention, and the items with a preference, best first, with their ratings
    (NaN where only the order is observed). A ranker that is told of "choices" takes a list of items as those
    chosen, each as often as it stands there, and a mapping as their counts."""
    if not isinstance(observation, Mapping):
        order = as_list(observation)
        if told != "choices":
            return order, [(name, math.nan) for name in order]
        observation = Counter(order)
    if told == "choices":
        rating_range = (0.0, math.inf)
    elif told == "order":
        rating_range = None
    ratings = {name: _rating(value, name, where, rating_range) for name, value in observation.items()}
    rated = [name for name, value in ratings.items() if not math.isnan(value)]
    keys = [item_key(catalogue, name) for name in rated]
    rated = [rated[i] for i in sorted_by_key([name_identity(key) for key in keys], seed)]
    order = sorted(rated, key=lambda name: -ratings[name])
    return list(ratings), [(name, ratings[name]) for name in order]


def _rating(value: Any, name: Item, where: str, rating_range: tuple[float, float] | None) -> float:
    try:
        rating = float(value)
    except (TypeError, ValueError):
        raise FactorankError(f"{where} rates {name!r} {value!r}, which is no number") from None
    if math.isinf(rating):
        raise FactorankError(
            f"{where} rates {name!r} {value!r}; a rating is a finite number, or NaN for none"
        )
    low, high = (-math.inf, math.inf) if rating_range is None else rating_range
    if rating < low or rating > high:
        raise FactorankError(
            f"{where} rates {name!r} {rating:g}; the ratings trained on are {low:g} to {high:g}"
        )
    return rating


def is_one_user(items: Any, observed: Any) -> bool:
    """Whether items and observations are those of one user, not of a batch."""
    for part in (items, observed):
        if part is None:
            continue
        if isinstance(part, Mapping):
            return True
        if (numbers := whole_numbers(part)) is not None:
            return numbers.ndim == 1
        for first in part:
            return not isinstance(first, list | tuple | Mapping) and getattr(first, "ndim", 0) == 0
    return True


def at_hand(part: Any) -> Any:
    """Iterators as lists, which can be read twice; frames as what they hold of a user."""
    part = list(part) if isinstance(part, Iterator) else plain(part)
    if isinstance(part, list | tuple):
        return [list(each) if isinstance(each, Iterator) else plain(each) for each in part]
    return part


def as_list(names: Any) -> list[Item]:
    """The names of items. Text alone is refused: it would be read as an item for each of its characters."""
    if isinstance(names, str | bytes):
        raise FactorankError(f"a list of items is needed, such as [{names!r}]; this is the text {names!r}")
    if (numbers := whole_numbers(names)) is not None:
        return [number for number in numbers.tolist() if number != -1]
    return [] if names is None else list(names)


def whole_numbers(values: Any) -> Tensor | None:
    """A tensor or array of integers as an int64 tensor on the CPU, None for anything else."""
    if isinstance(values, np.ndarray) and values.dtype.kind in "iu":
        return torch.from_numpy(values.astype(np.int64))
    if isinstance(values, Tensor) and not values.is_floating_point() and values.dtype != torch.bool:
        return values.to(torch.int64).cpu()
    return None


def item_key(catalogue: Catalogue, name: Item) -> Any:
    index = catalogue._find(name)
    return ("new", name) if index is None else index


def unknown_item(name: Item, where: str, catalogue: Catalogue) -> str:
    message = f"{where} holds {name!r}, which the ranker has not been trained on"
    if near := catalogue.near(name):
        message += f" (did you mean {' or '.join(map(repr, near))}?)"
    if not catalogue.features:
        return f"{message}, and it has learnt no features to judge new items by"
    features = ", ".join([*catalogue.features[:4], *["…"][: len(catalogue.features[4:])]])
    return f"{message}; Ranker.rerank takes features of new items as new={{{name!r}: …}} ({features})"
