"""Fast paths have first derivatives only: where a second one is asked for they refuse and say what has it."""

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad

from factorank.errors import FactorankError

REFUSAL = (
    "a fused kernel has first derivatives only, and create_graph=True asks for second ones: compute the"
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
        _refuse_recording()
        return grad_x


def first_derivative_only(backward: Callable[..., Any]) -> Callable[..., Any]:
    """Decorate the ``backward(ctx, *gradients)`` of a fused operation: a second derivative is refused.

    Torch's ``once_differentiable`` lets it pass, as zero, where the gradients that come in are constants.
    """

    @functools.wraps(backward)
    def once(ctx: Any, *gradients: Any) -> Any:
        _refuse_recording()
        with torch.no_grad():
            return backward(ctx, *gradients)

    return once


def _refuse_recording() -> None:
    """Refuse to compute a gradient that is itself recorded, which ``create_graph=True`` alone asks for.

    At once, since later is too late: where only the weights on other paths are differentiated by, torch never
    comes back here, and leaves out what this operation would add. Compiled code refuses by itself.
    """
    if torch.is_grad_enabled() and not torch.compiler.is_compiling():
        raise FactorankError(REFUSAL)
