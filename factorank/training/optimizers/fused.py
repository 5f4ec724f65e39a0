"""AdamW with clipping and average in two launches, for float32 weights on one GPU."""

from typing import Any

import torch
from torch import Tensor

from factorank.training.optimizers.adamw import EPS, Named, decays
from factorank.training.optimizers.average import Average
from factorank.training.settings import TrainSettings


class FusedUpdate:
    """The same change as :class:`factorank.training.optimizers.adamw.TorchUpdate`."""

    optimizer: Any = None

    def __init__(
        self, named: Named, device: torch.device, settings: TrainSettings, average: Average | None
    ) -> None:
        from factorank.kernels.gpu import optimizer  # needs Triton

        self._kernels = optimizer
        self.named, self.settings, self.average = named, settings, average
        self.moments = [(torch.zeros_like(weight), torch.zeros_like(weight)) for _, weight in named]
        self._lr = torch.tensor(settings.lr, device=device)
        self._count = torch.zeros((), device=device)
        rows = sum(-(-weight.numel() // optimizer.CHUNK) for _, weight in named)
        self._host = torch.zeros((rows, optimizer.COLUMNS), dtype=torch.int64)
        self._table = torch.zeros((rows, optimizer.COLUMNS), dtype=torch.int64, device=device)
        self._squares = torch.zeros(rows, device=device)

    def set_lr(self, lr: float) -> None:
        self._lr.fill_(lr)

    @torch.no_grad()
    def apply(self, norm: Tensor) -> None:
        gradients = [weight.grad for _, weight in self.named]
        self._gradients = [None if gradient is None else gradient.contiguous() for gradient in gradients]
        self._fill_table()
        if not torch.cuda.is_current_stream_capturing():
            self.captured()
        pull = None if self.average is None else self.average.pull
        rates = {name: getattr(self.settings, name) for name in ("betas", "weight_decay", "clip")}
        state = self._table, self._squares, self._count
        self._kernels.adamw(*state, norm, self._lr, pull, eps=EPS, **rates)

    def captured(self) -> None:
        """Send the table to the device: a recorded step reads gradients at these addresses."""
        self._table.copy_(self._host)

    def state(self) -> dict[str, Tensor]:
        state: dict[str, Tensor] = {}
        for (name, _), (first, second) in zip(self.named, self.moments, strict=True):
            state |= {f"step/{name}": self._count, f"exp_avg/{name}": first, f"exp_avg_sq/{name}": second}
        return state

    def load_state(self, tensors: dict[str, Tensor]) -> None:
        own = self.state()
        for path, value in tensors.items():
            own[path].copy_(value)

    def _fill_table(self) -> None:
        at, host, chunk = 0, self._host.numpy(), self._kernels.CHUNK
        averages = self.average.tensors if self.average is not None else [None] * len(self.named)
        rows = zip(self.named, self._gradients, self.moments, averages, strict=True)
        for (_, weight), gradient, moments, average in rows:
            tensors = (weight, gradient, *moments, average)
            starts = [0 if tensor is None else tensor.data_ptr() for tensor in tensors]
            for first in range(0, weight.numel(), chunk):
                length = 0 if gradient is None else min(chunk, weight.numel() - first)
                host[at, :5] = [start + first * 4 for start in starts]
                host[at, 5:] = length, decays(weight)
                at += 1
