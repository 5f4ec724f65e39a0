"""Random numbers for the laws, and Monte-Carlo estimates from their draws."""

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor


def map_uniform(
    fill: Callable[[Tensor, Tensor], None],
    shape: tuple[int, ...],
    event_dim: int,
    device: torch.device,
    generator: torch.Generator | None,
) -> Tensor:
    """An int64 tensor of that shape, filled by ``fill(uniform, out)`` from uniform numbers in [0, 1).

    ``uniform``, float64 and free to be overwritten, and ``out`` have shape ``(rows, *shape[-event_dim:])``.
    On the CPU the rows come in pieces that fit into the cache and that torch does not split over threads: for
    such short work waiting for them costs more than they bring.
    """
    result = torch.empty(shape, dtype=torch.int64, device=device)
    if result.numel() == 0:
        return result
    own = shape[len(shape) - event_dim :]
    rows = result.view(-1, *own)
    step = len(rows) if result.is_cuda else max(_PIECE // math.prod(own), 1)
    buffer = torch.empty((min(step, len(rows)), *own), dtype=torch.float64, device=device)
    for part in rows.split(step):
        fill(buffer[: len(part)].uniform_(generator=generator), part)
    return result


_PIECE = 1 << 14


def log_(values: Tensor, log: np.ufunc = np.log) -> Tensor:
    """``values.log_()`` or, with ``np.log1p``, ``values.log1p_()``.

    On the CPU by numpy: torch wakes its threads even for a few thousand logarithms.
    """
    if values.is_cuda:
        return values.log_() if log is np.log else values.log1p_()
    with np.errstate(divide="ignore"):
        log(values.numpy(), out=values.numpy())
    return values


def draw_index(log_probs: Tensor, generator: torch.Generator | None) -> Tensor:
    """Draw an index of the last dimension by inverting the distribution function: int64 ``(*rows,)``.

    In float64; an index of probability zero is never drawn.
    """
    cumulative = log_probs.double().exp().cumsum(-1)
    uniform = torch.rand(
        cumulative[..., :1].shape, dtype=torch.float64, device=cumulative.device, generator=generator
    )
    return (cumulative <= uniform * cumulative[..., -1:]).sum(-1).clamp(max=cumulative.shape[-1] - 1)


def standard_gumbel(uniform: Tensor) -> Tensor:
    """Standard Gumbel numbers from uniform ones in [0, 1). The largest of some scores with this noise is a
    draw from their softmax.

    >>> standard_gumbel(torch.tensor([0.1, 0.5, 0.9]))
    tensor([-0.8340,  0.3665,  2.2504])
    """
    return -(-uniform.clamp(min=torch.finfo(uniform.dtype).tiny).log()).log()


class Estimate(NamedTuple):
    """A Monte-Carlo estimate."""

    value: Tensor
    error: Tensor
    """The standard error, as of independent draws; those of learned laws are stratified, and closer."""
    samples: int


def mean_estimate(values: Tensor) -> Estimate:
    """The mean over the first dimension; of a single draw the error is not known and infinite."""
    count = values.shape[0]
    error = values.std(0) / count**0.5 if count > 1 else torch.full_like(values[0], math.inf)
    return Estimate(values.mean(0), error, count)


def count_places(orders: Tensor, weights: Tensor) -> Tensor:
    """The summed weights of the draws in which an item stands at a place: ``(*batch, item, place)``.

    Orders are ``(draws, *batch, n)``, weights ``(draws, *batch)`` or what broadcasts to it.
    """
    n = orders.shape[-1]
    cells = (orders * n + torch.arange(n, device=orders.device)).movedim(0, -2).flatten(-2)
    weights = weights.expand(orders.shape[:-1]).movedim(0, -1)[..., None].expand(*cells.shape[:-1], -1, n)
    counts = weights.new_zeros((*cells.shape[:-1], n * n))
    return counts.scatter_add_(-1, cells, weights.flatten(-2)).view(*cells.shape[:-1], n, n)
