"""Values by the places of a list, read for lists of another length."""

import torch
from torch import Tensor


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
    high = (low + 1).clamp(max=last)
    return values[low] + (at - low) * (values[high] - values[low])
