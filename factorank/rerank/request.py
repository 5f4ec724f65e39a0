"""What a user asks of a ranker, as tensors: names to ids, observations to places in the list."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from factorank.errors import FactorankError
from factorank.rerank.catalogue import Catalogue, Item, whole_numbers
from factorank.rerank.place_probabilities import Lists

NewItems = Mapping[Item, Mapping[str, float] | Sequence[float]]


def one_user(items: Any, observed: Any) -> bool:
    """Whether items and observations are those of one user, not of a batch."""
    for given in (items, observed):
        if given is None or isinstance(given, Mapping):
            if given is not None:
                return True
            continue
        if (numbers := whole_numbers(given)) is not None:
            return numbers.ndim == 1
        for first in given:
            return not isinstance(first, list | tuple | Mapping) and getattr(first, "ndim", 0) == 0
    return True


def resolve(
    catalogue: Catalogue,
    n: int,
    items: Sequence[Any],
    observed: Sequence[Any],
    new: NewItems,
    generator: torch.Generator,
    allowed: tuple[float, float] | None = None,
) -> tuple[Lists, list[list[Item]]]:
    """The lists of a batch, padded to n, and the names of their items.

    ``observed`` of a user is an order, best first, or a mapping from items to ratings, whose ties are broken
    at random and whose NaNs are items without a rating: they join the list. The ratings of such mappings are
    the ``relevance`` of the lists, as they were given; those outside of what is ``allowed`` are refused.
    """
    if len(items) != len(observed):
        raise FactorankError(f"there are {len(items)} lists of items but {len(observed)} of observed ones")
    rows, told, names = [], [], []
    rated: list[list[float]] = []
    fresh: list[tuple[int, int, list[float]]] = []
    for user, (listed, seen) in enumerate(zip(items, observed, strict=True)):
        where = f"list {user}" if len(items) > 1 else "the list"
        whole, (mentioned, order, values) = _as_list(listed), _observations(seen, where, generator, allowed)
        place_of: dict[Any, int] = {}
        for place, name in enumerate(whole):
            if (first := place_of.setdefault(_key(catalogue, name), place)) != place:
                raise FactorankError(
                    f"{where} holds {name!r} at place {place} and, as {whole[first]!r}, at {first}"
                )
        for name in mentioned:
            if _key(catalogue, name) not in place_of:
                place_of[_key(catalogue, name)] = len(whole)
                whole.append(name)
        if len(whole) > n:
            raise FactorankError(
                f"{where} has {len(whole)} items, observed ones included; the model ranks up to {n}"
            )
        known = [place_of[_key(catalogue, name)] for name in order]
        if len(set(known)) < len(known):
            twice = next(whole[place] for place in known if known.count(place) > 1)
            raise FactorankError(f"{where} observes {twice!r} more than once; an order holds each item once")
        index = [catalogue.index(name) for name in whole]
        for place, name in enumerate(whole):
            if index[place] is None:
                if name not in new:
                    raise FactorankError(_unknown(name, where, catalogue))
                fresh.append((user, place, catalogue.feature_row(name, new[name])))
                index[place] = len(catalogue)
        rows.append(index + [-1] * (n - len(index)))
        told.append(known)
        rated.append(values)
        names.append(whole)
    longest = max(map(len, told), default=0)
    features = None
    if fresh:
        features = torch.zeros(len(rows), n, len(catalogue.features))
        for user, place, row in fresh:
            features[user, place] = torch.tensor(row)
    some = any(isinstance(one, Mapping) for one in observed)
    lists = Lists(
        torch.tensor(rows, dtype=torch.int64).view(len(rows), n),
        torch.tensor([one + [-1] * (longest - len(one)) for one in told]).long().view(len(rows), longest),
        features,
        torch.tensor([one + [math.nan] * (longest - len(one)) for one in rated]).view(len(rows), longest)
        if some
        else None,
    )
    return lists, names


def resolve_arrays(catalogue: Catalogue, n: int, items: Any, observed: Any) -> Lists | None:
    """The same for arrays of integer ids ``(users, m)`` and ``(users, r)``, -1 pads, without a Python loop.

    None where it does not apply: other input, ids that are no integers, or a list that is at fault, which
    :func:`resolve` then explains.
    """
    ids = _integer_ids(catalogue)
    wanted, seen = whole_numbers(items), whole_numbers(observed)
    if ids is None or wanted is None or seen is None or wanted.ndim != 2 or seen.ndim != 2:
        return None
    if len(wanted) != len(seen) or wanted.shape[1] > n or not len(ids) or not wanted.shape[1]:
        return None
    sorted_ids, by = ids.sort()
    at = torch.searchsorted(sorted_ids, wanted).clamp(max=len(ids) - 1)
    known = sorted_ids[at] == wanted
    if bool((~known & (wanted != -1)).any()) or -1 in catalogue.ids:
        return None
    index = torch.where(known, by[at], -1)
    ended = index < 0
    ranks, which = torch.where(ended, -1 - torch.arange(index.shape[1]), index).sort(-1)
    if bool((ended[:, :-1] & ~ended[:, 1:]).any()) or bool((ranks[:, 1:] == ranks[:, :-1]).any()):
        return None
    at = torch.searchsorted(sorted_ids, seen).clamp(max=len(ids) - 1)
    told = seen != -1
    if bool((told & (sorted_ids[at] != seen)).any()):
        return None
    wanted_rank = by[at]
    place = torch.searchsorted(ranks, wanted_rank).clamp(max=index.shape[1] - 1)
    places = torch.where(told, which.gather(-1, place), -1)
    distinct = torch.where(told, places, -1 - torch.arange(places.shape[1])).sort(-1).values
    if (
        bool((told & (ranks.gather(-1, place) != wanted_rank)).any())
        or bool((~told[:, :-1] & told[:, 1:]).any())
        or bool((distinct[:, 1:] == distinct[:, :-1]).any())
    ):
        return None
    return Lists(torch.nn.functional.pad(index, (0, n - index.shape[1]), value=-1), places)


def _integer_ids(catalogue: Catalogue) -> torch.Tensor | None:
    if not all(isinstance(name, int) and abs(name) < 2**62 for name in catalogue.ids):
        return None
    return torch.tensor(catalogue.ids, dtype=torch.int64)


def _observations(
    seen: Any, where: str, generator: torch.Generator, allowed: tuple[float, float] | None
) -> tuple[list[Item], list[Item], list[float]]:
    """The items that a user's observations mention, those whose preference is known, best first, and their
    ratings, NaN if only the order is known."""
    if not isinstance(seen, Mapping):
        order = _as_list(seen)
        return order, order, [math.nan] * len(order)
    given = {name: _rating(value, name, where, allowed) for name, value in seen.items()}
    rated = [name for name, value in given.items() if not math.isnan(value)]
    # The same shuffle for every user, from a generator of its own: a user's ties change nothing for others.
    ties = torch.Generator().manual_seed(generator.initial_seed())
    rated = [rated[i] for i in torch.randperm(len(rated), generator=ties).tolist()]
    order = sorted(rated, key=lambda name: -given[name])
    return list(given), order, [given[name] for name in order]


def _rating(value: Any, name: Item, where: str, allowed: tuple[float, float] | None) -> float:
    try:
        rating = float(value)
    except (TypeError, ValueError):
        raise FactorankError(f"{where} rates {name!r} {value!r}, which is no number") from None
    if math.isinf(rating):
        raise FactorankError(
            f"{where} rates {name!r} {value!r}; a rating is a finite number, or NaN for none"
        )
    if allowed is not None and not math.isnan(rating) and not allowed[0] <= rating <= allowed[1]:
        raise FactorankError(
            f"{where} rates {name!r} {rating:g}; the ratings trained on are {allowed[0]:g} to {allowed[1]:g}"
        )
    return rating


def _as_list(given: Any) -> list[Item]:
    numbers = whole_numbers(given)
    if numbers is not None:
        return [number for number in numbers.tolist() if number != -1]
    return [] if given is None else list(given)


def _key(catalogue: Catalogue, name: Item) -> Any:
    found = catalogue.index(name)
    return ("new", name) if found is None else found


def _unknown(name: Item, where: str, catalogue: Catalogue) -> str:
    told = f"{where} holds {name!r}, which the ranker has not been trained on"
    if near := catalogue.near(name):
        told += f" (did you mean {' or '.join(map(repr, near))}?)"
    if catalogue.features:
        return f"{told}; pass its features as new={{{name!r}: …}} ({', '.join(catalogue.features[:4])}, …)"
    return f"{told}, and it has learnt no features to judge new items by"
