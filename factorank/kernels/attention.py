"""Attention, in one place: whatever is faster for a shape goes behind these functions."""

import importlib.util

import torch
import torch.nn.functional as F
from torch import Tensor

FAST = True
"""Whether short lists go through kernels of our own (``gpu.attention``, ``gpu.blocks``): turned
off to compare with the library's."""


def attend(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None = None, *, causal: bool = False
) -> Tensor:
    """Scaled dot-product attention of ``(rows, heads, tokens, head width)``, to the query's shape.

    ``mask`` is bool, broadcasts to ``(rows, heads, query tokens, key tokens)`` and is true where a query may
    look. ``causal`` lets token i look at tokens 0..i, and excludes a mask.
    """
    return F.scaled_dot_product_attention(query, key, value, attn_mask=mask, is_causal=causal)


def attend_packed(qkv: Tensor, mask: Tensor | None = None, *, causal: bool = False) -> Tensor:
    """Attention of the tokens of each row to one another, their queries, keys and values packed.

    ``(rows, tokens, 3, heads, head width)`` to ``(rows, tokens, width)``; the rest as in :func:`attend`.
    """
    rows, tokens, _, heads, head = qkv.shape
    if own_kernels(qkv) and over_keys(mask, rows):
        from factorank.kernels.gpu import attention as short_attention

        if tokens <= short_attention.LONGEST and head in short_attention.HEAD_WIDTHS:
            return short_attention.attention(qkv, None if mask is None else mask[:, 0, 0], causal)
    query, key, value = qkv.permute(2, 0, 3, 1, 4).unbind(0)
    mixed = attend(query, key, value, mask, causal=causal)
    return mixed.transpose(1, 2).reshape(rows, tokens, heads * head)


def own_kernels(x: Tensor) -> bool:
    """Whether this machine can run kernels of our own on a tensor, and should."""
    return FAST and x.is_cuda and _triton


def over_keys(mask: Tensor | None, rows: int) -> bool:
    """Whether a mask says only which keys of a row may be looked at, by whatever query and head."""
    return mask is None or (mask.ndim == 4 and mask.shape[:3] == (rows, 1, 1))


_triton = torch.version.cuda is not None and importlib.util.find_spec("triton") is not None
