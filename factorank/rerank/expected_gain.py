"""From the probabilities of places to a list: which order, how sure."""

import torch
from torch import Tensor

from factorank.permutations import inverse
from factorank.rerank.training_lists import stretched


def gain_table(gains: Tensor) -> Tensor:
    """Gains by the length of the list and place, ``(n + 1, n)``, from those of a list of n; 0 past it."""
    n = len(gains)
    rows = [torch.nn.functional.pad(stretched(gains, length), (0, n - length)) for length in range(n + 1)]
    return torch.stack(rows)


def expected_gain(places: Tensor, lengths: Tensor, table: Tensor) -> Tensor:
    r"""The expected gain ``(rows, n)`` of each item, from places ``(rows, n, n)``, lengths ``(rows,)``.

    The gain of a place is the mean gain of the items that stood there in training. A list sorted by the
    expected gain :math:`\sum_p P(p) g_p` has the largest expected DCG under the law if the gain depends on
    the place alone. It then has the largest expected NDCG, too, if the DCG of the ideal list is the same for
    all users; it is not quite, and the list is nearly the best.

    Robertson, "The probability ranking principle in IR", 1977.
    """
    return (places * table.to(places)[lengths][:, None, :]).sum(-1)


def mean_place(places: Tensor) -> Tensor:
    """The mean place ``(rows, n)``, from 0 on."""
    # Not a matrix product, which autocast would take to bfloat16: places would come in steps.
    return (places * torch.arange(places.shape[-1], device=places.device, dtype=places.dtype)).sum(-1)


def interval(places: Tensor, level: float) -> tuple[Tensor, Tensor]:
    """The lowest and highest place, ``(rows, n)`` each, of the middle ``level`` of the probability.

    >>> interval(torch.tensor([[0.02, 0.9, 0.04, 0.04]]), 0.9)
    (tensor([1]), tensor([2]))
    """
    below = places.cumsum(-1)
    tail, rounding = (1 - level) / 2, 1e-5
    low = (below <= tail + rounding).sum(-1)
    high = (below < 1 - tail - rounding).sum(-1)
    return low, high.clamp(max=places.shape[-1] - 1)


def sorted_by(score: Tensor, observed: Tensor, present: Tensor) -> Tensor:
    """Orders ``(rows, n)``, the highest score first, -1 past the end; what is observed keeps its order.

    ``observed (rows, r)`` are places in the list, best first, -1 pads. The places that observed items take
    are those of the scores; which of them stands where is what was observed. Equal scores keep the order of
    the list.
    """
    order = torch.where(present, score, -torch.inf).argsort(dim=-1, descending=True, stable=True)
    return torch.where(present, respecting(order, observed), -1)


def respecting(order: Tensor, observed: Tensor) -> Tensor:
    """The order ``(rows, n)`` with its observed items ``(rows, r)``, -1 pads, in the order of observation.

    >>> respecting(torch.tensor([[3, 0, 1, 2]]), torch.tensor([[0, 3, -1]]))
    tensor([[0, 3, 1, 2]])
    """
    n = order.shape[-1]
    if observed.shape[-1] < 2:
        return order
    place = inverse(order, check=False)
    told = observed >= 0
    slots = torch.where(told, place.gather(-1, observed.clamp(min=0)), n)
    slots = slots.sort(-1).values  # the places that are free for them, best first
    wide = torch.nn.functional.pad(order, (0, 1))
    return wide.scatter(-1, slots, torch.where(told, observed, 0))[:, :n]
