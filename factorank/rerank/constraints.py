"""What an answer must hold beside the observed order: items pinned to places, hidden items, groups.

Pinned items stand last in the reference. The values of the others come before theirs in the code and do not
depend on them, so that the law given the pins is exact: the others keep their law among themselves and take
the places that are left. Observed items that are hidden say what a user prefers and are not shown; the places
of the others are those among what is shown, exactly (:func:`shown_places`).
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from factorank.errors import FactorankError, RankerWarning, warn
from factorank.rerank.catalogue import Catalogue, Item
from factorank.rerank.lists import Lists
from factorank.rerank.observations import item_key


def around_pins(places: Tensor, lists: Lists) -> Tensor:
    """Places ``(rows, n, n)`` of the items among those shown and not pinned, as places of the whole answer.

    >>> lists = Lists(torch.tensor([[7, 8, 9]]), torch.empty(1, 0).long(), pinned=torch.tensor([[-1, -1, 0]]))
    >>> around_pins(torch.tensor([[[0.8, 0.2, 0.0], [0.2, 0.8, 0.0], [0.0, 0.0, 1.0]]]), lists)[0]
    tensor([[0.0000, 0.8000, 0.2000],
            [0.0000, 0.2000, 0.8000],
            [1.0000, 0.0000, 0.0000]])
    """
    if lists.pinned is None:
        return places
    n, pinned = places.shape[-1], lists.pinned
    place = torch.arange(n, device=places.device)
    taken = (pinned[..., None] == place).any(-2)
    left = torch.where(taken, n + place, place).argsort(-1)  # the places that are left, then the others
    moved = torch.zeros_like(places).scatter_(-1, left[:, None].expand_as(places), places)
    own = (pinned[..., None] == place).to(places.dtype)
    return torch.where((pinned >= 0)[..., None], own, moved)


def shown_places(values: Tensor, hidden: Tensor) -> Tensor:
    """Places ``(rows, n, n)`` of the items among those that are not hidden, by their places in the reference.

    ``values (rows, n, n)`` are the probabilities of the values of an insertion code, ``hidden (rows, n)``
    says which of the reference's items are hidden; their own rows are zero. The recursion carries, for each
    item, its place in the whole list together with the number of hidden items before it; and for each cut of
    the list the number of hidden items before the cut, which the next item reads.
    """
    rows, n, _ = values.shape
    most = int(hidden.sum(-1).max()) + 1
    cut = values.new_zeros(rows, n + 1, most)  # (…, v, h): h hidden items before the first v
    cut[:, 0, 0] = 1.0
    state = values.new_zeros(rows, n, n, most)  # (…, item, place, hidden before it)
    below = torch.nn.functional.pad(values.cumsum(-1), (1, 0)).clamp(max=1.0)
    for k in range(n):
        before = below[:, k, : k + 2, None]  # of each cut of the longer list: the new item comes before it
        state[:, k, : k + 1] = values[:, k, : k + 1, None] * cut[:, : k + 1]
        is_hidden = hidden[:, k, None, None]
        moved = state[:, :k, :k] * before[:, None, 1 : k + 1]
        state[:, :k, :k] -= moved
        state[:, :k, 1 : k + 1] += torch.where(is_hidden[:, None], _one_more(moved), moved)
        inside = torch.nn.functional.pad(cut[:, : k + 1], (0, 0, 1, 0))
        stays = torch.nn.functional.pad(cut[:, : k + 1], (0, 0, 0, 1)) * (1 - before)
        cut[:, : k + 2] = stays + torch.where(is_hidden, _one_more(inside), inside) * before
    places = values.new_zeros(rows, n, n)
    for h in range(most):
        places[..., : n - h] += state[..., h:, h]
    return places.masked_fill_(hidden[..., None], 0.0).clamp_(min=0.0)


def _one_more(counts: Tensor) -> Tensor:
    """Probabilities of numbers ``(…, h)`` as those of the numbers that are one larger."""
    return torch.nn.functional.pad(counts[..., :-1], (1, 0))


def shown_order(order: Tensor, lists: Lists) -> Tensor:
    """An order ``(rows, n)`` of places of the list without its hidden items and with pinned ones in place.

    >>> lists = Lists(torch.tensor([[7, 8, 9, 6]]), torch.tensor([[3]]))
    >>> lists.pinned = torch.tensor([[-1, -1, 0, -1]])
    >>> lists.hidden = torch.tensor([[False, False, False, True]])
    >>> shown_order(torch.tensor([[3, 1, 2, 0]]), lists)
    tensor([[ 2,  1,  0, -1]])
    """
    if lists.pinned is None and lists.hidden is None:
        return order
    n, at = order.shape[-1], order.clamp(min=0)
    gone = order < 0
    if lists.hidden is not None:
        gone = gone | lists.hidden.gather(-1, at)
    place = torch.arange(n, device=order.device).expand_as(order)
    if lists.pinned is None:
        kept = torch.where(gone, n + place, place).argsort(-1)
        return order.masked_fill(gone, -1).gather(-1, kept)
    pin = torch.where(order < 0, -1, lists.pinned.gather(-1, at))
    free = ~gone & (pin < 0)
    taken = (lists.pinned[..., None] == place[:, None]).any(-2)
    left = torch.where(taken, n + place, place).argsort(-1)  # the places that are left, best first
    number = (free.cumsum(-1) - 1).clamp(min=0)
    target = torch.where(free, left.gather(-1, number), torch.where(pin >= 0, pin, n))
    result = order.new_full((len(order), n + 1), -1)
    return result.scatter_(-1, target, torch.where(gone, -1, order))[:, :n]


def diverse_order(order: Tensor, lists: Lists, k: int, most: int) -> Tensor:
    """The order ``(rows, n)`` with at most ``most`` items of one group among its first k.

    Places are filled from the first on, each with the best item after which the rest can still be filled.
    Where an item's value depends on its place alone and none is observed, no other choice has a larger
    expected DCG: sets with a bounded number of each group are a matroid. Observed items keep their order and
    pinned ones their places. Where the items of a list do not suffice, the best ones fill the rest, with a
    warning.
    """
    assert lists.group is not None
    group, is_observed = lists.group.tolist(), lists.is_observed.tolist()
    pinned = None if lists.pinned is None else lists.pinned.tolist()
    result, short = [], []
    for row, items in enumerate(order.tolist()):
        pins = [-1] * len(items) if pinned is None else pinned[row]
        filled, met = _diverse(
            [item for item in items if item >= 0], group[row], is_observed[row], pins, k, most
        )
        result.append(filled + [-1] * (len(items) - len(filled)))
        short += [] if met else [row]
    if short:
        which = (
            "the list has" if len(order) == 1 else f"{len(short)} lists, the first of them {short[0]}, have"
        )
        text = f"{which} too few groups for {most} of each among the first {k}; the best items fill the rest"
        warn(text, RankerWarning)
    return torch.tensor(result, dtype=order.dtype, device=order.device).view_as(order)


def _diverse(
    order: list[int], group: list[int], is_observed: list[bool], pins: Sequence[int], k: int, most: int
) -> tuple[list[int], bool]:
    """The order of one list, and whether the groups are as asked."""
    at = {pins[item]: item for item in order if pins[item] >= 0}
    counts: dict[int, int] = {}
    for place, item in at.items():
        if place < k:
            counts[group[item]] = counts.get(group[item], 0) + 1
    met = all(count <= most for label, count in counts.items() if label >= 0)
    left, filled = [item for item in order if pins[item] < 0], []
    slots = sum(place not in at for place in range(min(k, len(order))))
    possible = _can_fill(slots, left, group, is_observed, counts, most)
    for place in range(min(k, len(order))):
        if place in at:
            filled.append(at[place])
            continue
        slots -= 1
        waiting, chosen = False, None  # an observed item that is passed over holds back those after it
        for item in left:
            if is_observed[item] and waiting:
                continue
            if group[item] < 0 or counts.get(group[item], 0) < most:
                taken = counts | {group[item]: counts.get(group[item], 0) + 1}
                rest = [other for other in left if other != item]
                if not possible or _can_fill(slots, rest, group, is_observed, taken, most):
                    chosen = item
                    break
            waiting = waiting or is_observed[item]
        if chosen is None:
            chosen, met = left[0], False
        left.remove(chosen)
        filled.append(chosen)
        counts[group[chosen]] = counts.get(group[chosen], 0) + 1
    for place in range(len(filled), len(order)):
        filled.append(at[place] if place in at else left.pop(0))
    return filled, met


def _can_fill(
    slots: int, left: list[int], group: list[int], is_observed: list[bool], counts: dict[int, int], most: int
) -> bool:
    """Whether so many of the items left can be taken, observed ones in their order, with at most ``most`` of
    a group, of which there are ``counts`` already."""
    others = Counter(group[item] for item in left if not is_observed[item])
    chain = [group[item] for item in left if is_observed[item]]
    taken = Counter(counts)
    for number in range(len(chain) + 1):  # the first of the observed items that are taken
        if number:
            taken[chain[number - 1]] += 1
            if chain[number - 1] >= 0 and taken[chain[number - 1]] > most:
                return False
        room = sum(
            count if label < 0 else min(count, max(most - taken[label], 0)) for label, count in others.items()
        )
        if number + room >= slots:
            return True
    return False


def group_numbers(catalogue: Catalogue, names: Any, groups: Mapping[Item, Any], n: int) -> Tensor:
    """The number of the group of each item of lists of names, ``(rows, n)``; -1 for items without one."""
    if not isinstance(groups, Mapping):
        raise FactorankError(f"groups map items to labels, they are no {type(groups).__name__}")
    numbers = {label: number for number, label in enumerate(dict.fromkeys(groups.values()))}
    of_item = {item_key(catalogue, name): numbers[label] for name, label in groups.items()}
    keys = [[item_key(catalogue, name) for name in row] for row in names]
    listed = {key for row in keys for key in row if isinstance(key, tuple)}  # new items
    if unknown := [key[1] for key in of_item if isinstance(key, tuple) and key not in listed]:
        more = f" and {len(unknown) - 1:,} more" if len(unknown) > 1 else ""
        warn(
            f"groups hold {unknown[0]!r}{more}, no item of the ranker or of a list: no effect", RankerWarning
        )
    rows = [[of_item.get(key, -1) for key in row] for row in keys]
    padded = [row + [-1] * (n - len(row)) for row in rows]
    return torch.tensor(padded, dtype=torch.int64).view(len(rows), n)


def grouped_best(scores: Tensor, groups: Tensor, most: int, count: int) -> tuple[Tensor, Tensor]:
    """The ``count`` best items by scores ``(rows, items)``, -1 past the end, and their scores: first those
    among the ``most`` best of their group ``(items,)``, then the others.

    >>> grouped_best(torch.tensor([[3.0, 1.0, 2.0, 0.0, -torch.inf]]), torch.tensor([0, 0, 0, -1, -1]), 1, 3)
    (tensor([[0, 3, 2]]), tensor([[3., 0., 2.]]))
    """
    best = without_excess(scores, groups, most).topk(count, dim=-1)
    items, found, missing = best.indices, best.values, best.values.isinf()
    if bool(missing.any()):
        taken = torch.zeros_like(scores, dtype=torch.bool).scatter_(-1, items, ~missing)
        others = scores.masked_fill(taken, -torch.inf).topk(count, dim=-1)
        number = (missing.cumsum(-1) - 1).clamp(min=0)  # those that are missing stand last
        items = torch.where(missing, others.indices.gather(-1, number), items)
        found = torch.where(missing, others.values.gather(-1, number), found)
    return torch.where(found.isinf(), -1, items), found


def without_excess(scores: Tensor, groups: Tensor, most: int) -> Tensor:
    """Scores ``(rows, items)`` with -inf for all but the ``most`` best items of each group ``(items,)``.

    >>> without_excess(torch.tensor([[3.0, 1.0, 2.0, 0.0]]), torch.tensor([0, 0, 0, -1]), 2)
    tensor([[3., -inf, 2., 0.]])
    """
    scores = scores.clone()
    _, *of_each = groups.argsort(stable=True).split(torch.bincount(groups + 1).tolist())
    for members in of_each:
        if len(members) > most:
            worst = scores[:, members].topk(len(members) - most, dim=-1, largest=False).indices
            scores.scatter_(-1, members[worst], -torch.inf)
    return scores
