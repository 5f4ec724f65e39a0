"""A whole stack of transformer blocks as one operator, on GPUs and in bfloat16: see ``block_kernels``.

Five launches a block forward and four backward; then four products of stacked matrices for the gradients of
the weights of all blocks, which fill the GPU better than a product for each. It is faster where a block is
narrow and its lists are short, so that the usual kernels spend their time on memory and on being launched.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from factorank.kernels.derivatives import first_derivative_only
from factorank.kernels.gpu.block_launches import (
    BlockWeights,
    Launches,
    by_block,
    narrow_size,
    narrowed,
    with_narrow,
)


def apply(
    x: Tensor,
    parameters: Sequence[Tensor],
    present: Tensor | None,
    *,
    heads: int,
    causal: bool,
    dropout: float,
) -> Tensor:
    """Blocks of ``(rows, tokens, width)``; ``parameters`` are those of ``BlockWeights`` for each block.

    ``present`` is bool ``(rows, tokens)``: the keys that may be attended to.
    """
    count = 2 * len(by_block(parameters))
    seeds = torch.randint(2**31 - 1, (count,), device=x.device) if dropout > 0 else None
    save = torch.is_grad_enabled() and (x.requires_grad or any(weight.requires_grad for weight in parameters))
    settings = (heads, causal, 1.0 - dropout)
    y: Tensor = _Blocks.apply(x, present, seeds, settings, save, *parameters)
    return y


def _forward(
    x: Tensor,
    parameters: list[Tensor],
    present: Tensor | None,
    seeds: Tensor | None,
    heads: int,
    causal: bool,
    keep: float,
    save: bool,
) -> list[Tensor]:
    """The result, and what the backward pass needs: the tensors of ``_kept`` and the narrow weights."""
    rows, n, width = x.shape
    tokens, blocks = rows * n, by_block(parameters)
    narrow = narrowed(blocks)
    kept = [x.new_empty(shape, dtype=dtype) for shape, dtype in _kept(tokens, width, len(blocks), save)]
    result = torch.empty_like(x, memory_format=torch.contiguous_format)
    if tokens == 0:
        return [result, *kept, narrow]
    streams, normed, qkv, mixed, active = kept
    launch = Launches(x, tokens, heads, causal, keep, present, seeds)
    streams[0].copy_(x.view(tokens, width))
    launch.norm(streams[0], normed[0], blocks[0].attention_gain, blocks[0].attention_shift)
    for i, block in enumerate(with_narrow(blocks, narrow)):
        half, at = (2 * i, i) if save else (0, 0)
        torch.addmm(block.qkv_bias, normed[half], block.qkv.T, out=qkv[at])
        launch.attention(qkv[at], mixed[at])
        launch.add_to_stream(
            mixed[at], streams[half], streams[half + 1], block.out, block.out_bias, 2 * i,
            (normed[half + 1], block.mlp_gain, block.mlp_shift),
        )  # fmt: skip
        launch.up_gelu(normed[half + 1], active[at], block.up, block.up_bias)
        target, following = result, None
        if i < len(blocks) - 1:
            above, next_block = half + 2 if save else 0, blocks[i + 1]
            target = streams[above]
            following = (normed[above], next_block.attention_gain, next_block.attention_shift)
        launch.add_to_stream(
            active[at], streams[half + 1], target, block.down, block.down_bias, 2 * i + 1,
            following,
        )  # fmt: skip
    return [result, *kept, narrow]


def _backward(
    grad_y: Tensor,
    parameters: list[Tensor],
    present: Tensor | None,
    seeds: Tensor | None,
    saved: list[Tensor],
    heads: int,
    causal: bool,
    keep: float,
) -> list[Tensor]:
    """The gradients of x and of the parameters."""
    streams, normed, qkv, mixed, active, narrow = saved
    rows, n, width = grad_y.shape
    tokens, blocks = rows * n, with_narrow(by_block(parameters), narrow)
    depth = len(blocks)
    if tokens == 0:
        return [torch.zeros_like(tensor) for tensor in (grad_y, *parameters)]
    launch = Launches(grad_y, tokens, heads, causal, keep, present, seeds)
    # By half block: gradients of gain and shift, and of the bias that the half ends with.
    sums = grad_y.new_empty((2 * depth, launch.row_tiles, 3 * width))
    up_sums = grad_y.new_empty((depth, launch.tiles, 4 * width))
    qkv_sums = grad_y.new_empty((depth, launch.list_tiles, 3 * width))
    # By block: gradients of what the halves end with, before their dropouts; of the GELU's input; of qkv.
    grad_mixed, grad_change, grad_up, grad_qkv = (
        torch.empty((depth, tokens, wide * width), dtype=torch.bfloat16, device=grad_y.device)
        for wide in (1, 1, 4, 3)
    )
    grad_stream, grad_middle = grad_y.contiguous().view(tokens, width), grad_y.new_empty((tokens, width))
    launch.dropout_backward(grad_stream, grad_change[-1], sums[-1], -1)
    for i in reversed(range(depth)):
        block, half = blocks[i], 2 * i
        launch.gelu_backward(
            grad_change[i], normed[half + 1], grad_up[i], up_sums[i], block.up, block.up_bias, block.down
        )
        launch.norm_backward(
            grad_up[i], grad_stream, grad_middle, streams[half + 1], block.up, block.mlp_gain, sums[half + 1],
            (grad_mixed[i], sums[half], half),
        )  # fmt: skip
        launch.attention_backward(grad_mixed[i], qkv[i], grad_qkv[i], qkv_sums[i], block.out)
        grad_stream = torch.empty_like(grad_middle) if i == depth - 1 else grad_stream  # not the caller's
        launch.norm_backward(
            grad_qkv[i], grad_middle, grad_stream, streams[half], block.qkv, block.attention_gain, sums[half],
            (grad_change[i - 1], sums[half - 1], half - 1) if i else None,
        )  # fmt: skip
    matrices = [
        _products(grad_qkv, normed[::2]), _products(grad_mixed, mixed),
        _products(grad_up, normed[1::2]), _products(grad_change, active),
    ]  # fmt: skip
    sums, up_sums, qkv_sums = sums.sum(1), up_sums.sum(1), qkv_sums.sum(1)
    gradients = [grad_stream.view(rows, n, width)]
    for i, (qkv_weight, out, up, down) in enumerate(zip(*matrices, strict=True)):
        gain, shift, out_bias = sums[2 * i].split(width)
        mlp_gain, mlp_shift, down_bias = sums[2 * i + 1].split(width)
        gradients += BlockWeights(
            gain, shift, qkv_weight, qkv_sums[i], out, out_bias,
            mlp_gain, mlp_shift, up, up_sums[i], down, down_bias,
        )  # fmt: skip
    return gradients


def _kept(tokens: int, width: int, depth: int, save: bool) -> list[tuple[tuple[int, int, int], torch.dtype]]:
    """Shapes and types of what a forward pass stores; one block's worth if no backward pass follows.

    By half block: streams and normed streams. By block: queries, keys and values; mixed values; what comes
    out of the GELU.
    """
    kept = depth if save else 1
    widths = (3 * width, width, 4 * width)
    halves = [((2 * kept, tokens, width), dtype) for dtype in (torch.float32, torch.bfloat16)]
    return halves + [((kept, tokens, wide), torch.bfloat16) for wide in widths]


def _products(a: Tensor, b: Tensor) -> Tensor:
    """``a^T b`` of each block's narrow ``(depth, tokens, …)``, summed and left in float32."""
    return torch.bmm(a.mT, b, out_dtype=torch.float32)


_library = torch.library.Library("factorank", "FRAGMENT")
_settings = "int heads, bool causal, float keep"
_library.define(
    f"blocks(Tensor x, Tensor[] parameters, Tensor? present, Tensor? seeds, {_settings}, bool save)"
    " -> Tensor[]"
)
_library.define(
    "blocks_backward(Tensor grad_y, Tensor[] parameters, Tensor? present, Tensor? seeds, Tensor[] saved,"
    f" {_settings}) -> Tensor[]"
)
_library.impl("blocks", _forward, "CUDA")
_library.impl("blocks_backward", _backward, "CUDA")


@torch.library.register_fake("factorank::blocks", lib=_library)
def _forward_shapes(x, parameters, present, seeds, heads, causal, keep, save):  # type: ignore[no-untyped-def]
    rows, n, width = x.shape
    blocks = by_block(parameters)
    return [
        x.new_empty(x.shape),
        *(x.new_empty(shape, dtype=dtype) for shape, dtype in _kept(rows * n, width, len(blocks), save)),
        x.new_empty((narrow_size(blocks),), dtype=torch.bfloat16),
    ]


@torch.library.register_fake("factorank::blocks_backward", lib=_library)
def _backward_shapes(grad_y, parameters, present, seeds, saved, heads, causal, keep):  # type: ignore[no-untyped-def]
    return [tensor.new_empty(tensor.shape) for tensor in (grad_y, *parameters)]


class _Blocks(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, present, seeds, settings, save, *parameters):  # type: ignore[no-untyped-def]
        y, *kept = torch.ops.factorank.blocks(x, list(parameters), present, seeds, *settings, save)
        ctx.settings, ctx.kept = settings, len(kept)
        ctx.save_for_backward(present, seeds, *kept, *parameters)
        return y

    @staticmethod
    @first_derivative_only
    def backward(ctx, grad_y):  # type: ignore[no-untyped-def]
        present, seeds, *rest = ctx.saved_tensors
        kept, parameters = rest[: ctx.kept], rest[ctx.kept :]
        grad_x, *grads = torch.ops.factorank.blocks_backward(
            grad_y, list(parameters), present, seeds, list(kept), *ctx.settings
        )
        return grad_x, None, None, None, None, *grads
