"""The batches of each step: from tensors kept on the device, a torch Dataset, or a function.

A source is called twice for every step: ``prepare(step)`` does the work of the host, and ``batch(part)`` is
tensor operations only, so that it can be part of a captured step. The seed and the number of the step alone
decide which rows a step reads: a resumed run reads the same rows as a run that never stopped.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves, tree_map_only
from torch.utils.data import default_collate

from factorank.errors import PermutationError, TrainingError
from factorank.models.context import opened
from factorank.permutations import check_integer, check_permutation, signed
from factorank.training.random_streams import stream_seed

Batch = tuple[Tensor, Any]
"""An order ``(batch, n)`` and its context: None, or tensors ``(batch, …)``, nested as the model likes."""


class Shape:
    """How the rows of one step are shared out: ``batch`` rows in each of ``parts`` passes on each rank."""

    def __init__(self, batch: int, parts: int = 1, rank: int = 0, ranks: int = 1) -> None:
        self.batch, self.parts, self.rank, self.ranks = batch, parts, rank, ranks
        self.rows = batch * parts * ranks

    def first(self, part: int) -> int:
        """The place, among the rows of the step, of the first row of a part on this rank."""
        return (part * self.ranks + self.rank) * self.batch


class Deal:
    """The rows of each step: epochs without replacement. Rows that do not fill a step sit the epoch out."""

    def __init__(self, rows: int, shape: Shape, seed: int, device: torch.device) -> None:
        if rows < shape.rows:
            raise TrainingError(
                f"a step takes {shape.rows} rows ({shape.batch} in each of {shape.parts} passes on each of"
                f" {shape.ranks} processes) but the data have {rows}; lower {{parameter}}",
                parameter="batch_size",
            )
        self.rows, self.shape, self.seed = rows, shape, seed
        self.epoch = -1
        self._generator = torch.Generator(device)
        self._permutation = torch.empty(rows, dtype=torch.int64, device=device)
        self._position = torch.zeros((), dtype=torch.int64, device=device)
        self._offsets = torch.arange(shape.batch, device=device)

    def prepare(self, step: int) -> None:
        epoch, index = divmod(step, self.rows // self.shape.rows)
        if epoch != self.epoch:
            self._generator.manual_seed(stream_seed(self.seed, "epoch", epoch))
            device = self._permutation.device
            self._permutation.copy_(torch.randperm(self.rows, generator=self._generator, device=device))
            self.epoch = epoch
        self._position.fill_(index * self.shape.rows)

    def indices(self, part: int) -> Tensor:
        """The rows of a part of the step: int64 ``(batch,)``."""
        return self._permutation.index_select(0, self._offsets + (self._position + self.shape.first(part)))


class TensorBatches:
    """Batches of orders ``(rows, n)`` and their context, kept whole on the device."""

    static = varies = False

    def __init__(self, table: Batch, shape: Shape, seed: int, device: torch.device) -> None:
        self.table = to_device(table, device)
        self._deal = Deal(table[0].shape[0], shape, seed, device)
        self.prepare = self._deal.prepare

    def batch(self, part: int) -> Batch:
        return take(self.table, self._deal.indices(part))


class HostBatches:
    """Batches of ``fetch(step, part)``, which the host calls one by one.

    With ``in_step`` the call is tensor operations only, and becomes part of the captured step.
    """

    varies = static = False
    """Whether the batches must keep their addresses, because a captured graph reads them."""

    def __init__(self, fetch: Callable[[int, int], Batch], parts: int, *, in_step: bool = False) -> None:
        self._fetch, self._in_step = fetch, in_step
        self._parts: list[Any] = [None] * parts

    def prepare(self, step: int) -> None:
        for part, held in enumerate([] if self._in_step else self._parts):
            fetched = self._fetch(step, part)
            if not self.static:
                self._parts[part] = fetched
                continue
            for held_leaf, fetched_leaf in zip(tree_leaves(held), tree_leaves(fetched), strict=True):
                if isinstance(held_leaf, Tensor):
                    held_leaf.copy_(fetched_leaf, non_blocking=True)

    def batch(self, part: int) -> Batch:
        return self._fetch(0, part) if self._in_step else self._parts[part]


Source = TensorBatches | HostBatches


def check_orders(order: Tensor, n: int | None, what: str) -> None:
    """Refuse anything but permutations ``(rows, n)``; shorter lists end in -1."""
    check_integer(order, f"{what} are orders")
    if order.ndim != 2:
        raise PermutationError(f"{what} are orders (rows, n), not a tensor {tuple(order.shape)}")
    if n is not None and order.shape[1] != n:
        raise PermutationError(f"the model orders {n} items but {what} have {order.shape[1]}")
    absent = order < 0
    if absent.any():
        wrong = (absent & (order != -1)) | absent[:, :1]
        wrong[:, 1:] |= absent[:, :-1] & ~absent[:, 1:]
        if wrong.any():
            row, position = (int(i) for i in wrong.nonzero()[0])
            raise PermutationError(
                f"{what}: a list shorter than n is its items and then -1 to the end, but row {row} is"
                f" {order[row].tolist()} (position {position})"
            )
        place = torch.arange(order.shape[1], device=order.device, dtype=order.dtype)
        order = torch.where(absent, place, order)
    check_permutation(order, f"{what}: expected")


def as_pair(batch: Any) -> Batch:
    """A batch as (order, context), the context None where there is none."""
    if isinstance(batch, Tensor):
        return signed(batch, "the data are"), None
    if isinstance(batch, tuple | list) and batch and isinstance(batch[0], Tensor):
        order, *rest = batch
        order = signed(order, "the data are")
        return order, opened(None if not rest else rest[0] if len(rest) == 1 else tuple(rest))
    raise TrainingError(f"a batch is orders or a pair (orders, context), not a {type(batch).__name__}")


def generate(data: Callable[..., Any], size: int, generator: torch.Generator, n: int | None) -> Batch:
    """A batch of the function ``data``, checked to have ``size`` rows."""
    order, context = as_pair(data(size, generator))
    if tuple(order.shape) != (size, n or order.shape[-1]):
        items = "" if n is None else f" of {n} items"
        asked = f"data(batch_size, generator) was asked for {size} orders{items}"
        raise TrainingError(f"{asked} and made a tensor {tuple(order.shape)}")
    return order, context


def collate(data: Any, indices: list[int]) -> Batch:
    """Items of a Dataset as one batch."""
    return as_pair(default_collate([data[index] for index in indices]))


def take(batch: Batch, rows: Tensor | slice) -> Batch:
    """Some rows of a batch."""
    if isinstance(rows, slice):
        return tree_map_only(Tensor, lambda leaf: leaf[rows], batch)
    return tree_map_only(Tensor, lambda leaf: leaf.index_select(0, rows), batch)


def to_device(batch: Batch, device: torch.device) -> Batch:
    """The batch with all its tensors on the device."""
    return tree_map_only(Tensor, lambda leaf: leaf.to(device, non_blocking=True), batch)
