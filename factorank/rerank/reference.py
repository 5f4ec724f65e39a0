"""References of insertion codes that list the observed items first.

The code of an order is relative to a reference, an order of the list that training draws at random. With the
observed items first, the first r values of the code are their order and nothing else. They stand at random
among themselves, as in the paper, or sorted, best first (see :mod:`factorank.rerank.objective`).
"""

import torch
from torch import Tensor

from factorank.rerank.lists import Lists


def list_reference(lists: Lists, keys: Tensor, *, kind: str = "random") -> Tensor:
    """References ``(rows, n)``: the observed places, the others, the padding, each sorted by ``keys (n,)``.

    With ``kind="sorted"`` the observed places stand in the observed order, best first. One observed item
    without its rating carries no information and is treated as none: r = 1 is the same law as r = 0.
    """
    n, r = lists.items.shape[-1], lists.observed.shape[-1]
    first_keys = keys.expand_as(lists.items)
    if kind == "sorted" and r:
        rank = torch.arange(r, device=keys.device, dtype=keys.dtype) / r
        at = torch.where(lists.observed < 0, n, lists.observed)
        first_keys = keys.new_zeros((len(lists), n + 1)).scatter(-1, at, rank.expand(len(lists), r))[:, :n]
    return observed_first(lists.is_observed & lists.informative, first_keys, keys + (lists.items < 0))


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
