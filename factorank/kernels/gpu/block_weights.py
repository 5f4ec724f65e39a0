"""The parameters of a stack of transformer blocks, as the kernels take them."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor


class BlockWeights(NamedTuple):
    """The parameters of one block, in the order of :class:`factorank.models.transformer.Block`."""

    attention_gain: Tensor
    attention_shift: Tensor
    qkv: Tensor
    qkv_bias: Tensor
    out: Tensor
    out_bias: Tensor
    mlp_gain: Tensor
    mlp_shift: Tensor
    up: Tensor
    up_bias: Tensor
    down: Tensor
    down_bias: Tensor


class NarrowWeights(NamedTuple):
    """What the matrix products of one block read in bfloat16."""

    qkv: Tensor
    out: Tensor
    up: Tensor
    down: Tensor
    qkv_bias: Tensor


def by_block(parameters: Sequence[Tensor]) -> list[BlockWeights]:
    """The parameters of all blocks, which lie one after the other."""
    size = len(BlockWeights._fields)
    return [BlockWeights(*parameters[i : i + size]) for i in range(0, len(parameters), size)]


def narrow_size(blocks: list[BlockWeights]) -> int:
    """The number of elements of :func:`narrowed`."""
    return sum(weight.numel() for block in blocks for weight in _read_by_products(block))


def narrowed(blocks: list[BlockWeights]) -> Tensor:
    """What the products of all blocks read, in one bfloat16 tensor."""
    narrow = torch.empty(narrow_size(blocks), dtype=torch.bfloat16, device=blocks[0].qkv.device)
    views = [view for weights in narrow_by_block(narrow, blocks) for view in weights]
    torch._foreach_copy_(views, [weight for block in blocks for weight in _read_by_products(block)])
    return narrow


def narrow_by_block(narrow: Tensor, blocks: list[BlockWeights]) -> list[NarrowWeights]:
    """The same as views, for each block."""
    wide = [weight for block in blocks for weight in _read_by_products(block)]
    parts = narrow.split([weight.numel() for weight in wide])
    views = [part.view(weight.shape) for part, weight in zip(parts, wide, strict=True)]
    size = len(NarrowWeights._fields)
    return [NarrowWeights(*views[i : i + size]) for i in range(0, len(views), size)]


def _read_by_products(block: BlockWeights) -> NarrowWeights:
    return NarrowWeights(block.qkv, block.out, block.up, block.down, block.qkv_bias)
