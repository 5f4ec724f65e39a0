"""Fast paths have first derivatives only: where a second one is asked for they refuse and say what has it."""

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad

from factorank.errors import FactorankError

REFUSAL = (
    "a fused kernel has first derivatives only, and this is a second one (create_graph=True): compute the"
    " loss inside of `with factorank.plain():`, where plain torch operations run, which have every derivative"
)


def is_transformed() -> bool:
    """Whether this runs inside of ``torch.func`` (``grad``, ``vmap``, ``jvp``, …) or forward-mode AD.

    Plain torch operations have rules for all of them, fused ones do not.
    """
    if torch.compiler.is_compiling():  # the compiler has rules of its own
        return False
    return torch._C._functorch.peek_interpreter_stack() is not None or forward_ad._current_level >= 0


class FirstOnly(torch.autograd.Function):
    """The identity, whose gradient cannot be differentiated again: for the input of a fused operation."""

    @staticmethod
    def of(x: Tensor) -> Tensor:
        """x itself where no gradient is recorded, and while compiling, where torch refuses by itself."""
        if not (x.requires_grad and torch.is_grad_enabled()) or torch.compiler.is_compiling():
            return x
        guarded: Tensor = FirstOnly.apply(x)
        return guarded

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, grad_x: Tensor) -> Any:
        return _refusing(grad_x) if torch.is_grad_enabled() else grad_x


def first_derivative_only(backward: Callable[..., Any]) -> Callable[..., Any]:
    """Decorate the ``backward(ctx, *gradients)`` of a fused operation: a second derivative is refused.

    Torch's ``once_differentiable`` lets it pass, as zero, where the gradients that come in are constants.
    """

    @functools.wraps(backward)
    def once(ctx: Any, *gradients: Any) -> Any:
        with torch.no_grad():
            results = backward(ctx, *gradients)
        # Gradients are recorded here for create_graph=True alone. Compiled code refuses by itself.
        if not torch.is_grad_enabled() or torch.compiler.is_compiling():
            return results
        return tuple(None if result is None else _refusing(result) for result in results)

    return once


def _refusing(gradient: Tensor) -> Tensor:
    """The gradient, as the result of an operation that cannot be differentiated."""
    guarded: Tensor = _Refuse.apply(gradient.detach().requires_grad_())
    return guarded


class _Refuse(torch.autograd.Function):
    """The identity, which cannot be differentiated."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        raise FactorankError(REFUSAL)
