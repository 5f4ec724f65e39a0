"""The data of a run, checked before it begins: orders to train on, and orders held out."""

import hashlib
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves
from torch.utils.data import Dataset, IterableDataset, TensorDataset

from factorank.errors import FactorankError, TrainingError
from factorank.training.batches import (
    Batch,
    Deal,
    HostBatches,
    Shape,
    Source,
    TensorBatches,
    as_pair,
    check_orders,
    collate,
    generate,
    take,
    to_device,
)
from factorank.training.loaders import LoaderBatches
from factorank.training.random_streams import stream_seed

Data = Tensor | tuple[Tensor, Any] | Dataset[Any] | Iterable[Any] | Callable[[int, torch.Generator], Any]
Batches = Source | LoaderBatches
HeldOutData = Tensor | tuple[Tensor, Any] | float | None
SAMPLED = 1024
"""So many rows of a Dataset or a function tell it from others when a run is resumed."""
AT_ONCE = 1 << 22
_WHOLE = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
"""Whole numbers by their bytes."""
_KINDS = (
    "an order tensor (rows, n), a pair (orders, context), a Dataset with a length, a DataLoader or another"
    " iterable of batches, or a function data(batch_size, generator)"
)


class TrainingData:
    """What a run trains on and what it holds out, as :func:`factorank.train` takes them; both are checked.

    ``n`` is the number of items of the model, if it says. The seed decides which rows a share is.
    """

    def __init__(self, data: Data, held_out: HeldOutData, n: int | None, seed: int) -> None:
        self.data, self.n = data, n
        table = tabulate(data)
        if table is not None:
            check_table(table, n, "the data")
        self.table, self.held_out = split(table, held_out, n, seed)
        """Data that are tensors, and the held-out data, or None."""
        self.loader: LoaderBatches | None = None
        """Data that are batches already."""

    def load(self, accumulate: int, seed: int, batch_size: int | None, device: torch.device) -> int | None:
        """Read the first batch of data that are batches already, and say how many rows it has."""
        if self.table is not None or not is_loader(self.data):
            return None
        batches: Any = self.data
        self.loader = LoaderBatches(batches, self.n, accumulate, seed, device)
        rows = self.loader.first()[0].shape[0]
        if batch_size is not None:
            why = "does nothing where the data are batches already; leave it out"
            raise TrainingError(f"{{parameter={batch_size}}} {why}", parameter="batch_size")
        return rows

    @property
    def rows(self) -> int | None:
        """How many rows there are to train on; None if a function makes them."""
        if self.table is not None:
            return len(self.table[0])
        data: Any = self.data
        return len(data) if hasattr(data, "__len__") and not is_loader(data) else None

    @property
    def full_length(self) -> bool:
        """Whether the data are tensors and no list is shorter than n."""
        tables = [table for table in (self.table, self.held_out) if table is not None]
        return self.table is not None and not any((order < 0).any() for order, _ in tables)

    def batches(self, shape: Shape, seed: int, generator: torch.Generator, device: torch.device) -> Batches:
        """The batches of a run; functions with ``capturable = True`` become part of a captured step."""
        data: Any = self.data
        if self.table is not None:
            return TensorBatches(self.table, shape, seed, device)
        if self.loader is not None:
            return self.loader
        if self.rows is None:
            return HostBatches(
                lambda step, part: to_device(generate(data, shape.batch, generator, self.n), device),
                shape.parts,
                in_step=bool(getattr(data, "capturable", False)),
            )
        deal = Deal(self.rows, shape, seed, torch.device("cpu"))

        def fetch(step: int, part: int) -> Batch:
            deal.prepare(step)
            batch = collate(data, deal.indices(part).tolist())
            check_orders(batch[0], self.n, "the dataset")
            return to_device(batch, device)

        return HostBatches(fetch, shape.parts)

    def identity(self, device: torch.device) -> dict[str, Any]:
        """What tells these data from others."""
        if self.table is not None:
            data = fingerprint(self.table)
        else:
            data = {"rows": self.rows, "checksum": self._sampled(device)}
        return {"data": data, "held_out": None if self.held_out is None else fingerprint(self.held_out)}

    def _sampled(self, device: torch.device) -> int | str | None:
        """A checksum of some rows of data that are no tensors; None where they are not the same twice."""
        data: Any = self.data
        if callable(own := getattr(data, "fingerprint", None)):
            return str(own())
        if self.loader is not None:
            data = getattr(data, "dataset", None)
            if isinstance(data, IterableDataset) or not hasattr(data, "__len__"):
                return None
        if hasattr(data, "__len__"):
            rows = torch.linspace(0, len(data) - 1, min(len(data), SAMPLED)).long().unique().tolist()
            drawn = [collate(data, rows), collate(data, rows[:1]), collate(data, rows[:1])]
        else:
            generators = [torch.Generator(device).manual_seed(seed) for seed in (1, 0, 0)]
            drawn = [generate(data, SAMPLED, generator, self.n) for generator in generators]
        first, *twice = (fingerprint(batch)["checksum"] for batch in drawn)
        return first if twice[0] == twice[1] else None

    @torch.no_grad()
    def probe(self, model: Any, device: torch.device) -> None:
        """Compute the loss of one or two rows, so that the model refuses bad data before the run begins."""
        generator = torch.Generator(device).manual_seed(0)
        data: Any = self.data
        batches = [_two_rows(table) for table in (self.table, self.held_out) if table is not None]
        if self.loader is not None:
            batches.insert(0, self.loader.first())
        elif self.table is None:
            drawn = generate(data, 2, generator, self.n) if self.rows is None else collate(data, [0])
            check_orders(drawn[0], self.n, "the data")
            batches.insert(0, drawn)
        was_training = model.training
        model.eval()
        for batch in batches:
            order, context = to_device(batch, device)
            try:
                loss = model.loss(order, context, generator=generator)
            except FactorankError as error:
                rest = {type(leaf).__name__ for leaf in tree_leaves(context) if not isinstance(leaf, Tensor)}
                if rest - {"NoneType"}:
                    error.add_note(
                        "Of the context's tensors rows are picked; all else goes to the encoder as it is:"
                        f" {', '.join(sorted(rest))}."
                    )
                raise
            if tuple(loss.shape) != tuple(order.shape[:1]):
                shapes = f"{tuple(loss.shape)} for orders {tuple(order.shape)}"
                raise TrainingError(f"model.loss gave {shapes}, not one a row")
        model.train(was_training)


def tabulate(data: Any) -> Batch | None:
    """The order and context of data that are tensors already; None for a Dataset or a function."""
    if isinstance(data, TensorDataset):
        return as_pair(data.tensors)
    if isinstance(data, Tensor) or (isinstance(data, tuple) and data and isinstance(data[0], Tensor)):
        return as_pair(data)
    kind = type(data).__name__
    if isinstance(data, Dataset) and hasattr(data, "__len__") and not isinstance(data, IterableDataset):
        if len(data) == 0:
            raise TrainingError("the dataset is empty", parameter="data")
    elif not callable(data) and not is_loader(data):
        raise TrainingError(f"data are {_KINDS}, not a {kind}", parameter="data")
    return None


def is_loader(data: Any) -> bool:
    """Whether data are batches already: a DataLoader, or another iterable that is no indexed Dataset."""
    indexed = isinstance(data, Dataset) and not isinstance(data, IterableDataset)
    return (
        isinstance(data, Iterable) and not indexed and not callable(data) and not isinstance(data, str | dict)
    )


def check_table(batch: Batch, n: int | None, what: str) -> None:
    """Refuse orders that are no permutations of n items, and a context with another number of rows."""
    order, context = batch
    check_orders(order, n, what)
    if order.shape[0] == 0:
        raise TrainingError(f"{what} have no rows: the tensor is {tuple(order.shape)}")
    for leaf in tree_leaves(context):
        if isinstance(leaf, Tensor) and (leaf.ndim == 0 or leaf.shape[0] != order.shape[0]):
            counts = f"{order.shape[0]} orders but a context tensor {tuple(leaf.shape)}"
            raise TrainingError(f"{what} have {counts}; the first dimension of both is the row")


def split(
    table: Batch | None, held_out: HeldOutData, n: int | None, seed: int
) -> tuple[Batch | None, Batch | None]:
    """The data to train on and the data to hold out."""
    if held_out is None:
        return table, None
    if not isinstance(held_out, float | int):
        kept = tabulate(held_out)
        if kept is None:
            allowed = "an order tensor, a pair (orders, context), or a share of the rows"
            raise TrainingError(f"{{parameter}} is {allowed}", parameter="held_out")
        check_table(kept, n, "the held-out data")
        return table, kept
    if table is None:
        why = "is a share of the rows of a tensor; these data are none"
        raise TrainingError(f"{{parameter={held_out}}} {why}", parameter="held_out")
    rows = table[0].shape[0]
    count = round(rows * held_out)
    if not 0 < held_out < 1 or not 0 < count < rows:
        why = f"of {rows} rows leaves none to train on or none to hold out"
        raise TrainingError(f"{{parameter={held_out}}} {why}", parameter="held_out")
    generator = torch.Generator().manual_seed(stream_seed(seed, "split"))
    shuffled = torch.randperm(rows, generator=generator).to(table[0].device)
    return take(table, shuffled[count:]), take(table, shuffled[:count])


def fingerprint(batch: Batch) -> dict[str, Any]:
    """What tells one data set from another: the shapes, and a checksum of the orders and the context."""
    order, context = batch
    leaves = tree_leaves(context)
    parts = [_checksum(leaf) if isinstance(leaf, Tensor) else repr(leaf) for leaf in leaves]
    digest = hashlib.sha256(repr([_checksum(order.to(torch.int64)), *parts]).encode()).digest()
    shapes = [list(leaf.shape) for leaf in leaves if isinstance(leaf, Tensor)]
    return {"rows": order.shape[0], "checksum": int.from_bytes(digest[:8]), "context": shapes}


def _checksum(tensor: Tensor) -> int:
    """A number that depends on every bit of a tensor and on its place; computed where the tensor is."""
    flat, total = tensor.detach().reshape(-1), 0
    if flat.is_complex():
        flat = torch.view_as_real(flat).reshape(-1)
    for start in range(0, flat.numel(), AT_ONCE):
        part = flat[start : start + AT_ONCE]
        if part.is_floating_point():
            part = part.contiguous().view(_WHOLE[part.element_size()])
        mixed = part.to(torch.int64)
        # A sum of products would not do: rows that are permutations have equal sums.
        mixed = mixed + torch.arange(start, start + len(part), device=flat.device) * 0x9E3779B97F4A7C1
        for shift, factor in ((30, 0x3F58476D1CE4E5B9), (27, 0x14D049BB133111EB)):
            mixed = (mixed ^ (mixed >> shift)) * factor
        total += int((mixed ^ (mixed >> 31)).sum())
    return total


def _two_rows(table: Batch) -> Batch:
    """The first row and, if any list is shorter than n, the first such."""
    short = (table[0] < 0).any(-1).to(torch.int8).argmax()
    return take(table, torch.stack([torch.zeros_like(short), short]))
