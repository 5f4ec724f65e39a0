"""Lists of items to rank, what is observed of them, and the references of their codes.

With the observed items first in the reference, the first r values of the code are their order and nothing
else. They stand at random among themselves, as in the paper, or sorted, best first (see
:mod:`factorank.rerank.objective`).
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from factorank.rerank.keys import item_keys


@dataclass
class Lists:
    """Lists of items, and what is observed of some of them.

    ``items (rows, n)`` are the encoder's ids, -1 after the end. ``observed (rows, r)`` are places in the
    list, best first, -1 after the end. ``features (rows, n, f)`` are those of items that have no embedding,
    or None. ``relevance (rows, r)`` is that of the observed items, NaN where there is no rating, or None.
    ``identity (rows, n)`` is what the random numbers of items go by where that is not ``items``, or None: new
    items share one id. Where an answer has conditions: ``pinned (rows, n)`` is the place that an item must
    take, -1 for any; ``hidden (rows, n)`` says which observed items are not shown; ``group (rows, n)`` is the
    number of an item's group, -1 for none.
    """

    items: Tensor
    observed: Tensor
    features: Tensor | None = None
    relevance: Tensor | None = None
    identity: Tensor | None = None
    pinned: Tensor | None = None
    hidden: Tensor | None = None
    group: Tensor | None = None

    def __len__(self) -> int:
        return len(self.items)

    def part(self, rows: slice) -> "Lists":
        """Some of the rows."""
        return self._each(lambda tensor: tensor[rows])

    def to(self, device: torch.device) -> "Lists":
        """The same lists on a device."""
        return self._each(lambda tensor: tensor.to(device))

    def cut(self, n: int) -> "Lists":
        """The lists with room for n items, which none of them exceeds."""
        if n == self.items.shape[1]:
            return self
        names = ("items", "features", "identity", "pinned", "hidden", "group")
        parts = {name: part[:, :n] for name in names if (part := getattr(self, name)) is not None}
        return replace(self, **parts)

    def repeated(self, times: int) -> "Lists":
        """Each row so many times, one after the other."""
        return self if times == 1 else self._each(lambda tensor: tensor.repeat_interleave(times, 0))

    def keys(self, seeds: Tensor) -> Tensor:
        """A random number of each item for each of the seeds ``(count,)``: float64 ``(rows, count, n)``."""
        identity = self.items if self.identity is None else self.identity
        return item_keys(identity[:, None], seeds[:, None])

    @property
    def informative(self) -> Tensor:
        """Which rows have observations that carry information, bool ``(rows, 1)``: the order of two items or
        more, or a rating. One item alone, without its rating, carries none."""
        several = (self.observed >= 0).sum(-1, keepdim=True) > 1
        if self.relevance is None:
            return several
        return several | ((self.observed >= 0) & ~self.relevance.isnan()).any(-1, keepdim=True)

    @property
    def shown(self) -> Tensor:
        """Which places of the list hold an item that is shown, bool ``(rows, n)``."""
        present = self.items >= 0
        return present if self.hidden is None else present & ~self.hidden

    @property
    def is_observed(self) -> Tensor:
        """Which places of the list are observed, bool ``(rows, n)``."""
        return self.by_place(torch.ones_like(self.observed, dtype=torch.bool), False)

    def by_place(self, values: Tensor, fill: float | bool) -> Tensor:
        """Values ``(rows, r)`` of the observed items by their place in the list: ``(rows, n)``."""
        rows, n = self.items.shape
        at = torch.where(self.observed < 0, n, self.observed)
        return values.new_full((rows, n + 1), fill).scatter(-1, at, values)[:, :n]

    def _each(self, change: Callable[[Tensor], Tensor]) -> "Lists":
        return Lists(*(None if part is None else change(part) for part in vars(self).values()))  # type: ignore[arg-type]


def list_reference(lists: Lists, keys: Tensor, *, kind: str = "random") -> Tensor:
    """References ``(rows, n)``: the observed places, the others, the padding, each sorted by ``keys``.
    Pinned places come before the padding, in their order.

    With ``kind="sorted"`` the observed places stand in the observed order, best first. One observed item
    without its rating carries no information and is treated as none: r = 1 is the same law as r = 0.
    """
    first_keys, r = keys.expand_as(lists.items), lists.observed.shape[-1]
    if kind == "sorted" and r:
        rank = torch.arange(r, device=keys.device, dtype=keys.dtype) / r
        first_keys = lists.by_place(rank.expand(len(lists), r), 0.0)
    last = (lists.items < 0) * 3.0
    if lists.pinned is not None:
        last = last + torch.where(lists.pinned >= 0, 1 + lists.pinned / lists.items.shape[-1] - keys, 0.0)
    return observed_first(lists.is_observed & lists.informative, first_keys, keys + last)


def sorted_reference(order: Tensor, r: Tensor) -> tuple[Tensor, Tensor]:
    """The reference of lists whose first r items ``(batch,)`` are observed: these, best first, then the
    others; and the order in it.

    Orders are ``(batch, n)``, -1 past the end of a list.

    >>> sorted_reference(torch.tensor([[3, 1, 0, 2]]), torch.tensor([3]))  # the items at these places
    (tensor([[1, 0, 2, 3]]), tensor([[3, 0, 1, 2]]))
    """
    n = order.shape[-1]
    place = torch.arange(n, device=order.device)
    # argsort takes any numbers: the loss of a faulty order is NaN, and it must not fail here.
    rank = torch.where(order < 0, place, order).argsort(-1)
    reference = observed_first(place < r[..., None], rank / n, place / n)
    renamed = rank.gather(-1, reference).argsort(-1)
    return reference, torch.where(order < 0, -1, renamed)


def observed_first(is_observed: Tensor, first_keys: Tensor, rest_keys: Tensor) -> Tensor:
    """References ``(*batch, n)``: the observed places, sorted by keys in [0, 1), then the others by theirs.

    >>> observed_first(torch.tensor([False, True, True]), torch.tensor([0.0, 0.9, 0.1]), torch.zeros(3))
    tensor([2, 1, 0])
    """
    return torch.where(is_observed, first_keys, 1 + rest_keys).argsort(-1)
