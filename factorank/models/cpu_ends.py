"""The ends of the network on CPUs: codes to tokens, tokens to log-probabilities; a step of autograd each."""

from typing import Any

import torch
from torch import Tensor

from factorank.models.cpu_blocks import available


def fits(code: Tensor, *floats: Tensor) -> bool:
    """Whether these tensors can go through here, now."""
    return (
        available
        and code.dtype == torch.int64
        and not torch.is_autocast_enabled("cpu")
        and not torch.compiler.is_compiling()
        and floats[0].dtype in (torch.float32, torch.float64)
        and all(one.dtype == floats[0].dtype and one.device.type == "cpu" for one in floats)
    )


def embed(code: Tensor, values: Tensor, places: Tensor) -> Tensor:
    """The rows of ``values`` that codes ``(*rows, n)`` name, and the n places: ``(*rows, n, width)``."""
    made: Tensor = _Embed.apply(code, values, places)
    return made


def log_probs(
    hidden: Tensor, code: Tensor, allowed: Tensor, gain: Tensor, shift: Tensor, eps: float, *maps: Tensor
) -> Tensor:
    """The log-probabilities of codes ``(*rows, n)`` given tokens ``(*rows, n, width)``; see ``Head``."""
    made: Tensor = _Choose.apply(hidden, code, allowed, eps, gain, shift, *maps)
    return made


class _Embed(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, code: Tensor, values: Tensor, places: Tensor) -> Tensor:
        code, values, places = code.contiguous(), values.contiguous(), places.contiguous()
        ctx.code, ctx.count = code, values.shape[0]
        out = values.new_empty((*code.shape, values.shape[1]))
        arrays = (one.detach().numpy() for one in (values, places, out.view(-1, values.shape[1])))
        if not _kernels().embed(code.view(-1).numpy(), *arrays):
            raise IndexError(f"the values of a code are 0..{len(values) - 1} here, the mask included")
        return out

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[None, Tensor, Tensor]:
        n, width = gradient.shape[-2:]
        gradient = gradient.contiguous()
        of_values = gradient.new_zeros((ctx.count, width))
        _kernels().through_values(
            gradient.view(-1, width).numpy(), ctx.code.view(-1).numpy(), of_values.numpy()
        )
        return None, of_values, gradient.view(-1, n, width).sum(0)


class _Choose(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        hidden: Tensor,
        code: Tensor,
        allowed: Tensor,
        eps: float,
        gain: Tensor,
        shift: Tensor,
        weight: Tensor,
        table: Tensor,
    ) -> Tensor:
        width = hidden.shape[-1]
        x = hidden.detach().contiguous().view(-1, width)
        code, normed, moments = code.contiguous().view(-1), torch.empty_like(x), x.new_empty((2, len(x)))
        gains = (gain.detach().contiguous().numpy(), shift.detach().contiguous().numpy())
        tokens, means, scales = x.numpy(), *moments.numpy()
        _kernels().close(
            tokens, tokens, gains[0], tokens, False, False, tokens,
            *gains, eps, True, normed.numpy(), means, scales,
        )  # fmt: skip
        probabilities, chosen = normed @ weight.detach().T, x.new_empty(len(x))
        _kernels().choose(
            probabilities.numpy(), table.detach().contiguous().numpy(), allowed.contiguous().numpy(),
            code.numpy(), chosen.numpy(),
        )  # fmt: skip
        ctx.save_for_backward(x, code, normed, moments, probabilities, gain, weight)
        return chosen.view(hidden.shape[:-1])

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> Any:
        x, code, normed, moments, probabilities, gain, weight = ctx.saved_tensors
        n, arriving = weight.shape[0], gradient.contiguous().view(-1)
        of_logits = torch.empty_like(probabilities)
        _kernels().through_choice(arriving.numpy(), probabilities.numpy(), code.numpy(), of_logits.numpy())
        of_normed = of_logits @ weight.detach()
        of_shift, of_x = of_normed.sum(0), torch.zeros_like(x)
        _kernels().through_norm(
            of_normed.numpy(), x.numpy(), *moments.numpy(), gain.detach().contiguous().numpy(), of_x.numpy()
        )
        of_table = of_logits.view(-1, n, n).sum(0)
        shape = (*gradient.shape, x.shape[1])
        maps = of_logits.T @ normed, of_table
        return of_x.view(shape), None, None, None, of_normed.sum(0), of_shift, *maps


def _kernels() -> Any:
    from factorank.models import cpu_end_kernels

    return cpu_end_kernels
