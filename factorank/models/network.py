"""The network of a model: from codes and an encoded context to logits, for both objectives.

Leading dimensions of codes ``(*rows, n)`` and of the context broadcast, so that the samples of one context
share its tokens.
"""

import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from typing import get_args

import torch
from torch import Tensor, nn

from factorank.errors import ModelError
from factorank.kernels.attention import Cache
from factorank.models.context import EncodedContext
from factorank.models.transformer import Head, Norm, Transformer, waves
from factorank.permutations import whole_number


def checked_sizes(n: int, width: int, depth: int, heads: int, dropout: float) -> tuple[int, int, int, int]:
    """n, width, depth and heads as ints; sizes that no network can have are refused."""
    described = {"n": "the number of items", "width": "the numbers of a token", "depth": "the blocks"}
    described["heads"] = "those of attention"
    for name, value in {"n": n, "width": width, "depth": depth, "heads": heads}.items():
        if whole_number(value) < 1:
            raise ModelError(
                f"{{parameter}} ({described[name]}) is a whole number of at least 1, not {value!r}",
                parameter=name,
            )
    if isinstance(dropout, bool) or not isinstance(dropout, int | float) or not 0 <= dropout < 1:
        raise ModelError(
            f"{{parameter}} is a share, a number from 0 to below 1, not {dropout!r}", parameter="dropout"
        )
    if width % heads:
        raise ModelError(f"the width must be a multiple of the heads: {width=}, {heads=}", parameter="width")
    return int(n), int(width), int(depth), int(heads)


class Network(nn.Module):
    """Embeddings of values and places, a transformer, and a head.

    ``hidden`` is the masked network; ``causal_hidden``, and ``begin`` with ``step``, the autoregressive one,
    for which ``encode_items`` adds a bidirectional encoder with half of the blocks over an aligned context.
    ``norm="after"`` is the network of the first transformers, whose places are waves.
    """

    places: Tensor

    def __init__(
        self,
        support: Tensor,
        width: int,
        depth: int,
        heads: int,
        dropout: float,
        encode_items: bool,
        norm: Norm = "before",
    ) -> None:
        super().__init__()
        if norm not in get_args(Norm):
            raise ModelError(f"{{parameter}} is 'before' or 'after', not {norm!r}", parameter="norm")
        n = support.shape[0]
        self.n, self.width = n, width
        self.values = nn.Embedding(n + 1, width)  # the last one is the mask, or the start of the sequence
        nn.init.normal_(self.values.weight, std=0.5)
        if norm == "before":
            self.places = nn.Parameter(torch.empty(n, width))
            nn.init.normal_(self.places, std=0.5)
        else:
            self.register_buffer("places", waves(torch.arange(n), width), persistent=False)
        encoder_depth = max(depth // 2, 1) if encode_items else 0
        self.item_encoder = Transformer(width, encoder_depth, heads, dropout, norm) if encode_items else None
        self.transformer = Transformer(width, max(depth - encoder_depth, 1), heads, dropout, norm)
        self.head = Head(support, width)

    @torch.no_grad()
    def crop_from(self, longer: "Network") -> None:
        """Take the weights of a network of longer lists: of its first positions and values, and its mask."""
        n = self.n
        weights = longer.state_dict()
        weights["values.weight"] = torch.cat([longer.values.weight[:n], longer.values.weight[-1:]])
        if "places" in weights:
            weights["places"] = longer.places[:n]
        weights["head.weight"] = longer.head.weight[:n]
        weights["head.bias"] = longer.head.bias[:n, :n]
        self.load_state_dict(weights)

    @property
    def mask_value(self) -> int:
        """What stands for a masked position, or for the start of the sequence, among the values."""
        return self.n

    def hidden(
        self,
        code: Tensor,
        context: EncodedContext | None,
        present: Tensor | None,
        positions: Tensor | None = None,
    ) -> Tensor:
        """Masked: codes ``(*rows, n)``, masked positions at ``mask_value``, to tokens ``(*rows, n, width)``.

        ``present (*rows, n)`` is false at the padding of shorter lists. ``positions (*rows, some)`` are the
        tokens that are asked for, all if None.
        """
        x = self._embedded(code)
        if context is not None and context.aligned:
            x = x + context.tokens
        lead, keys = x.shape[:-2], present
        x = x.reshape(-1, self.n, self.width)
        before = 0
        if context is not None and not context.aligned:
            before = context.tokens.shape[-2]
            x = torch.cat([_as_rows(context.tokens, lead, 2), x], 1)
            if keys is not None or context.present is not None:
                parts = [
                    _mask_or_true(context.present, lead, before, x),
                    _mask_or_true(keys, lead, self.n, x),
                ]
                keys = torch.cat([part.expand(*lead, part.shape[-1]) for part in parts], -1)
        mask = None if keys is None else _as_rows(_never_empty(keys), lead, 1)[:, None, None, :]
        if positions is None:
            return self.transformer(x, mask)[:, before:].view(*lead, self.n, self.width)
        where = _as_rows(positions, lead, 1) + before
        return self.transformer(x, mask, positions=where).view(*lead, where.shape[-1], self.width)

    def _embedded(self, code: Tensor) -> Tensor:
        """Codes ``(*rows, n)`` and their places as tokens ``(*rows, n, width)``."""
        return self.values(code) + self.places

    def memory(self, context: EncodedContext | None, present: Tensor | None) -> EncodedContext | None:
        """Autoregressive: run the bidirectional encoder over an aligned context; others are kept."""
        if self.item_encoder is None or context is None:
            return context
        lead = context.tokens.shape[:-2]
        x = (context.tokens + self.places).reshape(-1, self.n, self.width)
        mask = None if present is None else _as_rows(_never_empty(present), lead, 1)[:, None, None, :]
        return EncodedContext(
            self.item_encoder(x, mask).view(*lead, self.n, self.width), context.present, True
        )

    def causal_hidden(self, code: Tensor, memory: EncodedContext | None) -> Tensor:
        """Autoregressive: codes ``(*rows, n)`` to tokens ``(*rows, n, width)``; i has seen codes 0..i-1."""
        start = torch.full_like(code[..., :1], self.mask_value)
        x = self._embedded(torch.cat([start, code[..., :-1]], -1))
        if memory is None or memory.aligned:
            x = x if memory is None else x + memory.tokens
            lead = x.shape[:-2]
            return self.transformer(x.reshape(-1, self.n, self.width), causal=True).view(
                *lead, self.n, self.width
            )
        lead, before = x.shape[:-2], memory.tokens.shape[-2]
        x = torch.cat([_as_rows(memory.tokens, lead, 2), x.reshape(-1, self.n, self.width)], 1)
        total = before + self.n
        at = torch.arange(total, device=x.device)
        mask = (at <= at[:, None]) | (at < before)
        if memory.present is not None:
            seen = _mask_or_true(memory.present, lead, before, x)
            keys = torch.cat([seen, seen.new_ones((*seen.shape[:-1], self.n))], -1)
            # A padding token looks at itself, so that no row of the attention is empty.
            mask = mask & _as_rows(keys, lead, 1)[:, None, :] | torch.eye(
                total, dtype=torch.bool, device=x.device
            )
            mask = mask[:, None]
        return self.transformer(x, mask)[:, before:].view(*lead, self.n, self.width)

    def begin(self, memory: EncodedContext | None, lead: torch.Size) -> tuple[Cache, Tensor | None]:
        """Autoregressive: a cache that holds the context's tokens, and a mask over its keys if needed."""
        like = self.places.new_empty((lead.numel(), 1, self.width))
        if memory is None or memory.aligned:
            return self.transformer.cache(self.n, like, single=True), None
        before = memory.tokens.shape[-2]
        cache, mask = self.transformer.cache(before + self.n, like, single=False), None
        x = _as_rows(memory.tokens, lead, 2)
        if memory.present is not None:
            keys = _as_rows(memory.present, lead, 1)
            mask = torch.cat([keys, keys.new_ones((keys.shape[0], self.n))], -1)[:, None, None, :]
            here = mask[..., :before] | torch.eye(before, dtype=torch.bool, device=x.device)
            cache.advance(x, here)
        else:
            cache.advance(x)
        return cache, mask

    def step(
        self, value: Tensor, position: int, memory: EncodedContext | None, cache: Cache, mask: Tensor | None
    ) -> Tensor:
        """Autoregressive: logits ``(*rows, n)`` at a position, given the value ``(*rows,)`` before it."""
        x = self.values(value) + self.places[position]
        if memory is not None and memory.aligned:
            x = x + memory.tokens[..., position, :]
        lead = x.shape[:-1]
        if mask is not None:
            mask = mask[..., : cache.length + 1]
        hidden = cache.advance(x.reshape(-1, 1, self.width), mask)
        at = torch.full((hidden.shape[0], 1), position, device=hidden.device)
        return self.head(hidden, at).view(*lead, self.n)


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Dropout and the like off, for as long as the block lasts, in all threads that are in such a block.

    The flags belong to the model, which threads share: the first to come turns them, the last to go back.
    """
    with _turning:
        inside, training = _evaluated.get(model, (0, []))
        if not inside:
            training = [module for module in model.modules() if module.training]
            for module in training:
                module.training = False
        _evaluated[model] = (inside + 1, training)
    try:
        yield
    finally:
        with _turning:
            inside, training = _evaluated.pop(model)
            if inside > 1:
                _evaluated[model] = (inside - 1, training)
            else:
                for module in training:
                    module.training = True


_turning = threading.Lock()
_evaluated: weakref.WeakKeyDictionary[nn.Module, tuple[int, list[nn.Module]]] = weakref.WeakKeyDictionary()
"""Models that are being evaluated: in how many blocks, and what is put back into training mode."""


def _as_rows(tensor: Tensor, lead: torch.Size, own: int) -> Tensor:
    """Expand ``(*some, *own)`` to ``(*lead, *own)`` and flatten the leading dimensions."""
    trailing = tensor.shape[tensor.ndim - own :]
    return tensor.expand(*lead, *trailing).reshape(-1, *trailing)


def _never_empty(keys: Tensor) -> Tensor:
    """A list without items looks at its first padding token: attention over nothing is not a number."""
    return keys | (torch.arange(keys.shape[-1], device=keys.device) == 0)


def _mask_or_true(mask: Tensor | None, lead: torch.Size, size: int, like: Tensor) -> Tensor:
    return torch.ones((*lead, size), dtype=torch.bool, device=like.device) if mask is None else mask
