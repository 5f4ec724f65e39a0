"""What the laws do with tensors: take parameters, rename items, and draw uniform numbers quickly."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from factorank.errors import DistributionError
from factorank.permutations import check_integer, inverse


def as_orders(orders: Sequence[Any] | Tensor, what: str, like: object = None) -> Tensor:
    """A parameter that holds permutations, as int64 ``(*batch, n)``; a list goes where ``like`` is."""
    device = like.device if isinstance(like, Tensor) else None
    tensor = orders if isinstance(orders, Tensor) else torch.as_tensor(orders, device=device)
    if tensor.numel() == 0 and not isinstance(orders, Tensor):
        tensor = tensor.to(torch.int64)  # an empty list has no integers to tell its dtype by
    check_integer(tensor, f"{what} takes a permutation")
    return tensor.to(torch.int64)


def as_reals(value: float | Sequence[Any] | Tensor, like: Tensor | None = None) -> Tensor:
    """A real parameter as a floating tensor, on the device of ``like`` unless it is a tensor already."""
    if isinstance(value, Tensor):
        return value if value.is_floating_point() else value.to(torch.get_default_dtype())
    return torch.as_tensor(
        value, dtype=torch.get_default_dtype(), device=None if like is None else like.device
    )


def together(law: str, **shapes: torch.Size) -> torch.Size:
    """The batch shape of a law whose parameters have these batch shapes."""
    try:
        return torch.broadcast_shapes(*shapes.values())
    except RuntimeError:
        given = ", ".join(f"{name} {tuple(shape)}" for name, shape in shapes.items())
        raise DistributionError(
            f"the batch shapes of {law}'s parameters must broadcast, but are {given}"
        ) from None


def relative_to(reference: Tensor, order: Tensor) -> Tensor:
    """The order with items named by their place in the reference; int64, checked, broadcast batch shapes."""
    ranks = inverse(compact(reference, 1), check=False)
    shape = torch.broadcast_shapes(ranks.shape, order.shape)
    return ranks.expand(shape).gather(-1, order.expand(shape))


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


def compact(tensor: Tensor, event_dim: int) -> Tensor:
    """The tensor without the repeats that ``expand`` made along batch dimensions, which become of size 1.

    Work done on a parameter is then done once however far it was expanded; the result still broadcasts.
    """
    for dim in range(tensor.ndim - event_dim):
        if tensor.stride(dim) == 0 and tensor.shape[dim] > 1:
            tensor = tensor.narrow(dim, 0, 1)
    return tensor


def draw_index(log_probs: Tensor, generator: torch.Generator | None) -> Tensor:
    """Draw an index of the last dimension by inverting the distribution function: int64 ``(*rows,)``.

    In float64; an index of probability zero is never drawn.
    """
    cumulative = log_probs.double().exp().cumsum(-1)
    uniform = torch.rand(
        cumulative[..., :1].shape, dtype=torch.float64, device=cumulative.device, generator=generator
    )
    return (cumulative <= uniform * cumulative[..., -1:]).sum(-1).clamp(max=cumulative.shape[-1] - 1)
