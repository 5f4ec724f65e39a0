"""An exponential moving average of the weights."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor


class Average:
    r"""The moving average :math:`a \leftarrow a + (1 - d)(w - a)` of some tensors w.

    The decay starts low and rises to d, :math:`d_t = \min(d, (1 + t) / (10 + t))`, so that the average
    forgets the random first weights at once. ``update`` is tensor operations only and may be captured;
    ``prepare`` sets the decay of the step from the host.

    >>> weight = torch.zeros(2)
    >>> average = Average([weight], 0.5)
    >>> average.prepare(100)
    >>> _ = weight.fill_(1.0)
    >>> average.update()
    >>> average.tensors[0]
    tensor([0.5000, 0.5000])
    """

    def __init__(self, weights: Sequence[Tensor], decay: float) -> None:
        self.weights = list(weights)
        self.decay = decay
        self.tensors = [weight.detach().clone() for weight in self.weights]
        device = self.weights[0].device if self.weights else None
        self.pull = torch.ones((), device=device)
        """How far the next update moves: 1 less the decay."""
        self._pull_now: float | None = None

    def prepare(self, step: int) -> None:
        """Set the decay of a step, counted from 0, without waiting for the device."""
        pull = 1.0 - min(self.decay, (1 + step) / (10 + step))
        if pull != self._pull_now:
            self.pull.fill_(pull)
            self._pull_now = pull

    @torch.no_grad()
    def update(self) -> None:
        """Move the average towards the weights as they are now."""
        change = torch._foreach_sub(self.weights, self.tensors)
        torch._foreach_mul_(change, self.pull)
        torch._foreach_add_(self.tensors, change)


@contextmanager
def holding(weights: Sequence[Tensor], values: Sequence[Tensor]) -> Iterator[None]:
    """Give the weights other values inside the block; it restores their own afterwards, bit for bit.

    The copies are made in place: a captured graph goes on reading the same memory.
    """
    with torch.no_grad():
        own = [weight.detach().clone() for weight in weights]
        copy_into(weights, values)
    try:
        yield
    finally:
        copy_into(weights, own)


@torch.no_grad()
def copy_into(weights: Sequence[Tensor], values: Sequence[Tensor]) -> None:
    """Copy values into weights in place."""
    for weight, value in zip(weights, values, strict=True):
        weight.copy_(value)
