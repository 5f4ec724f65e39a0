"""The ends of the network on CPUs: codes to tokens, tokens to log-probabilities; a step of autograd each."""

from typing import Any

import torch
from torch import Tensor

from factorank.models.cpu_blocks import LANES, LONGEST, available, in_threads, spans


def fits(code: Tensor, *floats: Tensor) -> bool:
    """Whether these tensors can go through here, now."""
    return (
        available
        and code.dtype == torch.int64
        and code.shape[-1] <= LONGEST
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
        of_values, of_places = gradient.new_zeros((ctx.count, width)), gradient.new_zeros((n, width))
        arrays = (ctx.code.view(-1).numpy(), of_values.numpy(), of_places.numpy())
        _kernels().through_embed(gradient.view(-1, width).numpy(), *arrays)
        return None, of_values, of_places


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
        n, width = hidden.shape[-2:]
        x, code = hidden.detach().contiguous().view(-1, n, width), code.contiguous().view(-1, n)
        groups, columns, values = -(-len(x) // LANES), n * LANES, len(weight)
        normed, scale = x.new_empty((groups, width, columns)), x.new_empty((groups, columns))
        probabilities, chosen = x.new_empty((groups, values, columns)), x.new_empty(x.shape[:2])
        weights = [one.detach().contiguous() for one in (weight, gain, shift)]
        folded, bias = torch.empty_like(weights[0]), x.new_empty(values)
        _kernels().fold(*(one.numpy() for one in (*weights, folded, bias)))
        before = [one.contiguous().numpy() for one in (x, code, folded, bias, table.detach(), allowed)]
        after = [one.numpy() for one in (normed, scale, probabilities, chosen)]
        ctx.parts = spans(groups, x.numel() // 8)  # the share of a block's work, about
        in_threads(lambda _, start, end: _kernels().choose(*before, eps, start, end, *after), ctx.parts)
        ctx.save_for_backward(code, normed, scale, probabilities, folded, weight, gain, shift)
        return chosen.view(hidden.shape[:-1])

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> Any:
        code, normed, scale, probabilities, folded, *weights = ctx.saved_tensors
        arriving, parts = gradient.contiguous().view(code.shape), ctx.parts
        n, (values, width) = code.shape[1], folded.shape
        of_x = gradient.new_empty((*code.shape, width))
        products = gradient.new_zeros((len(parts), values, -(-width // LANES) * LANES))
        tables = gradient.new_zeros((len(parts), n, values))
        before = [one.numpy() for one in (arriving, code, folded.T.contiguous())]
        kept, of_tokens = [one.numpy() for one in (normed, scale, probabilities)], of_x.numpy()
        of_weight, of_table = products.numpy(), tables.numpy()
        in_threads(
            lambda part, start, end: _kernels().through_choice(
                *before, start, end, *kept, of_tokens, of_weight[part], of_table[part]
            ),
            parts,
        )
        weights = [one.detach().contiguous() for one in weights]
        made = [torch.empty_like(one) for one in (weights[1], weights[2], weights[0], tables[0])]
        _kernels().unfold(*(one.numpy() for one in (*weights, products, tables, *made)))
        return of_x.view(*gradient.shape, width), None, None, None, *made


def _kernels() -> Any:
    from factorank.models import cpu_end_kernels

    return cpu_end_kernels
