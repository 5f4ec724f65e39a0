"""A whole stack of transformer blocks as one operator, on GPUs and in bfloat16: see ``fused_kernels``.

Five launches a block forward, four backward, and four matrix products for the gradients of its weights, which
run beside the backward kernels of the blocks below on a stream of their own. Worth it where a block is
narrow and its lists are short, so that the usual kernels spend their time on memory and on being launched.
"""

import functools
from collections.abc import Sequence
from typing import Any

import torch
import triton
from torch import Tensor

from factorank.kernels.gpu import attention as short_attention
from factorank.kernels.gpu import block_kernels as kernels

PER_BLOCK = 12
"""Parameters of a block: gain, shift, weight, bias, weight, bias of the attention half; then of the MLP."""
NARROW = 5
TILE, COLUMNS, CHUNK, WARPS, STAGES = 64, 64, 64, 4, 3
"""Of a tile of a product: its tokens, columns, how much of the inner dimension is there at once, warps."""
ROW_TILE, ROW_WARPS = 32, 2
"""The same where a tile is as wide as the stream."""


def list_tile(n: int) -> tuple[int, int]:
    """Tokens of a tile of whole lists of n, and the warps that share it."""
    return (16, 4) if n <= 5 else (32, 2) if n <= 10 else (64, 4)


def apply(
    x: Tensor,
    parameters: Sequence[Tensor],
    present: Tensor | None,
    *,
    heads: int,
    causal: bool,
    dropout: float,
    eps: float = 1e-5,
) -> Tensor:
    """Blocks of ``(rows, tokens, width)``; ``parameters`` are PER_BLOCK for each block.

    ``present`` is bool ``(rows, tokens)``: the tokens that may be looked at.
    """
    seeds = None
    if dropout > 0:
        count = len(parameters) // 6
        seeds = torch.randint(2**31 - 1, (count,), device=x.device, dtype=torch.int64)
    save = torch.is_grad_enabled() and (x.requires_grad or any(one.requires_grad for one in parameters))
    settings = (heads, causal, 1.0 - dropout, eps)
    made: Tensor = _Blocks.apply(x, present, seeds, settings, save, *parameters)
    return made


def _forward(
    x: Tensor,
    parameters: list[Tensor],
    present: Tensor | None,
    seeds: Tensor | None,
    heads: int,
    causal: bool,
    keep: float,
    eps: float,
    save: bool,
) -> list[Tensor]:
    """The result, and what the backward pass needs: streams, normed streams, qkv, mixed, active, weights."""
    rows, n, width = x.shape
    tokens, depth = rows * n, len(parameters) // PER_BLOCK
    narrow, matrices = narrowed(parameters)
    made = [x.new_empty(shape, dtype=dtype) for shape, dtype in _kept(tokens, width, depth, save)]
    result = torch.empty_like(x, memory_format=torch.contiguous_format)
    if tokens == 0:
        return [result, *made, narrow]
    streams, normed, qkv, mixed, active = made
    now = Launch(x, tokens, heads, causal, keep, eps, present)
    streams[0].copy_(x.view(tokens, width))
    now.norm(streams[0], normed[0], *parameters[:2])
    for block in range(depth):
        at, i = (2 * block, block) if save else (0, 0)
        _, _, _, _, _, b_out, mlp_gain, mlp_shift, _, b_up, _, b_down = of_block(parameters, block)
        w_in, w_out, w_up, w_down, b_in = matrices[NARROW * block : NARROW * (block + 1)]
        torch.addmm(b_in, normed[at], w_in.T, out=qkv[i])
        now.attention(qkv[i], mixed[i])
        seed = None if seeds is None else seeds[2 * block :]
        now.close(
            mixed[i], streams[at], streams[at + 1], w_out, b_out, seed, (normed[at + 1], mlp_gain, mlp_shift)
        )
        now.into_mlp(normed[at + 1], active[i], w_up, b_up)
        seed = None if seeds is None else seeds[2 * block + 1 :]
        target, following = result, None
        if block < depth - 1:
            above = at + 2 if save else 0
            gain, shift = of_block(parameters, block + 1)[:2]
            target, following = streams[above], (normed[above], gain, shift)
        now.close(active[i], streams[at + 1], target, w_down, b_down, seed, following)
    return [result, *made, narrow]


def _backward(
    gradient: Tensor,
    parameters: list[Tensor],
    present: Tensor | None,
    seeds: Tensor | None,
    saved: list[Tensor],
    heads: int,
    causal: bool,
    keep: float,
    eps: float,
) -> list[Tensor]:
    """The gradients of x and of the parameters."""
    streams, normed, qkv, mixed, active, narrow = saved
    rows, n, width = gradient.shape
    tokens, depth = rows * n, len(parameters) // PER_BLOCK
    if tokens == 0:
        return [torch.zeros_like(one) for one in (gradient, *parameters)]
    matrices = _split(narrow, _wide(parameters))
    now = Launch(gradient, tokens, heads, causal, keep, eps, present)
    # By half block: gradients of gain and shift, and of the bias that the half ends with.
    sums = gradient.new_empty((2 * depth, now.row_tiles, 3 * width))
    up_sums = gradient.new_empty((depth, now.tiles, 4 * width))
    in_sums = gradient.new_empty((depth, now.list_tiles, 3 * width))
    wide = functools.partial(torch.empty, dtype=torch.bfloat16, device=gradient.device)
    arriving, of_change = gradient.contiguous().view(tokens, width), wide((tokens, width))
    now.begin_backward(arriving, of_change, sums[-1], None if seeds is None else seeds[-1:])
    main, side = torch.cuda.current_stream(), _side_stream(gradient.device)
    products: list[Tensor] = [gradient] * (4 * depth)
    held: list[Any] = []  # nothing that the side stream reads may be given away before it is done
    for block in reversed(range(depth)):
        gain, _, _, _, _, _, mlp_gain, _, _, b_up, _, _ = of_block(parameters, block)
        w_in, w_out, w_up, w_down, _ = matrices[NARROW * block : NARROW * (block + 1)]
        at = 2 * block
        of_up, middle, of_mixed = wide((tokens, 4 * width)), torch.empty_like(arriving), wide((tokens, width))
        now.through_gelu(of_change, normed[at + 1], of_up, up_sums[block], w_up, b_up, w_down)
        below = (of_mixed, sums[at], None if seeds is None else seeds[at:])
        now.through_norm(of_up, arriving, middle, streams[at + 1], w_up, mlp_gain, sums[at + 1], below)
        side.wait_stream(main)
        with torch.cuda.stream(side):
            products[4 * block + 2] = _product(of_up, normed[at + 1])
            products[4 * block + 3] = _product(of_change, active[block])
        held += [of_change, of_up, of_mixed, middle]
        of_qkv, arriving, of_change = (
            wide((tokens, 3 * width)),
            torch.empty_like(middle),
            wide((tokens, width)),
        )
        now.through_attention(of_mixed, qkv[block], of_qkv, in_sums[block], w_out)
        below = (of_change, sums[at - 1], None if seeds is None else seeds[at - 1 :])
        now.through_norm(
            of_qkv, middle, arriving, streams[at], w_in, gain, sums[at], below if block else None
        )
        side.wait_stream(main)
        with torch.cuda.stream(side):
            products[4 * block] = _product(of_qkv, normed[at])
            products[4 * block + 1] = _product(of_mixed, mixed[block])
        held += [of_qkv]
    up_sums, in_sums = up_sums.sum(1), in_sums.sum(1)
    sums = sums.sum(1)
    main.wait_stream(side)
    gradients = [arriving.view(rows, n, width)]
    for block in range(depth):
        w_in, w_out, w_up, w_down = products[4 * block : 4 * block + 4]
        of_gain, of_shift, of_out = sums[2 * block].split(width)
        gradients += [of_gain, of_shift, w_in, in_sums[block], w_out, of_out]
        of_gain, of_shift, of_down = sums[2 * block + 1].split(width)
        gradients += [of_gain, of_shift, w_up, up_sums[block], w_down, of_down]
    return gradients


class Launch:
    """The kernels for lists of one shape."""

    def __init__(
        self,
        x: Tensor,
        tokens: int,
        heads: int,
        causal: bool,
        keep: float,
        eps: float,
        present: Tensor | None,
    ) -> None:
        rows, n, self.width = x.shape
        head = self.width // heads
        block, self.list_warps = list_tile(n)
        self.heads, self.tokens, self.eps, self.scale = heads, tokens, eps, head**-0.5
        self.keep, self.any = keep, x
        self.present = x if present is None else present
        self.tiles, self.row_tiles = triton.cdiv(tokens, TILE), triton.cdiv(tokens, ROW_TILE)
        self.list_tiles = triton.cdiv(rows, block // n)
        self.lists = {"N": n, "WIDTH": self.width, "HEAD": head, "BLOCK": block, "CAUSAL": causal}
        self.lists |= {"MASKED": present is not None}

    def norm(self, x: Tensor, normed: Tensor, gain: Tensor, shift: Tensor) -> None:
        kernels.norm[(self.row_tiles,)](
            x,
            normed,
            gain,
            shift,
            self.tokens,
            self.eps,
            WIDTH=self.width,
            BLOCK=ROW_TILE,
            num_warps=ROW_WARPS,
        )

    def into_mlp(self, h: Tensor, y: Tensor, w: Tensor, b: Tensor) -> None:
        out = w.shape[0]
        kernels.into_mlp[(self.tiles, out // COLUMNS)](
            h, y, w, b, self.tokens, WIDTH=self.width, OUT=out, BLOCK=TILE, COLUMNS=COLUMNS, CHUNK=CHUNK,
            num_warps=WARPS, num_stages=STAGES,
        )  # fmt: skip

    def attention(self, qkv: Tensor, mixed: Tensor) -> None:
        short_attention._forward[(self.list_tiles, self.heads)](
            qkv, self.present, mixed, self.tokens, self.scale, **self.lists, PRECISION="ieee",
            num_warps=self.list_warps,
        )  # fmt: skip

    def close(
        self,
        a: Tensor,
        x: Tensor,
        y: Tensor,
        w: Tensor,
        b: Tensor,
        seed: Tensor | None,
        following: tuple[Tensor, Tensor, Tensor] | None,
    ) -> None:
        normed, gain, shift = following or (y, b, b)
        kernels.close[(self.row_tiles,)](
            a, x, y, normed, w, b, gain, shift, self.any if seed is None else seed, self.tokens, self.eps,
            WIDTH=self.width, K=w.shape[1], BLOCK=ROW_TILE, CHUNK=CHUNK, KEEP=self.keep,
            NORM=following is not None, num_warps=ROW_WARPS, num_stages=STAGES,
        )  # fmt: skip

    def begin_backward(self, of_y: Tensor, of_change: Tensor, sums: Tensor, seed: Tensor | None) -> None:
        kernels.begin_backward[(self.row_tiles,)](
            of_y, of_change, sums, self.any if seed is None else seed, self.tokens, WIDTH=self.width,
            BLOCK=ROW_TILE, num_warps=ROW_WARPS, KEEP=self.keep,
        )  # fmt: skip

    def through_gelu(
        self,
        of_change: Tensor,
        h: Tensor,
        of_up: Tensor,
        sums: Tensor,
        w_up: Tensor,
        b_up: Tensor,
        w_down: Tensor,
    ) -> None:
        hidden = w_up.shape[0]
        kernels.through_gelu[(self.tiles, hidden // COLUMNS)](
            of_change, h, of_up, sums, w_up, b_up, w_down, self.tokens, WIDTH=self.width, HIDDEN=hidden,
            BLOCK=TILE, COLUMNS=COLUMNS, CHUNK=CHUNK, num_warps=WARPS, num_stages=STAGES,
        )  # fmt: skip

    def through_attention(
        self, of_change: Tensor, qkv: Tensor, of_qkv: Tensor, sums: Tensor, w_out: Tensor
    ) -> None:
        kernels.through_attention[(self.list_tiles, self.heads)](
            of_change, qkv, of_qkv, sums, w_out, self.present, self.tokens, self.scale, **self.lists,
            CHUNK=self.width, num_stages=1, num_warps=self.list_warps,
        )  # fmt: skip

    def through_norm(
        self,
        of_made: Tensor,
        of_y: Tensor,
        of_x: Tensor,
        x: Tensor,
        w: Tensor,
        gain: Tensor,
        sums: Tensor,
        below: tuple[Tensor, Tensor, Tensor | None] | None,
    ) -> None:
        of_change, sums_below, seed = below or (of_x, sums, None)
        kernels.through_norm[(self.row_tiles,)](
            of_made, of_y, of_x, of_change, x, w, gain, self.any if seed is None else seed, sums, sums_below,
            self.tokens, self.eps, WIDTH=self.width, K=w.shape[0], BLOCK=ROW_TILE, CHUNK=CHUNK,
            KEEP=self.keep,
            BELOW=below is not None, num_warps=ROW_WARPS, num_stages=STAGES,
        )  # fmt: skip


def _kept(tokens: int, width: int, depth: int, save: bool) -> list[tuple[tuple[int, int, int], torch.dtype]]:
    """Shapes and types of what a forward pass makes on its way; one block's worth if it need not be kept."""
    kept = depth if save else 1
    widths = (3 * width, width, 4 * width)
    halves = [((2 * kept, tokens, width), dtype) for dtype in (torch.float32, torch.bfloat16)]
    return halves + [((kept, tokens, wide), torch.bfloat16) for wide in widths]


def of_block(parameters: list[Tensor], block: int) -> list[Tensor]:
    """The parameters of one block."""
    return parameters[PER_BLOCK * block : PER_BLOCK * (block + 1)]


def narrowed(parameters: list[Tensor]) -> tuple[Tensor, list[Tensor]]:
    """What the products need in bfloat16, in one tensor and as views: NARROW for each block."""
    wide = _wide(parameters)
    narrow = torch.empty(sum(one.numel() for one in wide), dtype=torch.bfloat16, device=wide[0].device)
    views = _split(narrow, wide)
    torch._foreach_copy_(views, wide)
    return narrow, views


def _wide(parameters: list[Tensor]) -> list[Tensor]:
    """The four weights of each block, and the bias of the first."""
    blocks = [of_block(parameters, block) for block in range(len(parameters) // PER_BLOCK)]
    return [block[i] for block in blocks for i in (2, 4, 8, 10, 3)]


def _split(narrow: Tensor, wide: list[Tensor]) -> list[Tensor]:
    parts = narrow.split([one.numel() for one in wide])
    return [part.view(one.shape) for part, one in zip(parts, wide, strict=True)]


def _product(a: Tensor, b: Tensor) -> Tensor:
    """``a^T b`` of narrow ``(tokens, …)``, summed and left in float32."""
    return torch.mm(a.T, b, out_dtype=torch.float32)


@functools.cache
def _side_stream(device: torch.device) -> torch.cuda.Stream:
    return torch.cuda.Stream(device)


_library = torch.library.Library("factorank", "FRAGMENT")
_settings = "int heads, bool causal, float keep, float eps"
_library.define(
    f"blocks(Tensor x, Tensor[] parameters, Tensor? present, Tensor? seeds, {_settings}, bool save)"
    " -> Tensor[]"
)
_library.define(
    "blocks_backward(Tensor gradient, Tensor[] parameters, Tensor? present, Tensor? seeds, Tensor[] saved,"
    f" {_settings}) -> Tensor[]"
)
_library.impl("blocks", _forward, "CUDA")
_library.impl("blocks_backward", _backward, "CUDA")


@torch.library.register_fake("factorank::blocks", lib=_library)
def _forward_shapes(x, parameters, present, seeds, heads, causal, keep, eps, save):  # type: ignore[no-untyped-def]
    rows, n, width = x.shape
    kept = _kept(rows * n, width, len(parameters) // PER_BLOCK, save)
    weights = sum(one.numel() for one in _wide(parameters))
    return [
        x.new_empty(x.shape),
        *(x.new_empty(shape, dtype=dtype) for shape, dtype in kept),
        x.new_empty((weights,), dtype=torch.bfloat16),
    ]


@torch.library.register_fake("factorank::blocks_backward", lib=_library)
def _backward_shapes(gradient, parameters, present, seeds, saved, heads, causal, keep, eps):  # type: ignore[no-untyped-def]
    return [one.new_empty(one.shape) for one in (gradient, *parameters)]


class _Blocks(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, present, seeds, settings, save, *parameters):  # type: ignore[no-untyped-def]
        made = torch.ops.factorank.blocks(x, list(parameters), present, seeds, *settings, save)
        ctx.settings = settings
        ctx.save_for_backward(present, seeds, *made[1:], *parameters)
        return made[0]

    @staticmethod
    def backward(ctx, gradient):  # type: ignore[no-untyped-def]
        present, seeds, *rest = ctx.saved_tensors
        saved, parameters = rest[:6], rest[6:]
        made = torch.ops.factorank.blocks_backward(
            gradient, list(parameters), present, seeds, list(saved), *ctx.settings
        )
        return made[0], None, None, None, None, *made[1:]
