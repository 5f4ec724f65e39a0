"""A whole stack of transformer blocks as one step of autograd, on CPUs: see ``cpu_kernels``.

Short lists and narrow blocks leave a processor busy with calling operators, and a second one with waiting
for it. Here the lists are split over torch's threads once, and each part goes through all blocks in one call,
there and back. Dropout takes its random numbers as the plain blocks do.
"""

import importlib.util
import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch._utils import _flatten_dense_tensors, _unflatten_dense_tensors

LANES = 16
"""Lists of a group, which go through the blocks together."""
LONGEST = 64
"""Tokens of a list at most."""
LARGEST = 2**11
"""Numbers of a list at most, tokens times width: above, a group of lists is larger than the cache."""
WIDEST = 128
"""Width of the stream at most: above, the library's products of large matrices are faster than ours."""
FEWEST = 8
"""Lists at least: below, most lanes would be empty."""
PER_BLOCK = 12
"""Parameters of a block: gain, shift, weight, bias, weight, bias of the attention half; then of the MLP."""
EPS = 1e-5
"""Of the norms of the blocks."""
GRAIN = 2**13
"""Numbers that a thread should take through a block at least: waking one costs tens of microseconds."""

available = importlib.util.find_spec("numba") is not None


def fits(x: Tensor, parameters: Sequence[Tensor]) -> bool:
    """Whether there are kernels for ``(rows, tokens, width)`` and these weights, here and now."""
    return x.device.type == "cpu" and x.dtype == parameters[0].dtype and fit(x.shape, parameters)


def fit(shape: Sequence[int], parameters: Sequence[Tensor]) -> bool:
    """The same for a shape of tokens like the weights."""
    rows, tokens, width = shape
    dtype = parameters[0].dtype
    return (
        available
        and not torch.compiler.is_compiling()  # a compiler sees more in the plain operators
        and rows >= FEWEST
        and 1 <= tokens <= LONGEST
        and width <= WIDEST
        and tokens * width <= LARGEST
        and not torch.is_autocast_enabled("cpu")
        and dtype in (torch.float32, torch.float64)
        and all(one.is_cpu and one.dtype == dtype and one.is_contiguous() for one in parameters)
    )


def apply(
    x: Tensor,
    parameters: Sequence[Tensor],
    present: Tensor | None,
    *,
    heads: int,
    causal: bool,
    dropout: float,
    eps: float = EPS,
    positions: Tensor | None = None,
) -> Tensor:
    """Blocks of ``(rows, tokens, width)``; ``parameters`` are PER_BLOCK for each block.

    ``present`` is bool ``(rows, tokens)``: the tokens that may be looked at. ``positions (rows, some)`` are
    the tokens that are asked for, all if None: the last block does the others' share of attention only.
    """
    settings = (heads, causal, dropout, eps)
    if torch.is_grad_enabled() and (x.requires_grad or any(one.requires_grad for one in parameters)):
        made: Tensor = _Blocks.apply(x, present, settings, *parameters)
        return take(made, positions)
    if dropout > 0:
        return take(_Pass(x, parameters, present, settings).forward(x, keeps=False), positions)
    return _Pass(x, parameters, present, settings).forward(x, keeps=False, positions=positions)


def take(tokens: Tensor, positions: Tensor | None) -> Tensor:
    """``(rows, tokens, width)`` at positions ``(rows, some)``, or all."""
    if positions is None:
        return tokens
    return tokens.gather(1, positions[..., None].expand(*positions.shape, tokens.shape[-1]))


class _Blocks(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, present: Tensor | None, settings: Any, *parameters: Tensor) -> Tensor:
        ctx.work = _Pass(x, parameters, present, settings)
        ctx.save_for_backward(*parameters)
        return ctx.work.forward(x, keeps=True)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> Any:
        ctx.saved_tensors  # noqa: B018  raises if a weight has been changed since
        of_x, of_parameters = ctx.work.backward(gradient)
        return of_x, None, None, *of_parameters


class _Pass:
    """One pass through the blocks, and what it leaves for the way back."""

    def __init__(
        self,
        x: Tensor,
        parameters: Sequence[Tensor],
        present: Tensor | None,
        settings: tuple[int, bool, float, float],
    ) -> None:
        self.heads, causal, dropout, self.eps = settings
        self.rows, self.n, self.width = x.shape
        self.groups = -(-self.rows // LANES)
        self.depth = len(parameters) // PER_BLOCK
        self.parts = spans(self.groups, self.depth * x.numel())
        self.parameters = parameters
        self.raw = _flatten_dense_tensors(parameters).detach().view(self.depth, -1)
        self.weights = torch.empty_like(self.raw).numpy()
        _kernels().fold(self.raw.numpy(), self.width, self.weights)
        self.rule = rule(x.shape, self.depth, present, causal, dropout, x.dtype)

    def forward(self, x: Tensor, *, keeps: bool, positions: Tensor | None = None) -> Tensor:
        each = (self.depth, 14 * self.width + 2, self.n * LANES)
        # Large arrays of numpy's come in large pages: fewer of them to be mapped at every step.
        self.kept = np.empty((self.groups if keeps else 0, *each), self.weights.dtype)
        some = self.n if positions is None else positions.shape[1]
        asked = np.empty((0, 0), np.int64) if positions is None else positions.contiguous().numpy()
        out = x.new_empty((self.rows, some, self.width))
        before, after = x.detach().contiguous().numpy(), out.numpy()
        in_threads(
            lambda part, start, end: _kernels().forward(
                before, *self.rule, asked, self.weights, self.heads, self.eps, start, end, keeps,
                self.kept, after,
            ),
            self.parts,
        )  # fmt: skip
        return out

    def backward(self, gradient: Tensor) -> tuple[Tensor, Sequence[Tensor]]:
        width, parts = self.width, len(self.parts)
        filled = -(-width // LANES) * LANES
        products = np.empty((parts, self.depth, 12 * width, filled), self.weights.dtype)
        sums = np.empty((parts, self.depth, 9 * width, LANES), self.weights.dtype)
        gradient = gradient.contiguous()
        of_x, made = torch.empty_like(gradient), torch.empty_like(self.raw)
        before, after = gradient.numpy(), of_x.numpy()
        turned = np.empty_like(self.weights)
        _kernels().turn(self.weights, width, turned)
        in_threads(
            lambda part, start, end: _kernels().backward(
                before, *self.rule, turned, self.heads, start, end, self.kept, after,
                products[part], sums[part],
            ),
            self.parts,
        )  # fmt: skip
        _kernels().unfold(self.raw.numpy(), width, products, sums, made.numpy())
        return of_x, _unflatten_dense_tensors(made.view(-1), self.parameters)


def never_empty(present: Tensor) -> Tensor:
    """A list without items looks at its first padding token: attention over nothing is not a number."""
    first = torch.arange(present.shape[-1], device=present.device) == 0
    return present | first


def rule(
    shape: Sequence[int],
    depth: int,
    present: Tensor | None,
    causal: bool,
    dropout: float,
    dtype: torch.dtype,
) -> tuple[Any, ...]:
    """What the kernels take of attention and dropout: hidden, masked, causal, noise, drops."""
    rows, n, width = shape
    groups = -(-rows // LANES) if present is not None else 1
    hidden = np.zeros((groups, n, LANES), np.bool_)
    if present is not None:
        padded = torch.zeros((groups * LANES, n), dtype=torch.bool)
        padded[:rows] = ~present
        hidden[:] = padded.view(groups, LANES, n).transpose(1, 2).numpy()
    noise = torch.empty((2 * depth if dropout > 0 else 0, rows, n, width), dtype=dtype)
    for half in noise:
        half.bernoulli_(1 - dropout).div_(1 - dropout)
    return hidden, present is not None, causal, noise.numpy(), dropout > 0


def spans(groups: int, numbers: int) -> list[tuple[int, int]]:
    """Parts of the groups of lists for torch's threads, as many as these numbers are worth: two for each
    thread, so that one that is held up has less to do."""
    threads = torch.get_num_threads()
    parts = max(min(2 * threads if threads > 1 else 1, groups, numbers // GRAIN), 1)
    return list(itertools.pairwise(groups * i // parts for i in range(parts + 1)))


def in_threads(call: Callable[[int, int, int], Any], parts: list[tuple[int, int]]) -> list[Any]:
    """Call with the number of each part, where it starts and where it ends; the results in their order.

    Threads take the next part as they come: one that starts late does not delay the others.
    """
    if len(parts) == 1:
        return [call(0, *parts[0])]
    from factorank.kernels.cpu import _pool

    made: list[Any] = [None] * len(parts)
    left = enumerate(parts)

    def work() -> None:
        for part, (start, end) in left:
            made[part] = call(part, start, end)

    helpers = [_pool().submit(work) for _ in range(min(torch.get_num_threads(), len(parts)) - 1)]
    work()
    for one in helpers:
        if not one.cancel():
            one.result()
    return made


def _kernels() -> Any:
    from factorank.models import cpu_kernels

    return cpu_kernels
