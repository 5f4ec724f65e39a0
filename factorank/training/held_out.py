"""The likelihood of held-out orders."""

import math
from dataclasses import dataclass
from typing import Any

import torch

from factorank.training.batches import Batch, take, to_device
from factorank.training.processes import World
from factorank.training.random_streams import stream_seed

BITS = 1.0 / math.log(2.0)
"""Bits in a nat."""


class HeldOut:
    """Mean loss on held-out orders, with the same masks every time so that values can be compared."""

    def __init__(self, batch: Batch, batch_size: int, seed: int, bf16: bool, world: World) -> None:
        self._data = to_device(batch, world.device)
        self._starts = range(world.rank * batch_size, batch[0].shape[0], world.size * batch_size)
        self._size, self._bf16, self._world = batch_size, bf16, world
        self._seed = stream_seed(seed, "held-out", world.rank)
        self._generator = torch.Generator(world.device)

    @torch.no_grad()
    def nats(self, model: Any) -> float:
        """The mean loss of the model over all rows, in nats."""
        was_training = model.training
        model.eval()
        self._generator.manual_seed(self._seed)
        device = self._world.device
        total = torch.zeros((), dtype=torch.float64 if device.type != "mps" else torch.float32, device=device)
        rows = 0
        for start in self._starts:
            order, context = take(self._data, slice(start, start + self._size))
            with torch.autocast(device.type, torch.bfloat16, enabled=self._bf16):
                loss = model.loss(order, context, generator=self._generator)
            total += loss.to(total.dtype).sum()
            rows += order.shape[0]
        model.train(was_training)
        summed, count = self._world.total([float(total), float(rows)])
        return summed / count


@dataclass
class Best:
    """The best held-out loss so far, its step, the scores since, and the weights."""

    nats: float | None = None
    step: int | None = None
    since: int = 0
    weights: list[torch.Tensor] | None = None

    def offer(self, nats: float, step: int, weights: list[torch.Tensor]) -> bool:
        """Keep the weights if their loss is the lowest so far; whether it is."""
        if math.isnan(nats) or (self.nats is not None and not nats < self.nats):
            self.since += 1
            return False
        self.nats, self.step, self.since = nats, step, 0
        self.weights = [weight.detach().clone() for weight in weights]
        return True
