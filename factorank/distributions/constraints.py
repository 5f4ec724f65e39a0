"""What the parameters and the orders of a law must be, and the errors where they are not."""

from typing import Any

import torch
from torch import Tensor
from torch.distributions import constraints

from factorank.errors import DistributionError
from factorank.permutations import check_permutation, is_permutation


class _Permutation(constraints.Constraint):
    """Every row is a permutation of 0..n-1."""

    is_discrete = True
    event_dim = 1

    def check(self, value: Tensor) -> Tensor:
        return is_permutation(value)


class _Finite(constraints.Constraint):
    def check(self, value: Tensor) -> Tensor:
        return value.isfinite()


permutation = _Permutation()
"""The support of every law here; its ``check`` gives one bool per row."""
_finite = _Finite()
finite_vector = constraints.independent(_finite, 1)
unit_vector = constraints.independent(constraints.unit_interval, 1)
nonnegative_vector = constraints.independent(constraints.nonnegative, 1)


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
    _finite: "that are finite",
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
