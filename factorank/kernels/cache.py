"""What a causal transformer keeps of the tokens it has seen."""

from torch import Tensor


class LayerCache:
    """Keys and values of the tokens one block has seen: room for ``capacity``, filled from the front."""

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
        """Keep the rows of that index, in that order; rows may be repeated."""
        if self.keys is not None and self.values is not None:
            self.keys, self.values = self.keys[rows], self.values[rows]


class WholeCache:
    """A cache of all blocks at once, which also takes the next token of each row through them."""

    length = 0

    def advance(self, x: Tensor) -> Tensor:
        """Tokens ``(rows, 1, width)`` to the same shape."""
        raise NotImplementedError

    def select(self, rows: Tensor) -> None:
        """As of :class:`LayerCache`."""
        raise NotImplementedError


Cache = list[LayerCache | WholeCache]
