"""The models and data that the speed benchmarks measure, at the paper's sizes; the weights are random."""

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

import factorank as fr
from factorank.experiments.cyclic import PRESETS
from factorank.jigsaw.encoder import PieceEncoder
from factorank.models import PermutationModel
from factorank.models.context import ItemContext
from factorank.models.model import Objective

ITEMS = 1000
"""Of the catalogue that lists are re-ranked from."""


@dataclass(frozen=True)
class Workload:
    """A network and a batch of data for it."""

    n: int
    code: str
    width: int
    depth: int
    heads: int = 8
    dropout: float = 0.0
    objective: Objective = "masked"
    context: str | None = None
    """What the model's encoder reads: "pieces" of a puzzle, "items" of a catalogue, or nothing."""
    batch: int = 1024

    def small(self) -> "Workload":
        """The same on a scale that shows whether everything runs."""
        heads = 2 if self.heads > 1 else 1
        return replace(self, width=32, depth=2, heads=heads, batch=min(self.batch, 32))

    def model(self, device: str) -> PermutationModel:
        torch.manual_seed(0)
        context: Any = None
        if self.context == "pieces":
            grid = round(self.n**0.5)
            context = PieceEncoder(grid=grid, piece=32 // grid, width=self.width)
        elif self.context == "items":
            context = ItemContext(ITEMS, self.width)
        shape = (self.width, self.depth, self.heads, self.dropout)
        return PermutationModel(self.n, self.code, self.objective, *shape, context=context).to(device)

    def contexts(self, rows: int, device: str) -> Tensor | None:
        """The contexts of that many lists."""
        if self.context == "pieces":
            grid = round(self.n**0.5)
            shape = (rows, self.n, 32 // grid, 32 // grid, 3)
            return torch.randint(256, shape, dtype=torch.uint8, device=device)
        if self.context == "items":
            return torch.randint(ITEMS, (rows, self.n), device=device)
        return None

    def orders(self, rows: int, device: str) -> Tensor:
        make = fr.random_permutations if self.context else fr.random_cyclic
        generator = torch.Generator(device).manual_seed(0)
        return make(self.n, (rows,), generator=generator, device=device)

    def data(self, rows: int, device: str) -> Any:
        """Orders, or (orders, context)."""
        orders, contexts = self.orders(rows, device), self.contexts(rows, device)
        return orders if contexts is None else (orders, contexts)


def _laptop() -> Workload:
    size = PRESETS["laptop"]
    shape = (size.width, size.depth, size.heads, size.dropout)
    return Workload(size.n, "fisher-yates", *shape, batch=size.batch_size)


CYCLIC = Workload(10, "fisher-yates", 128, 8, dropout=0.05)
JIGSAW = Workload(16, "lehmer", 128, 7, context="pieces")
JIGSAW_LARGE = Workload(36, "lehmer", 128, 7, context="pieces")
RERANK = Workload(50, "insertion", 256, 10, context="items")
AUTOREGRESSIVE = Workload(50, "fisher-yates", 128, 8, objective="autoregressive")
LAPTOP = _laptop()

LENGTHS = (10, 20, 50, 100, 200, 500, 1000)
BATCHES = (64, 256, 1024, 4096, 16_384, 65_536)


def of_length(n: int) -> Workload:
    """The network of the cyclic experiment for n items."""
    return replace(CYCLIC, n=n, dropout=0.0)
