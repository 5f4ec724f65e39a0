"""The network: pre-norm transformer blocks, and a head whose logits stay inside each position's domain."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from factorank.kernels.attention import attend, attend_packed, over_keys, own_kernels
from factorank.kernels.cache import Cache, LayerCache, WholeCache


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
        self, x: Tensor, mask: Tensor | None = None, causal: bool = False, cache: LayerCache | None = None
    ) -> Tensor:
        rows, tokens, width = x.shape
        qkv = self.qkv(self.attention_norm(x)).view(rows, tokens, 3, self.heads, width // self.heads)
        if cache is None:
            mixed = attend_packed(qkv, mask, causal=causal)
        else:
            query, key, value = qkv.permute(2, 0, 3, 1, 4).unbind(0)
            mixed = (
                attend(query, *cache.append(key, value), mask).transpose(1, 2).reshape(rows, tokens, width)
            )
        x = x + F.dropout(self.out(mixed), self.dropout, self.training)
        change = self.down(F.gelu(self.up(self.mlp_norm(x))))
        return x + F.dropout(change, self.dropout, self.training)


class Transformer(nn.Module):
    """A stack of blocks, ``(rows, tokens, width)`` to the same shape; the last norm is the head's."""

    def __init__(self, width: int, depth: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.heads, self.dropout = heads, dropout
        self.blocks = nn.ModuleList(Block(width, heads, dropout) for _ in range(depth))
        for block in self.blocks:
            assert isinstance(block, Block)
            for linear, scale in (
                (block.qkv, 1),
                (block.up, 1),
                (block.out, 2 * depth),
                (block.down, 2 * depth),
            ):
                # Blocks add to the stream; the smaller scale keeps its variance about the same at any depth.
                nn.init.normal_(linear.weight, std=(linear.in_features * scale) ** -0.5)
                nn.init.zeros_(linear.bias)

    def forward(
        self,
        x: Tensor,
        mask: Tensor | None = None,
        causal: bool = False,
        cache: Cache | None = None,
        positions: Tensor | None = None,
    ) -> Tensor:
        """``positions (rows, some)`` are the tokens that are asked for, all if None."""
        if cache is not None and isinstance(cache[0], WholeCache):
            return cache[0].advance(x)
        if cache is None and self._can_fuse(x, mask):
            from factorank.kernels.gpu import blocks as fused

            return _take(self._fused(fused, self.weights(), x, mask, causal), positions)
        for i, block in enumerate(self.blocks):
            layer = None if cache is None else cache[i]
            assert not isinstance(layer, WholeCache)
            x = block(x, mask, causal, layer)
        return _take(x, positions)

    def weights(self) -> list[Tensor]:
        """The parameters in their order: ``parameters()`` without the search, for every step."""
        parts = (part for block in self.blocks for part in block.children())
        return [weight for part in parts for weight in part._parameters.values() if weight is not None]

    def _can_fuse(self, x: Tensor, mask: Tensor | None) -> bool:
        narrow = torch.is_autocast_enabled("cuda") and torch.get_autocast_dtype("cuda") == torch.bfloat16
        if not (narrow and own_kernels(x) and over_keys(mask, x.shape[0]) and x.dtype == torch.float32):
            return False
        from factorank.kernels.gpu import blocks as fused

        if torch.compiler.is_compiling() and x.shape[0] * x.shape[1] > fused.MOST_TOKENS:
            return False  # the compiler's kernels are faster there
        return fused.fits(x, self.heads) and all(weight.dtype == x.dtype for weight in self.parameters())

    def _fused(
        self,
        kernels: Any,
        weights: list[Tensor],
        x: Tensor,
        mask: Tensor | None,
        causal: bool,
        **options: Any,
    ) -> Tensor:
        made: Tensor = kernels.apply(
            x,
            weights,
            None if mask is None else mask[:, 0, 0].contiguous(),
            heads=self.heads,
            causal=causal,
            dropout=self.dropout if self.training else 0.0,
            **options,
        )
        return made

    def cache(self, capacity: int, like: Tensor, *, single: bool) -> Cache:
        """An empty cache for tokens like these ``(rows, 1, width)``; ``single``: they come one at a time."""
        if single and not torch.is_grad_enabled() and self._can_fuse(like, None):
            from factorank.kernels.gpu.block_step import FusedCache

            return [FusedCache(list(self.parameters()), self.heads, capacity)]
        return [LayerCache(capacity) for _ in self.blocks]


class Head(nn.Module):
    """Logits of the values at each position, minus infinity outside the position's domain.

    A linear map of the normed token plus a table with a row for each position, in float32 also under
    autocast: with the map at zero the table alone is a fully factorized law.
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

    def log_probs(self, hidden: Tensor, code: Tensor) -> Tensor:
        """The log-probability of each value of codes ``(*rows, n)``, given tokens ``(*rows, n, width)``."""
        return self(hidden).log_softmax(-1).gather(-1, code[..., None]).squeeze(-1)

    def forward(self, hidden: Tensor, positions: Tensor | None = None) -> Tensor:
        """``(*rows, m, width)`` to ``(*rows, m, n)``; ``positions (*rows, m)`` says which, all if None."""
        with torch.autocast(hidden.device.type, enabled=False):
            norm = self.norm
            normed = F.layer_norm(
                hidden.float(), norm.normalized_shape, norm.weight.float(), norm.bias.float(), norm.eps
            )
            logits = F.linear(normed, self.weight.float())
            if positions is None:
                return (logits + self.bias.float()).masked_fill(~self.allowed, -torch.inf)
            return (logits + self.bias.float()[positions]).masked_fill(~self.allowed[positions], -torch.inf)


def _take(x: Tensor, positions: Tensor | None) -> Tensor:
    """The tokens ``(rows, some, width)`` at positions ``(rows, some)``, all if None."""
    return x if positions is None else x.gather(1, positions[..., None].expand(*positions.shape, x.shape[-1]))
