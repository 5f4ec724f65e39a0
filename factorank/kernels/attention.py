"""Attention in plain torch: the twin of ``gpu.attention``, and what caches and long masks go through."""

import torch.nn.functional as F
from torch import Tensor


def attend(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None = None, *, causal: bool = False
) -> Tensor:
    """Scaled dot-product attention of ``(rows, heads, tokens, head width)``, to the query's shape.

    ``mask`` is bool, broadcasts to ``(rows, heads, query tokens, key tokens)`` and is true where a query may
    attend. ``causal`` lets token i attend to tokens 0..i, and excludes a mask.
    """
    return F.scaled_dot_product_attention(query, key, value, attn_mask=mask, is_causal=causal)


def attend_packed(qkv: Tensor, mask: Tensor | None = None, *, causal: bool = False) -> Tensor:
    """Attention of the tokens of each row to one another, their queries, keys and values packed.

    ``(rows, tokens, 3, heads, head width)`` to ``(rows, tokens, width)``; the rest as in :func:`attend`.
    """
    return merge_heads(attend(*split_heads(qkv), mask, causal=causal))


def split_heads(qkv: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Queries, keys and values ``(rows, heads, tokens, head width)`` of packed ones."""
    query, key, value = qkv.permute(2, 0, 3, 1, 4).unbind(0)
    return query, key, value


def merge_heads(mixed: Tensor) -> Tensor:
    """``(rows, heads, tokens, head width)`` to ``(rows, tokens, width)``."""
    return mixed.transpose(1, 2).flatten(2)
