"""Random numbers for the laws: uniform numbers in pieces that fit the cache, and draws of an index."""

import math
from collections.abc import Callable

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


def log_(values: Tensor) -> Tensor:
    """``values.log_()``, on the CPU by numpy: torch wakes its threads even for a few thousand logarithms."""
    if values.is_cuda:
        return values.log_()
    with np.errstate(divide="ignore"):
        np.log(values.numpy(), out=values.numpy())
    return values


def log1p_(values: Tensor) -> Tensor:
    """``values.log1p_()``, as :func:`log_`."""
    if values.is_cuda:
        return values.log1p_()
    np.log1p(values.numpy(), out=values.numpy())
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
