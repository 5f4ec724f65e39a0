"""Draws from categoricals, without the bias of float32 noise.

The usual float32 Gumbel or exponential noise has 24 bits: values less likely than about 1e-7 are never drawn
and the rest are drawn a little too often. Here the cumulative probabilities are float64 and a 53-bit uniform
number is looked up in them. A value of probability zero is never drawn: it holds no interval.
"""

import torch
from torch import Tensor

SHORT_SUMS = 64
"""Values up to which a GPU sums faster by a product with a triangle of ones than by its scan."""


def cumulative(logits: Tensor) -> Tensor:
    """Cumulative probabilities ``(*batch, values)`` in float64; the last one is exactly 1."""
    each, values = torch.softmax(logits.double(), -1), logits.shape[-1]
    if each.is_cuda and values <= SHORT_SUMS:
        total = each @ torch.ones((values, values), dtype=each.dtype, device=each.device).triu()
    else:
        total = each.cumsum(-1)
    return total / total[..., -1:]


def draw(logits: Tensor, *, generator: torch.Generator | None = None) -> Tensor:
    """One value for each row of logits ``(*batch, values)``: int64 ``(*batch,)``.

    >>> draw(torch.tensor([-torch.inf, 0.0, -torch.inf]))
    tensor(1)
    """
    return draw_many(logits, 1, generator=generator)[0]


def draw_many(logits: Tensor, count: int, *, generator: torch.Generator | None = None) -> Tensor:
    """``count`` values for each row of logits ``(*batch, values)``: int64 ``(count, *batch)``.

    >>> draw_many(torch.tensor([[-torch.inf, 0.0], [0.0, -torch.inf]]), 3)
    tensor([[1, 0],
            [1, 0],
            [1, 0]])
    """
    uniform = torch.rand(
        (*logits.shape[:-1], count), dtype=torch.float64, device=logits.device, generator=generator
    )
    return looked_up(logits, uniform).movedim(-1, 0)


def looked_up(logits: Tensor, uniform: Tensor) -> Tensor:
    """The values that uniform numbers ``(*batch, count)``, float64 in [0, 1), stand for in logits
    ``(*batch, values)``: int64 ``(*batch, count)``.

    >>> looked_up(torch.zeros(4), torch.tensor([0.0, 0.3, 0.6, 0.9], dtype=torch.float64))
    tensor([0, 1, 2, 3])
    """
    return torch.searchsorted(cumulative(logits), uniform, right=True)
