"""The keys and values of the tokens before, kept so that a causal transformer computes one token a step."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable

from torch import Tensor


class Cache(ABC):
    """The state of a stack of blocks after some tokens of each row."""

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
        stop = self.length + key.shape[2]
        self.keys[:, :, self.length : stop] = key
        self.values[:, :, self.length : stop] = value
        self.length = stop
        return self.keys[:, :, :stop], self.values[:, :, :stop]

    def select(self, rows: Tensor) -> None:
        """As :meth:`Cache.select`."""
        if self.keys is not None and self.values is not None:
            self.keys, self.values = self.keys[rows], self.values[rows]
