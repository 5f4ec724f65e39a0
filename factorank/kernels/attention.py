"""Attention and its caches in plain torch: the twins of ``gpu.attention`` and ``gpu.cache``."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable

import torch
import torch.nn.functional as F
from torch import Tensor

from factorank.kernels.derivatives import FirstOnly


def attend_packed(
    qkv: Tensor, mask: Tensor | None = None, *, causal: bool = False, dropout: float = 0.0
) -> Tensor:
    """Attention of the tokens of each row to one another, their queries, keys and values packed.

    ``(rows, tokens, 3, heads, head width)`` to ``(rows, tokens, width)``. ``mask`` is bool, broadcasts to
    ``(rows, heads, query tokens, key tokens)`` and is true where a query may attend. ``causal`` lets token i
    attend to tokens 0..i, and excludes a mask. ``dropout`` is of the weights. By products and a softmax, with
    every derivative.
    """
    query, key, value = split_heads(qkv)
    scores = query * query.shape[-1] ** -0.5 @ key.mT
    if causal:
        mask = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).tril()
    if mask is not None:
        scores = scores.masked_fill(~mask, -torch.inf)
    return merge_heads(F.dropout(scores.softmax(-1), dropout) @ value)


def attend_by_torch(
    qkv: Tensor, mask: Tensor | None = None, *, causal: bool = False, dropout: float = 0.0
) -> Tensor:
    """The same by torch's fused operator, which has first derivatives only."""
    query, key, value = split_heads(FirstOnly.of(qkv))
    return merge_heads(F.scaled_dot_product_attention(query, key, value, mask, dropout, causal))


def split_heads(qkv: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Queries, keys and values ``(rows, heads, tokens, head width)`` of packed ones."""
    query, key, value = qkv.permute(2, 0, 3, 1, 4).unbind(0)
    return query, key, value


def merge_heads(mixed: Tensor) -> Tensor:
    """``(rows, heads, tokens, head width)`` to ``(rows, tokens, width)``."""
    return mixed.transpose(1, 2).flatten(2)


class Cache(ABC):
    """Keys and values of a stack of blocks after some tokens of each row; the next are computed alone."""

    length = 0
    """How many tokens of a row are stored."""

    @abstractmethod
    def advance(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """Take the next tokens ``(rows, tokens, width)`` through the blocks, to the same shape.

        They attend to all that is stored and to one another, or to what ``mask`` allows of it.
        """

    @abstractmethod
    def select(self, rows: Tensor) -> None:
        """Keep the rows of that index, in that order; rows may be repeated."""


class BlockCache(Cache):
    """Blocks one after the other, each with keys and values of its own: the twin of ``gpu.cache``."""

    def __init__(self, blocks: Iterable[Callable[..., Tensor]], capacity: int) -> None:
        self._blocks = [(block, KeysAndValues(capacity)) for block in blocks]

    def advance(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        for block, stored in self._blocks:
            x = block(x, mask, stored=stored)
        self.length += x.shape[1]
        return x

    def select(self, rows: Tensor) -> None:
        for _, stored in self._blocks:
            stored.select(rows)


class KeysAndValues:
    """Keys and values of the tokens before, of one block: room for ``capacity``, filled from the front."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.length = 0
        self.keys: Tensor | None = None
        self.values: Tensor | None = None

    def append(self, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """Store ``(rows, heads, tokens, head width)`` and return all that is stored so far."""
        if self.keys is None or self.values is None:
            shape = (*key.shape[:2], self.capacity, key.shape[3])
            self.keys, self.values = key.new_empty(shape), value.new_empty(shape)
        if torch._C._functorch.is_batchedtensor(key) and not torch._C._functorch.is_batchedtensor(self.keys):
            # The tokens of ``vmap`` differ from here on, those before them did not: a copy for each.
            self.keys, self.values = self.keys + torch.zeros_like(key), self.values + torch.zeros_like(value)
        stop = self.length + key.shape[2]
        self.keys[:, :, self.length : stop] = key
        self.values[:, :, self.length : stop] = value
        self.length = stop
        return self.keys[:, :, :stop], self.values[:, :, :stop]

    def select(self, rows: Tensor) -> None:
        """As :meth:`Cache.select`."""
        if self.keys is not None and self.values is not None:
            self.keys, self.values = self.keys[rows], self.values[rows]
