"""A whole stack of transformer blocks as one step of autograd, on CPUs: see ``cpu_kernels``.

Short lists and narrow blocks leave a processor busy with calling operators. Here a block is four matrix
products forward and eight backward, by the library, and a kernel between two of them. Tokens lie position by
position, ``(tokens, lists, width)``, and queries, keys and values feature by feature, so that attention works
on many lists at once; the lists are filled up to a multiple of ``LANES``. Dropout takes its random numbers as
the plain blocks do.
"""

import importlib.util
import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

LANES = 16
"""Lists that attention works on at once."""
LONGEST = 64
"""Tokens of a list at most."""
FEWEST = 8
"""Lists at least: below, most lanes would be empty."""
PER_BLOCK = 12
"""Parameters of a block: gain, shift, weight, bias, weight, bias of the attention half; then of the MLP."""
RESIDENT = 2**16
"""Numbers of the stream that are taken through all blocks at once where nothing is kept, to stay in cache."""
GRAIN = 2**16
"""Numbers that a thread should have at least: waking one costs tens of microseconds."""

available = importlib.util.find_spec("numba") is not None


def fits(x: Tensor, parameters: Sequence[Tensor]) -> bool:
    """Whether there are kernels for ``(rows, tokens, width)`` and these weights, here and now."""
    return (
        available
        and x.device.type == "cpu"
        and x.dtype in (torch.float32, torch.float64)
        and x.shape[0] >= FEWEST
        and 1 <= x.shape[1] <= LONGEST
        and not torch.is_autocast_enabled("cpu")
        and not torch.compiler.is_compiling()  # a compiler sees more in the plain operators
        and all(one.dtype == x.dtype and one.is_contiguous() for one in parameters)
    )


def apply(
    x: Tensor,
    parameters: Sequence[Tensor],
    present: Tensor | None,
    *,
    heads: int,
    causal: bool,
    dropout: float,
    eps: float = 1e-5,
    positions: Tensor | None = None,
) -> Tensor:
    """Blocks of ``(rows, tokens, width)``; ``parameters`` are PER_BLOCK for each block.

    ``present`` is bool ``(rows, tokens)``: the tokens that may be looked at. ``positions (rows, some)`` are
    the tokens that are asked for, all if None: the last block does the others' share of attention only.
    """
    keeps = torch.is_grad_enabled() and (x.requires_grad or any(one.requires_grad for one in parameters))
    settings = (heads, causal, dropout, eps)
    if keeps:
        made: Tensor = _Blocks.apply(x, present, settings, *parameters)
        return take(made, positions)
    rows, n, width = x.shape
    at_once = -(-max(RESIDENT * torch.get_num_threads() // (n * width), 1) // LANES) * LANES
    if (
        dropout > 0 or rows <= at_once
    ):  # with dropout the order of the random numbers is that of the plain blocks
        return _Pass(x, parameters, present, settings, keeps=False).forward(x, positions)
    result = x.new_empty((rows, n if positions is None else positions.shape[1], width))
    part = None
    for first in range(0, rows, at_once):
        some = slice(first, min(first + at_once, rows))
        seen = None if present is None else present[some]
        if part is None or some.stop - first < at_once or seen is not None:
            part = _Pass(x[some], parameters, seen, settings, keeps=False)
        result[some] = part.forward(x[some], None if positions is None else positions[some])
    return result


def take(tokens: Tensor, positions: Tensor | None) -> Tensor:
    """``(rows, tokens, width)`` at positions ``(rows, some)``, or all."""
    if positions is None:
        return tokens
    return tokens.gather(1, positions[..., None].expand(*positions.shape, tokens.shape[-1]))


class _Blocks(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, present: Tensor | None, settings: Any, *parameters: Tensor) -> Tensor:
        ctx.work = _Pass(x, parameters, present, settings, keeps=True)
        ctx.save_for_backward(*parameters)
        return ctx.work.forward(x)

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
        *,
        keeps: bool,
    ) -> None:
        self.heads, self.causal, self.dropout, self.eps = settings
        self.keeps, self.parameters = keeps, [one.detach() for one in parameters]
        self.arrays = [one.numpy() for one in self.parameters]
        self.rows, self.n, self.width = x.shape
        self.lists = -(-self.rows // LANES) * LANES
        self.depth = len(parameters) // PER_BLOCK
        tokens, width, kept = self.n * self.lists, self.width, self.depth if keeps else 1
        self.tokens = tokens
        # Streams and their norms by half block, the rest by block; without keeping, the same over and over.
        self.streams = x.new_empty((2 * self.depth + 1 if keeps else 1, tokens, width))
        self.normed = x.new_empty((2 * kept if keeps else 1, tokens, width))
        self.moments = x.new_empty((2 * kept if keeps else 1, 2, tokens))
        self.qkv = x.new_empty((kept, 3 * width, tokens))
        self.mixed = x.new_empty((kept, width, tokens))
        self.slope = x.new_empty((kept, tokens, 4 * width))
        self.active = x.new_empty((kept, tokens, 4 * width))
        self.change = x.new_empty((tokens, width))
        self.noise: list[Tensor | None] = [None] * (2 * self.depth)
        names = ("streams", "normed", "moments", "qkv", "mixed", "slope", "active", "change")
        self.array = {name: getattr(self, name).numpy() for name in names}
        self.hidden = np.zeros((self.n, self.lists if present is not None else 0), np.bool_)
        if present is not None:
            self.hidden[:, : self.rows] = ~present.detach().T.numpy()
        self.masked = present is not None

    def at(self, index: int) -> int:
        return index if self.keeps else 0

    def forward(self, x: Tensor, positions: Tensor | None = None) -> Tensor:
        stream = self.streams[0].view(self.n, self.lists, self.width)
        stream[:, : self.rows] = x.detach().transpose(0, 1)
        if self.rows < self.lists:
            stream[:, self.rows :] = 0
        self._close(-1)
        for block in range(self.depth):
            _, _, w_in, b_in, w_out, _, _, _, w_up, b_up, w_down, _ = self._of(block)
            first, second, i = self.at(2 * block), self.at(2 * block + 1), self.at(block)
            torch.addmm(b_in[:, None], w_in, self.normed[first].T, out=self.qkv[i])
            self._attention(i)
            if positions is not None and block == self.depth - 1 and self.dropout == 0:
                return self._end(positions)
            torch.mm(self.mixed[i].T, w_out.T, out=self.change)
            self._close(2 * block)
            torch.addmm(b_up, self.normed[second], w_up.T, out=self.slope[i])
            self._gelu(i)
            torch.mm(self.active[i], w_down.T, out=self.change)
            self._close(2 * block + 1)
        last = self.streams[-1].view(self.n, self.lists, self.width)[:, : self.rows]
        return take(last.transpose(0, 1), positions).contiguous()

    def _end(self, positions: Tensor) -> Tensor:
        """The rest of the last block after its attention, for the tokens at ``positions (rows, some)``."""
        token = (positions * self.lists + torch.arange(self.rows)[:, None]).view(-1)
        x, mixed = self.streams[0].index_select(0, token), self.mixed[0].index_select(1, token)
        _, _, _, _, w_out, _, _, _, w_up, b_up, w_down, _ = self._of(self.depth - 1)
        b_out, gain, shift, b_down = (self.arrays[PER_BLOCK * (self.depth - 1) + i] for i in (5, 6, 7, 11))
        change, normed, (means, scales) = mixed.T @ w_out.T, torch.empty_like(x), x.new_empty((2, len(x)))
        stream, spare = x.numpy(), (normed.numpy(), means.numpy(), scales.numpy())
        rest = (gain, shift, self.eps)
        kernels().close(stream, change.numpy(), b_out, stream, True, False, stream, *rest, True, *spare)
        wide = torch.addmm(b_up, normed, w_up.T)
        active = torch.empty_like(wide)
        kernels().gelu(wide.numpy().reshape(-1), active.numpy().reshape(-1), False)
        change = active @ w_down.T
        kernels().close(stream, change.numpy(), b_down, stream, True, False, stream, *rest, False, *spare)
        return x.view(*positions.shape, self.width)

    def backward(self, gradient: Tensor) -> tuple[Tensor, list[Tensor]]:
        width, tokens = self.width, self.tokens
        arriving = gradient.new_zeros((self.n, self.lists, width))
        arriving[:, : self.rows] = gradient.transpose(0, 1)
        arriving = arriving.view(tokens, width)
        of_active, of_qkv = self.active.new_empty((tokens, 4 * width)), torch.empty_like(self.qkv[0])
        of_mixed, of_normed = self.mixed.new_empty((width, tokens)), torch.empty_like(arriving)
        made: list[list[Tensor]] = [[] for _ in range(self.depth)]
        for block in reversed(range(self.depth)):
            gain, _, w_in, _, w_out, _, mlp_gain, _, w_up, _, w_down, _ = self._of(block)
            change = self._dropped(arriving, 2 * block + 1)
            of_down, of_down_bias = torch.mm(change.T, self.active[block]), change.sum(0)
            torch.mm(change, w_down, out=of_active)
            torch.mul(of_active, self.slope[block], out=of_active)
            of_up, of_up_bias = torch.mm(of_active.T, self.normed[2 * block + 1]), of_active.sum(0)
            torch.mm(of_active, w_up, out=of_normed)
            mlp = self._through_norm(of_normed, 2 * block + 1, mlp_gain, arriving)
            change = self._dropped(arriving, 2 * block)
            of_out, of_out_bias = torch.mm(change.T, self.mixed[block].T), change.sum(0)
            torch.mm(w_out.T, change.T, out=of_mixed)
            self._through_attention(of_mixed, block, of_qkv)
            of_in, of_in_bias = torch.mm(of_qkv, self.normed[2 * block]), of_qkv.sum(1)
            torch.mm(of_qkv.T, w_in, out=of_normed)
            first = self._through_norm(of_normed, 2 * block, gain, arriving)
            made[block] = [*first, of_in, of_in_bias, of_out, of_out_bias]
            made[block] += [*mlp, of_up, of_up_bias, of_down, of_down_bias]
        of_x = arriving.view(self.n, self.lists, width)[:, : self.rows].transpose(0, 1)
        return of_x.contiguous(), [one for block in made for one in block]

    def _of(self, block: int) -> list[Tensor]:
        return self.parameters[PER_BLOCK * block : PER_BLOCK * (block + 1)]

    def _close(self, half: int) -> None:
        """End a half block, -1 for the beginning of the first, and norm the stream for the next."""
        array, norms = self.array, half + 1 < 2 * self.depth
        x, out = array["streams"][self.at(max(half, 0))], array["streams"][self.at(half + 1)]
        following = self.at(half + 1) if norms else 0
        normed, (means, scales) = array["normed"][following], array["moments"][following]
        gain, shift = self.arrays[6 * (half + 1) : 6 * (half + 1) + 2] if norms else (means, means)
        bias = self.arrays[6 * half + 5] if half >= 0 else gain
        noise, change = out, array["change"]
        if half >= 0 and self.dropout > 0:
            shape = (self.rows, self.n, self.width)
            drawn = self.change.new_empty(shape).bernoulli_(1 - self.dropout).div_(1 - self.dropout)
            spread = self.change.new_zeros((self.n, self.lists, self.width))
            spread[:, : self.rows] = drawn.transpose(0, 1)
            self.noise[half] = spread.view(self.tokens, self.width)
            noise = spread.view(self.tokens, self.width).numpy()
        adds, drops = half >= 0, half >= 0 and self.dropout > 0
        in_threads(
            lambda a, b: kernels().close(
                x[a:b], change[a:b], bias, noise[a:b], adds, drops, out[a:b],
                gain, shift, self.eps, norms, normed[a:b], means[a:b], scales[a:b],
            ),
            self.tokens,
            out.size,
        )  # fmt: skip

    def _gelu(self, block: int) -> None:
        slope, active = self.array["slope"][block].reshape(-1), self.array["active"][block].reshape(-1)
        in_threads(lambda a, b: kernels().gelu(slope[a:b], active[a:b], self.keeps), slope.size, slope.size)

    def _attention(self, block: int) -> None:
        shape = (self.heads, -1, self.n, self.lists)
        qkv = self.array["qkv"][block].reshape(3, *shape)
        out = self.array["mixed"][block].reshape(shape)
        in_threads(
            lambda a, b: kernels().attention(qkv, self.hidden, self.masked, self.causal, a, b, out),
            self.lists // LANES,
            qkv.size,
        )

    def _through_attention(self, of_mixed: Tensor, block: int, of_qkv: Tensor) -> None:
        shape = (self.heads, -1, self.n, self.lists)
        qkv, made = self.array["qkv"][block].reshape(3, *shape), of_qkv.numpy().reshape(3, *shape)
        arriving = of_mixed.numpy().reshape(shape)
        in_threads(
            lambda a, b: kernels().through_attention(
                arriving, qkv, self.hidden, self.masked, self.causal, a, b, made
            ),
            self.lists // LANES,
            qkv.size,
        )

    def _dropped(self, arriving: Tensor, half: int) -> Tensor:
        """The gradient of what a half block adds, from that of the stream."""
        noise = self.noise[half]
        return arriving if noise is None else arriving * noise

    def _through_norm(
        self, of_normed: Tensor, half: int, gain: Tensor, arriving: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Add to the arriving gradient; the gradients of gain and shift."""
        of_shift = of_normed.sum(0)
        x, (means, scales) = self.array["streams"][half], self.array["moments"][half]
        back, of_x, gains = of_normed.numpy(), arriving.numpy(), gain.numpy()
        in_threads(
            lambda a, b: kernels().through_norm(back[a:b], x[a:b], means[a:b], scales[a:b], gains, of_x[a:b]),
            self.tokens,
            back.size,
        )
        return of_normed.sum(0), of_shift


def kernels() -> Any:
    from factorank.models import cpu_kernels

    return cpu_kernels


def in_threads(call: Callable[[int, int], Any], count: int, numbers: int) -> None:
    """Call with bounds that cover 0..count, on as many of torch's threads as the numbers are worth."""
    parts = min(torch.get_num_threads(), count, max(numbers // GRAIN, 1))
    if parts == 1:
        call(0, count)
        return
    from factorank.kernels.cpu import _pool

    spans = list(itertools.pairwise(count * i // parts for i in range(parts + 1)))
    rest = [_pool().submit(call, *span) for span in spans[1:]]
    call(*spans[0])
    for one in rest:
        one.result()
