"""Where batches come from: tensors kept on the device, a torch Dataset, or a function that makes them.

A source is asked twice for every step: ``prepare(step)`` does what the host must do, and ``batch(part)`` is
tensor operations only, so that it can be part of a captured step. Which rows a step reads follows from the
seed and the number of the step alone: a resumed run reads the rows that the undisturbed one would have read.
"""

import hashlib
from collections.abc import Callable, Iterator
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves, tree_map
from torch.utils.data import Dataset, IterableDataset, TensorDataset, default_collate

from factorank.errors import TrainingError
from factorank.training.checks import Batch, check_orders


class Shape:
    """How the rows of one step are shared out: ``batch`` rows in each of ``parts`` passes on each rank."""

    def __init__(self, batch: int, parts: int = 1, rank: int = 0, ranks: int = 1) -> None:
        self.batch, self.parts, self.rank, self.ranks = batch, parts, rank, ranks
        self.rows = batch * parts * ranks

    def first(self, part: int) -> int:
        """The place, among the rows of the step, of the first row of a part on this rank."""
        return (part * self.ranks + self.rank) * self.batch


class Source(Protocol):
    """What the training step reads."""

    static: bool
    """Whether the batches must keep their addresses, because a graph was captured that reads them."""

    def prepare(self, step: int) -> None: ...

    def batch(self, part: int) -> Batch: ...


def stream_seed(seed: int, *names: object) -> int:
    """A seed of 63 bits for a named stream of random numbers.

    >>> stream_seed(0, "masks", 0) == stream_seed(0, "masks", 1)
    False
    """
    text = "/".join(map(str, (seed, *names)))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "little") >> 1


class Deal:
    """The rows of each step: epochs without replacement; rows that do not fill a step sit the epoch out."""

    def __init__(self, rows: int, shape: Shape, seed: int, device: torch.device) -> None:
        if rows < shape.rows:
            raise TrainingError(
                f"a step takes {shape.rows} rows ({shape.batch} in each of {shape.parts} passes on each of"
                f" {shape.ranks} processes) but the data have {rows}; lower batch_size"
            )
        self.shape, self.seed = shape, seed
        self.steps_per_epoch = rows // shape.rows
        self.rows = rows
        self.epoch = -1
        self._generator = torch.Generator(device)
        self._permutation = torch.empty(rows, dtype=torch.int64, device=device)
        self._position = torch.zeros((), dtype=torch.int64, device=device)
        self._offsets = torch.arange(shape.batch, device=device)

    def prepare(self, step: int) -> None:
        epoch, index = divmod(step, self.steps_per_epoch)
        if epoch != self.epoch:
            self._generator.manual_seed(stream_seed(self.seed, "epoch", epoch))
            device = self._permutation.device
            self._permutation.copy_(torch.randperm(self.rows, generator=self._generator, device=device))
            self.epoch = epoch
        self._position.fill_(index * self.shape.rows)

    def indices(self, part: int) -> Tensor:
        """The rows of a part of the step: int64 ``(batch,)``."""
        return self._permutation.index_select(0, self._offsets + (self._position + self.shape.first(part)))


class Table:
    """Orders ``(rows, n)`` and their context, kept whole on the device."""

    static = False

    def __init__(self, order: Tensor, context: Any, shape: Shape, seed: int, device: torch.device) -> None:
        self.order, self.context = to_device((order, context), device)
        self._deal = Deal(order.shape[0], shape, seed, device)

    def prepare(self, step: int) -> None:
        self._deal.prepare(step)

    def batch(self, part: int) -> Batch:
        return take((self.order, self.context), self._deal.indices(part))


class Fed:
    """Batches that the host fetches one by one: ``fetch(step, part)``."""

    def __init__(self, parts: int) -> None:
        self.static = False
        self._parts: list[Any] = [None] * parts

    def fetch(self, step: int, part: int) -> Batch:
        raise NotImplementedError

    def prepare(self, step: int) -> None:
        for part, held in enumerate(self._parts):
            fetched = self.fetch(step, part)
            if not self.static:
                self._parts[part] = fetched
                continue
            for ours, theirs in zip(tree_leaves(held), tree_leaves(fetched), strict=True):
                if isinstance(ours, Tensor):
                    ours.copy_(theirs, non_blocking=True)

    def batch(self, part: int) -> Batch:
        return self._parts[part]


class Rows(Fed):
    """The items of a torch Dataset, each an order ``(n,)`` or a pair of an order and a context."""

    def __init__(self, data: Any, n: int | None, shape: Shape, seed: int, device: torch.device) -> None:
        super().__init__(shape.parts)
        self.data, self.n, self.device = data, n, device
        self._deal = Deal(len(data), shape, seed, torch.device("cpu"))
        self._dealt = -1

    def fetch(self, step: int, part: int) -> Batch:
        if step != self._dealt:
            self._deal.prepare(step)
            self._dealt = step
        batch = collate(self.data, self._deal.indices(part).tolist())
        check_orders(batch[0], self.n, "the dataset")
        return to_device(batch, self.device)


class Made(Fed):
    """Batches from a function ``data(batch_size, generator)``, called on the host for every step.

    A function whose work is tensor operations alone, with all its random numbers from ``generator``, may say
    so with an attribute ``capturable = True``: it then becomes part of the captured step.
    """

    def __init__(
        self,
        data: Callable[..., Any],
        n: int | None,
        shape: Shape,
        generator: torch.Generator,
        device: torch.device,
    ) -> None:
        super().__init__(shape.parts)
        self.data, self.n, self.size, self.generator, self.device = data, n, shape.batch, generator, device
        self._inside = bool(getattr(data, "capturable", False))

    def fetch(self, step: int, part: int) -> Batch:
        return to_device(made(self.data, self.size, self.generator, self.n), self.device)

    def prepare(self, step: int) -> None:
        if not self._inside:
            super().prepare(step)

    def batch(self, part: int) -> Batch:
        return self.fetch(0, part) if self._inside else super().batch(part)


def tabulate(data: Any) -> Batch | None:
    """The order and context of data that are tensors already; None for a Dataset or a function."""
    if isinstance(data, TensorDataset):
        order, *rest = data.tensors
        return order, (None if not rest else rest[0] if len(rest) == 1 else tuple(rest))
    if isinstance(data, Tensor) or (
        isinstance(data, tuple) and len(data) == 2 and isinstance(data[0], Tensor)
    ):
        return as_pair(data)
    if isinstance(data, IterableDataset | Iterator):
        raise TrainingError(
            f"a {type(data).__name__} cannot be wound back to resume a run; pass a tensor, a Dataset with a"
            " length, or a function data(batch_size, generator)"
        )
    if isinstance(data, Dataset) and hasattr(data, "__len__"):
        if len(data) == 0:
            raise TrainingError("the dataset is empty")
        return None
    if callable(data):
        return None
    raise TrainingError(
        "data are an order tensor (rows, n), a pair (orders, context), a Dataset with a length, or a function"
        f" data(batch_size, generator), not a {type(data).__name__}"
    )


def as_pair(batch: Any) -> Batch:
    """A batch as (order, context), the context None where there is none."""
    if isinstance(batch, tuple | list) and len(batch) == 2:
        return batch[0], batch[1]
    if isinstance(batch, Tensor):
        return batch, None
    raise TrainingError(
        f"a batch is an order tensor or a pair (order, context), not a {type(batch).__name__}"
    )


def made(data: Callable[..., Any], size: int, generator: torch.Generator, n: int | None) -> Batch:
    """A batch of the function ``data``, of the size asked for."""
    order, context = as_pair(data(size, generator))
    if tuple(order.shape) != (size, n or order.shape[-1]):
        raise TrainingError(
            f"data(batch_size, generator) was asked for {size} orders of {n} items and made a tensor"
            f" {tuple(order.shape)}"
        )
    return order, context


def collate(data: Any, indices: list[int]) -> Batch:
    """Items of a Dataset as one batch."""
    return as_pair(default_collate([data[index] for index in indices]))


def take(batch: Batch, rows: Tensor | slice) -> Batch:
    """Some rows of a batch."""
    order, context = batch

    def pick(leaf: Any) -> Any:
        if not isinstance(leaf, Tensor):
            return leaf
        return leaf[rows] if isinstance(rows, slice) else leaf.index_select(0, rows)

    return pick(order), tree_map(pick, context)


def to_device(batch: Batch, device: torch.device) -> Batch:
    """The batch with all its tensors on the device."""

    def move(leaf: Any) -> Any:
        return leaf.to(device, non_blocking=True) if isinstance(leaf, Tensor) else leaf

    return move(batch[0]), tree_map(move, batch[1])
