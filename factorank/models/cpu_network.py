"""The loss of codes without a context as one step of autograd, on CPUs: see ``cpu_network_kernels``.

The gradients are made together with the losses, as if the losses were summed: for their mean, the usual case,
the way back is then a product. Where rows count differently it goes through the network again.
"""

from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor
from torch._utils import _flatten_dense_tensors, _unflatten_dense_tensors

from factorank.models import cpu_blocks
from factorank.models.attention import own_cpu_kernels
from factorank.models.context import Known
from factorank.models.cpu_blocks import LANES, in_threads, never_empty, spans

if TYPE_CHECKING:
    from factorank.models.network import Network

SETS = ("any", "suffix", "all")
"""Which positions are masked; their places are what the kernel knows them by."""


def weights_for(network: "Network", code: Tensor, known: Known | None) -> list[Tensor] | None:
    """The weights of the network, if codes ``(*rows, n)`` can go through here, now."""
    if known is not None or not own_cpu_kernels(code) or code.dtype != torch.int64:
        return None
    weights = network.weights()
    shape = (code.shape[:-1].numel(), network.n, network.width)
    return weights if cpu_blocks.fit(shape, weights) else None


def masked_loss(
    network: "Network",
    weights: list[Tensor],
    masks: str,
    code: Tensor,
    present: Tensor | None,
    strata: Tensor,
    scores: Tensor,
) -> Tensor:
    """``masked.loss`` of codes ``(*batch, n)``: the random numbers choose what is masked."""
    batch, n = code.shape[:-1], code.shape[-1]
    code = code.reshape(-1, n)
    seen, share = torch.empty_like(code), torch.empty(code.shape, dtype=weights[0].dtype)
    padding = np.empty((0, n), np.bool_) if present is None else present.reshape(-1, n).numpy()
    arrays = (one.numpy() for one in (code, strata.reshape(-1), scores.reshape(-1, n), seen, share))
    _kernels().hide(padding, present is not None, SETS.index(masks), *arrays)
    return _likelihood(network, weights, (seen, code, share), present, causal=False).view(batch)


def causal_loss(network: "Network", weights: list[Tensor], code: Tensor, present: Tensor | None) -> Tensor:
    """``autoregressive.loss`` of codes ``(*batch, n)``."""
    batch, n = code.shape[:-1], code.shape[-1]
    code = code.reshape(-1, n)
    seen, share = torch.full_like(code, network.mask_value), torch.empty(code.shape, dtype=weights[0].dtype)
    seen[:, 1:] = code[:, :-1]
    share.fill_(-1.0)
    if present is not None:
        share *= present.reshape(-1, n)
    return _likelihood(network, weights, (seen, code, share), None, causal=True).view(batch)


def _likelihood(
    network: "Network",
    weights: list[Tensor],
    codes: tuple[Tensor, Tensor, Tensor],
    present: Tensor | None,
    *,
    causal: bool,
) -> Tensor:
    """Log-probabilities times their shares, summed: ``(rows,)``. The codes ``(rows, n)`` are what the network
    sees, what it is asked for, and the shares."""
    work = _Pass(network, weights, codes, present, causal)
    if torch.is_grad_enabled() and any(one.requires_grad for one in weights):
        made: Tensor = _Likelihood.apply(work, *weights)
        return made
    return work.run(None)[0]


class _Likelihood(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, work: "_Pass", *parameters: Tensor) -> Tensor:
        out, gradients = work.run(np.ones(work.rows, work.dtype))
        ctx.work, ctx.gradients = work, gradients
        ctx.like = parameters
        return out

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> Any:
        of_rows = gradient.contiguous().numpy()
        if (of_rows == of_rows[0]).all():
            made = ctx.gradients * float(of_rows[0])
        else:
            made = ctx.work.run(of_rows)[1]
        return None, *_unflatten_dense_tensors(made, ctx.like)


class _Pass:
    """One pass through the network: all that it needs, copies of the weights included."""

    def __init__(
        self,
        network: "Network",
        parameters: list[Tensor],
        codes: tuple[Tensor, Tensor, Tensor],
        present: Tensor | None,
        causal: bool,
    ) -> None:
        blocks, head = network.transformer, network.head
        self.rows, n = codes[0].shape
        shape = (self.rows, n, network.width)
        self.size = (n, network.width, len(blocks.blocks))
        self.flat = _flatten_dense_tensors(parameters).detach()
        dropout = blocks.dropout if blocks.training else 0.0
        keys = None if present is None else never_empty(present).reshape(-1, n)
        rule = cpu_blocks.rule(shape, self.size[2], keys, causal, dropout, self.flat.dtype)
        arrays = [one.contiguous().numpy() for one in (*codes, head.allowed)]
        self.weights = _kernels().fold(self.flat.numpy(), *self.size)
        self.given = (self.weights, *arrays, *rule, blocks.heads, (cpu_blocks.EPS, head.norm.eps))
        self.parts = spans(-(-self.rows // LANES), self.size[2] * self.rows * n * network.width)

    @property
    def dtype(self) -> Any:
        return self.weights[0].dtype

    def run(self, of_out: np.ndarray | None) -> tuple[Tensor, Tensor]:
        """The result and, given the gradient of it, the gradient of all parameters in one vector."""
        out = torch.empty(self.rows, dtype=self.flat.dtype)
        learns = of_out is not None
        rows = np.empty(self.rows, self.dtype) if of_out is None else of_out
        whole = out.numpy()
        first, *rest = in_threads(
            lambda _, start, end: _kernels().likelihood(*self.given, start, end, rows, learns, whole),
            self.parts,
        )
        gradients = torch.empty_like(self.flat) if learns else self.flat
        if learns:
            for part in rest:
                for one, other in zip(first, part, strict=True):
                    one += other
            _kernels().unfold(self.flat.numpy(), *self.size, first, gradients.numpy())
        return out, gradients


def _kernels() -> Any:
    from factorank.models import cpu_network_kernels

    return cpu_network_kernels
