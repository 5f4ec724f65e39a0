"""The list with the largest expected gain: sort items by the gain that their places have on average."""

import torch
from torch import Tensor

from factorank.data.ratings import Ratings
from factorank.permutations import inverse


def expected_gain(places: Tensor, lengths: Tensor, table: Tensor) -> Tensor:
    r"""The expected gain ``(rows, n)`` of each item, from places ``(rows, n, n)``, lengths ``(rows,)``.

    The gain of a place is the mean gain of the items that stood there in training. A list sorted by the
    expected gain :math:`\sum_p P(p) g_p` has the largest expected DCG under the law if the gain depends on
    the place alone. It also has the largest expected NDCG if the DCG of the ideal list is the same for all
    users. That holds only roughly, so the list is close to the best and not exactly the best.

    Robertson, "The probability ranking principle in IR", 1977.
    """
    return (places * table.to(places)[lengths][:, None, :]).sum(-1)


def sort_by(score: Tensor, observed: Tensor, present: Tensor, keys: Tensor) -> Tensor:
    """Orders ``(rows, n)``, the highest score first, -1 past the end; observed items keep their order.

    ``observed (rows, r)`` are places in the list, best first, -1 pads. The scores decide which places of the
    answer observed items take; the observed order decides which of them stands where. Equal scores go by
    the ``keys (rows, n)`` of their items.
    """
    shuffle = keys.argsort(-1)
    score = torch.where(present, score, -torch.inf).gather(-1, shuffle)
    order = shuffle.gather(-1, score.argsort(dim=-1, descending=True, stable=True))
    return torch.where(present, with_observed_order(order, observed), -1)


def with_observed_order(order: Tensor, observed: Tensor) -> Tensor:
    """The order ``(rows, n)`` with its observed items ``(rows, r)``, -1 pads, put in the observed order.

    >>> with_observed_order(torch.tensor([[3, 0, 1, 2]]), torch.tensor([[0, 3, -1]]))
    tensor([[0, 3, 1, 2]])
    """
    n = order.shape[-1]
    if observed.shape[-1] < 2:
        return order
    place = inverse(order, check=False)
    present = observed >= 0
    slots = torch.where(present, place.gather(-1, observed.clamp(min=0)), n)
    slots = slots.sort(-1).values  # the places that observed items take, best first
    wide = torch.nn.functional.pad(order, (0, 1))
    return wide.scatter(-1, slots, torch.where(present, observed, 0))[:, :n]


def mean_gains(ratings: Ratings, n: int, generator: torch.Generator, lists: int = 20_000) -> Tensor:
    r"""The mean gain :math:`2^{rel} - 1` of each place ``(n,)`` over training lists of n, best first.

    Where fewer than a quarter of the users have n ratings, shorter lists are drawn, which a quarter of the
    users can fill, and their places are stretched to n.
    """
    longest = min(n, int(ratings.lengths.sort(descending=True).values[len(ratings) // 4]))
    _, relevance = ratings.draw(longest, lists, generator)
    gains = (torch.exp2(relevance) - 1).sort(-1, descending=True).values.mean(0)
    return stretched(gains, n)


def gain_table(gains: Tensor) -> Tensor:
    """Gains by the length of the list and place, ``(n + 1, n)``, from those of a list of n; 0 past it."""
    n = len(gains)
    rows = [torch.nn.functional.pad(stretched(gains, length), (0, n - length)) for length in range(n + 1)]
    return torch.stack(rows)


def stretched(values: Tensor, n: int) -> Tensor:
    """Values ``(m,)`` of the places of a list of m, read at the relative places of a list of n: ``(n,)``.

    >>> stretched(torch.tensor([4.0, 2.0]), 4)
    tensor([4.0000, 3.5000, 2.5000, 2.0000])
    """
    if n == 0 or len(values) == 0:
        return values.new_zeros(n)
    return at_relative_places(values, torch.arange(n, device=values.device), n)


def at_relative_places(values: Tensor, place: Tensor, count: Tensor | int) -> Tensor:
    """Values ``(m,)`` interpolated linearly at places of lists of ``count`` items; shapes broadcast."""
    last = len(values) - 1
    at = ((place + 0.5) / count * len(values) - 0.5).clamp(0, last)
    low = at.long()
    return values[low] + (at - low) * (values[(low + 1).clamp(max=last)] - values[low])
