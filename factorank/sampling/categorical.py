"""Categorical distributions, by their logits ``(*batch, values)``: tempered, and drawn from.

Draws have no bias from float32 noise. The usual Gumbel or exponential noise has 24 bits: values less likely
than about 1e-7 are never drawn and the rest are drawn a little too often. Here the cumulative probabilities
are float64 and a 53-bit uniform number is looked up in them. A value of probability zero is never drawn: it
holds no interval.
"""

import torch
from torch import Tensor

from factorank.kernels import dispatch

BELOW_ONE = 1 - 2**-53
"""The largest float64 below 1."""
LOG_PROB_STEPS = 1024
"""Log-probabilities are compared in steps of this fraction: rounding in a network must not decide a tie."""
TOLERANCE = 1e-4
"""What a sum of probabilities may lack of ``top_p``: rounding must not decide there either."""


def tempered(logits: Tensor, temperature: float = 1.0, top_p: float = 1.0) -> Tensor:
    """The logits divided by the temperature, then cut to the most likely values whose probabilities sum to
    ``top_p``, and no more of them; ties go to the smaller value.

    >>> tempered(torch.tensor([0.5, 0.25, 0.25]).log(), temperature=0.5).softmax(-1)
    tensor([0.6667, 0.1667, 0.1667])
    >>> tempered(torch.tensor([0.25, 0.5, 0.25]).log(), top_p=0.7).softmax(-1)
    tensor([0.3333, 0.6667, 0.0000])
    """
    if temperature != 1:
        # Less the largest, quotients can only run out of the range towards minus infinity.
        logits = (logits - logits.detach().amax(-1, keepdim=True)) / temperature
    if top_p == 1:
        return logits
    log_probs = logits.detach().log_softmax(-1)
    values = (log_probs * LOG_PROB_STEPS).round().argsort(dim=-1, descending=True, stable=True)
    probs = log_probs.exp().gather(-1, values)
    beyond = probs.cumsum(-1) - probs >= top_p - TOLERANCE
    beyond[..., 0] = False
    return logits.masked_fill(torch.zeros_like(beyond).scatter(-1, values, beyond), -torch.inf)


def cumulative(logits: Tensor) -> Tensor:
    """Cumulative probabilities ``(*batch, values)`` in float64; the last one is exactly 1."""
    total = dispatch.cumulative_sums(torch.softmax(logits.double(), -1))
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
