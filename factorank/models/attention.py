"""Attention, in one place: whatever is faster for a shape goes behind this function."""

import torch.nn.functional as F
from torch import Tensor


def attend(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None = None, *, causal: bool = False
) -> Tensor:
    """Scaled dot-product attention of ``(rows, heads, tokens, head width)``, to the query's shape.

    ``mask`` is bool, broadcasts to ``(rows, heads, query tokens, key tokens)`` and is true where a query may
    look. ``causal`` lets token i look at tokens 0..i, and excludes a mask.
    """
    return F.scaled_dot_product_attention(query, key, value, attn_mask=mask, is_causal=causal)
