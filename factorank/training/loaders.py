"""Batches that the user makes: of a DataLoader, or of any iterable.

Resuming reads the batches of the steps before once more and drops them, so that a run goes on with the
batches it would have had. Random numbers that torch's own generator gives to a loader follow from the run's
seed and the epoch alone.
"""

from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch.utils.data import DataLoader

from factorank.errors import PermutationError, TrainingError
from factorank.training.batches import Batch, as_pair, check_orders, to_device
from factorank.training.random_streams import stream_seed


class LoaderBatches:
    """Batches of an iterable, one after the other; it begins again where it ends, if it can."""

    static = False
    varies = True
    """Whether the batches may differ in size."""

    def __init__(
        self, data: Iterable[Any], n: int | None, parts: int, seed: int, device: torch.device
    ) -> None:
        self._data, self._n, self._seed, self._device = data, n, seed, device
        self._one_pass = isinstance(data, Iterator)
        self._parts: list[Batch] = []
        self._count = parts
        self._read = 0
        """Batches read so far, or skipped."""
        self._epoch, self._in_epoch = -1, 0
        self._iterator: Iterator[Any] | None = None
        self._random: torch.Tensor | None = None
        self._ahead: Batch | None = None

    def first(self) -> Batch:
        """The first batch, which is not lost by looking at it."""
        if self._ahead is None:
            self._ahead = self._next()
        return self._ahead

    def prepare(self, step: int) -> None:
        wanted = step * self._count
        if wanted > self._read:
            self._skip(wanted)
        self._parts = [to_device(self._take(), self._device) for _ in range(self._count)]

    def batch(self, part: int) -> Batch:
        return self._parts[part]

    def _take(self) -> Batch:
        batch, self._ahead = self._ahead or self._next(), None
        self._read += 1
        return batch

    def _skip(self, wanted: int) -> None:
        """Go on to the batch of that number. Epochs of a loader do not depend on those before."""
        data = self._data
        if isinstance(data, DataLoader) and data.generator is None and _length(data):
            epochs = wanted // _length(data)
            if epochs > 0:
                self._ahead, self._iterator, self._epoch = None, None, epochs - 1
                self._read = epochs * _length(data)
        while self._read < wanted:
            self._take()

    def _next(self) -> Batch:
        # A loader draws its order from torch's own generator when it is first asked, not when it is made.
        with torch.random.fork_rng([]):
            if self._random is not None:
                torch.set_rng_state(self._random)
            found = next(self._iterator, None) if self._iterator is not None else None
            if found is None:
                found = self._begin()
            self._random = torch.get_rng_state()
        self._in_epoch += 1
        batch = as_pair(found)
        try:
            check_orders(batch[0], self._n, "the data")
        except PermutationError as error:
            if isinstance(batch[0], torch.Tensor) and batch[0].ndim == 1:
                how = "an iterable gives batches; torch.utils.data.DataLoader(…, batch_size=…) makes them"
                raise TrainingError(f"{error}; {how}", parameter="data") from None
            raise
        return batch

    def _begin(self) -> Any:
        """The first batch of the next epoch."""
        if self._iterator is not None and (self._one_pass or not self._in_epoch):
            end = f"the data ended after {self._read} batches of a run of more"
            raise TrainingError(f"{end}; a list or a DataLoader begins again", parameter="data")
        self._epoch, self._in_epoch = self._epoch + 1, 0
        torch.manual_seed(stream_seed(self._seed, "loader", self._epoch))
        self._iterator = iter(self._data)
        first = next(self._iterator, None)
        if first is None:
            raise TrainingError("the data have no batches", parameter="data")
        return first


def _length(loader: DataLoader[Any]) -> int:
    try:
        return len(loader)
    except TypeError:  # of a stream
        return 0
