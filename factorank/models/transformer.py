"""The network: transformer blocks, and a head whose logits stay inside each position's domain."""

import math
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from factorank.kernels import dispatch
from factorank.kernels.attention import BlockCache, Cache, KeysAndValues, merge_heads, split_heads

Norm = Literal["before", "after"]


class Block(nn.Module):
    """Attention and a GELU MLP of four times the width, each on a normed input and added to the stream."""

    def __init__(self, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.heads, self.dropout = heads, dropout
        self.attention_norm = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.mlp_norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)

    def forward(
        self,
        x: Tensor,
        mask: Tensor | None = None,
        causal: bool = False,
        stored: KeysAndValues | None = None,
    ) -> Tensor:
        """``(rows, tokens, width)`` to the same shape, after the tokens whose keys and values are stored."""
        mixed = self._attend(self.attention_norm(x), mask, causal, stored)
        x = x + F.dropout(self.out(mixed), self.dropout, self.training)
        change = self.down(F.gelu(self.up(self.mlp_norm(x))))
        return x + F.dropout(change, self.dropout, self.training)

    def _attend(
        self, x: Tensor, mask: Tensor | None, causal: bool, stored: KeysAndValues | None, dropout: float = 0.0
    ) -> Tensor:
        rows, tokens, width = x.shape
        qkv = self.qkv(x).view(rows, tokens, 3, self.heads, width // self.heads)
        if stored is None:
            return dispatch.attention(qkv, mask, causal=causal, dropout=dropout)
        query, key, value = split_heads(qkv)
        key, value = stored.append(key, value)
        return merge_heads(F.scaled_dot_product_attention(query, key, value, attn_mask=mask))


class PostNormBlock(Block):
    """The block of the first transformers: the norms follow the additions, and the MLP has a ReLU.

    Dropout is also of attention weights and of the MLP's hidden units. Vaswani et al., "Attention is all you
    need", 2017.
    """

    def forward(
        self,
        x: Tensor,
        mask: Tensor | None = None,
        causal: bool = False,
        stored: KeysAndValues | None = None,
    ) -> Tensor:
        mixed = self._attend(x, mask, causal, stored, self.dropout if self.training else 0.0)
        x = self.attention_norm(x + self._drop(self.out(mixed)))
        return self.mlp_norm(x + self._drop(self.down(self._drop(F.relu(self.up(x))))))

    def _drop(self, x: Tensor) -> Tensor:
        return F.dropout(x, self.dropout, self.training)


class Transformer(nn.Module):
    """A stack of blocks, ``(rows, tokens, width)`` to the same shape; the last norm is the head's.

    With ``norm="after"`` they are post-norm blocks, and there is dropout of the tokens as well.
    """

    def __init__(self, width: int, depth: int, heads: int, dropout: float, norm: Norm = "before") -> None:
        super().__init__()
        self.heads, self.dropout, self.norm = heads, dropout, norm
        kind = Block if norm == "before" else PostNormBlock
        self.blocks = nn.ModuleList(kind(width, heads, dropout) for _ in range(depth))
        shrink = 2 * depth if norm == "before" else 1
        for block in self.blocks:
            assert isinstance(block, Block)
            for linear, scale in ((block.qkv, 1), (block.up, 1), (block.out, shrink), (block.down, shrink)):
                # Blocks add to the stream; the smaller scale keeps its variance about the same at any depth,
                # unless a norm does.
                nn.init.normal_(linear.weight, std=(linear.in_features * scale) ** -0.5)
                nn.init.zeros_(linear.bias)

    def forward(
        self,
        x: Tensor,
        mask: Tensor | None = None,
        causal: bool = False,
        positions: Tensor | None = None,
    ) -> Tensor:
        """``positions (rows, some)`` are the tokens to return, all if None."""
        if self.norm == "after":
            x = F.dropout(x, self.dropout, self.training)
            return _take(self._one_by_one(x, mask, causal), positions)
        x = dispatch.blocks(
            x,
            self.weights,
            mask,
            heads=self.heads,
            causal=causal,
            dropout=self.dropout if self.training else 0.0,
            plain=self._one_by_one,
        )
        return _take(x, positions)

    def _one_by_one(self, x: Tensor, mask: Tensor | None, causal: bool) -> Tensor:
        for block in self.blocks:
            x = block(x, mask, causal)
        return x

    def weights(self) -> list[Tensor]:
        """The parameters in their order: ``parameters()`` without the search, for every step."""
        layers = (layer for block in self.blocks for layer in block.children())
        return [weight for layer in layers for weight in layer._parameters.values() if weight is not None]

    def cache(self, capacity: int, like: Tensor, *, single: bool) -> Cache:
        """An empty cache for tokens like these ``(rows, 1, width)``; ``single``: they come one at a time."""
        if self.norm == "after":
            return BlockCache(self.blocks, capacity)
        return dispatch.cache(
            like, self.weights, self.blocks, heads=self.heads, capacity=capacity, single=single
        )


class Head(nn.Module):
    """Logits of the values at each position, minus infinity outside the position's domain.

    A linear map of the normed token plus a table with a row for each position, in float32 or wider also
    under autocast: with the map at zero the table alone is a fully factorized law.
    """

    allowed: Tensor

    def __init__(self, support: Tensor, width: int) -> None:
        super().__init__()
        n = support.shape[0]
        self.norm = nn.LayerNorm(width)
        self.weight = nn.Parameter(torch.empty(n, width))
        self.bias = nn.Parameter(torch.zeros(n, n))
        # Near the uniform law at first; it learns the cyclic law faster from there than from unit logits.
        nn.init.normal_(self.weight, std=0.1 * width**-0.5)
        self.register_buffer("allowed", support, persistent=False)

    @property
    def dtype(self) -> torch.dtype:
        """That of the logits, whatever the tokens have."""
        return torch.promote_types(self.weight.dtype, torch.float32)

    def log_probs(self, hidden: Tensor, code: Tensor) -> Tensor:
        """The log-probability of each value of codes ``(*rows, n)``, given tokens ``(*rows, n, width)``."""
        return self(hidden).log_softmax(-1).gather(-1, code[..., None]).squeeze(-1)

    def forward(self, hidden: Tensor, positions: Tensor | None = None) -> Tensor:
        """``(*rows, m, width)`` to ``(*rows, m, n)``; ``positions (*rows, m)`` says which, all if None."""
        with torch.autocast(hidden.device.type, enabled=False):
            wide = self.dtype
            weights = (self.norm.weight, self.norm.bias, self.weight, self.bias)
            scale, shift, weight, bias = (tensor.to(wide) for tensor in weights)
            normed = F.layer_norm(hidden.to(wide), self.norm.normalized_shape, scale, shift, self.norm.eps)
            logits = F.linear(normed, weight)
            if positions is None:
                return (logits + bias).masked_fill(~self.allowed, -torch.inf)
            return (logits + bias[positions]).masked_fill(~self.allowed[positions], -torch.inf)


def _take(x: Tensor, positions: Tensor | None) -> Tensor:
    """The tokens ``(rows, some, width)`` at positions ``(rows, some)``, all if None."""
    return x if positions is None else x.gather(1, positions[..., None].expand(*positions.shape, x.shape[-1]))


def waves(places: Tensor, width: int) -> Tensor:
    """Sines and cosines of places ``(n,)``, of wavelengths from 2π to 20,000π: ``(n, width)``.

    Vaswani et al., 2017; the sines stand at even indices, the cosines at odd ones.
    """
    rates = torch.exp(torch.arange(0, width, 2) * (-math.log(10_000.0) / width))
    angles = places[:, None] * rates
    return torch.stack([angles.sin(), angles.cos()], -1).flatten(-2)[:, :width]
