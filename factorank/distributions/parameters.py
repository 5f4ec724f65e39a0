"""Parameters of the laws: what they must be, how they become tensors, how they are shown."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.distributions import constraints

from factorank.errors import DistributionError, PermutationError
from factorank.permutations import check_integer, check_permutation, inverse, is_permutation


class _Permutation(constraints.Constraint):
    """Every row is a permutation of 0..n-1."""

    is_discrete = True
    event_dim = 1

    def check(self, value: Tensor) -> Tensor:
        return is_permutation(value)


class _FiniteNonnegative(constraints.Constraint):
    def check(self, value: Tensor) -> Tensor:
        return value.isfinite() & (value >= 0)


class _Finite(constraints.Constraint):
    def check(self, value: Tensor) -> Tensor:
        return value.isfinite()


permutation = _Permutation()
"""The support of every law here; its ``check`` gives one bool per row."""
finite = _Finite()
finite_vector = constraints.independent(finite, 1)
unit_vector = constraints.independent(constraints.unit_interval, 1)
_finite_nonnegative = _FiniteNonnegative()
nonnegative_vector = constraints.independent(_finite_nonnegative, 1)


def check_orders(law: str, order: Tensor, n: int, batch_shape: torch.Size) -> None:
    """Refuse what are not orders of n items, of a shape that broadcasts with that of the law of this name."""
    check_integer(order, f"{law} takes orders")
    if order.shape[-1] != n:
        raise PermutationError(f"{law} takes orders of {n} items, not of {order.shape[-1]}")
    try:
        torch.broadcast_shapes(order.shape[:-1], batch_shape)
    except RuntimeError:
        raise DistributionError(
            f"{law} of batch shape {tuple(batch_shape)} takes orders of shape (*sample, *batch, n)"
            f" that broadcast with it, not {tuple(order.shape)}"
        ) from None
    check_permutation(order, f"{law} takes")


def check_parameter(law: str, name: str, value: Tensor, constraint: constraints.Constraint) -> None:
    """Raise unless ``value`` meets the constraint; the message names the law, the parameter and the place."""
    if torch.compiler.is_compiling() or value.numel() == 0:
        return
    if isinstance(constraint, _Permutation):
        check_permutation(value, f"{law} takes as {name}")
        return
    each = getattr(constraint, "base_constraint", constraint)
    valid = each.check(value)
    if torch._is_all_true(valid):
        return
    place = tuple(int(i) for i in (~valid).nonzero()[0])
    where = f" at {list(place)}" if place else ""
    raise DistributionError(f"{law} takes {name} {_ALLOWED[each]}, but{where} it is {show(value[place])}")


_ALLOWED: dict[constraints.Constraint, str] = {
    constraints.unit_interval: "between 0 and 1",
    constraints.nonnegative: "of 0 or more",
    finite: "that are finite",
    _finite_nonnegative: "that are finite and of 0 or more",
}


def show(value: Any) -> str:
    if isinstance(value, Tensor):
        if value.numel() <= 12:
            return _digits(value.tolist())
        return f"<{str(value.dtype).removeprefix('torch.')} {tuple(value.shape)}>"
    return value if isinstance(value, str) else repr(value)


def _digits(value: Any) -> str:
    if isinstance(value, list):
        return f"[{', '.join(_digits(entry) for entry in value)}]"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def as_orders(orders: Sequence[Any] | Tensor, what: str, like: object = None) -> Tensor:
    """A parameter that holds permutations, as int64 ``(*batch, n)``; a list goes where ``like`` is."""
    device = like.device if isinstance(like, Tensor) else None
    tensor = orders if isinstance(orders, Tensor) else torch.as_tensor(orders, device=device)
    if tensor.numel() == 0 and not isinstance(orders, Tensor):
        tensor = tensor.to(torch.int64)  # an empty list shows no dtype
    check_integer(tensor, f"{what} takes a permutation")
    return tensor.to(torch.int64)


def as_reals(
    value: float | Sequence[Any] | Tensor, like: Tensor | None = None, dtype: torch.dtype | None = None
) -> Tensor:
    """A real parameter as a floating tensor, on the device of ``like`` unless it is a tensor already.

    Numbers of half precision become float32: the log-probabilities of long orders do not fit into them.
    ``dtype`` is that of the result; else a tensor keeps its own, and other numbers get torch's default.
    """
    if value.is_complex() if isinstance(value, Tensor) else np.iscomplexobj(value):
        given = value.dtype if isinstance(value, Tensor) else repr(value)
        raise DistributionError(f"a law takes real parameters, not {given}")
    if isinstance(value, Tensor):
        if value.dtype in (torch.float16, torch.bfloat16):
            value = value.float()
        return value.to(dtype or (value.dtype if value.is_floating_point() else torch.get_default_dtype()))
    return torch.as_tensor(
        value, dtype=dtype or torch.get_default_dtype(), device=None if like is None else like.device
    )


def common_batch(law: str, **shapes: torch.Size) -> torch.Size:
    """The batch shape of a law whose parameters have these batch shapes."""
    try:
        return torch.broadcast_shapes(*shapes.values())
    except RuntimeError:
        shown = ", ".join(f"{name} {tuple(shape)}" for name, shape in shapes.items())
        raise DistributionError(
            f"the batch shapes of {law}'s parameters must broadcast, but are {shown}"
        ) from None


def compact(tensor: Tensor, event_dim: int) -> Tensor:
    """The tensor without the repeats that ``expand`` made along batch dimensions, which become of size 1.

    Work done on a parameter is then done once however far it was expanded; the result still broadcasts.
    """
    for dim in range(tensor.ndim - event_dim):
        if tensor.stride(dim) == 0 and tensor.shape[dim] > 1:
            tensor = tensor.narrow(dim, 0, 1)
    return tensor


def relative_to(reference: Tensor, order: Tensor) -> Tensor:
    """The order with items named by their place in the reference; int64, checked, broadcast batch shapes."""
    ranks = inverse(compact(reference, 1), check=False)
    shape = torch.broadcast_shapes(ranks.shape, order.shape)
    return ranks.expand(shape).gather(-1, order.expand(shape))
