"""Lists of items to rank, and the observed order of some of them, as tensors."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass
class Lists:
    """Lists of items, and what is observed of some of them.

    ``items (rows, n)`` are the encoder's ids, -1 after the end. ``observed (rows, r)`` are places in the
    list, best first, -1 after the end. ``features (rows, n, f)`` are those of items that have no embedding,
    or None. ``relevance (rows, r)`` is that of the observed items, NaN where there is no rating, or None.
    """

    items: Tensor
    observed: Tensor
    features: Tensor | None = None
    relevance: Tensor | None = None

    def __len__(self) -> int:
        return len(self.items)

    def part(self, rows: slice) -> "Lists":
        """Some of the rows."""
        return self._each(lambda tensor: tensor[rows])

    def to(self, device: torch.device) -> "Lists":
        """The same lists on a device."""
        return self._each(lambda tensor: tensor.to(device))

    @property
    def informative(self) -> Tensor:
        """Which rows have observations that carry information, bool ``(rows, 1)``: the order of two items or
        more, or a rating. One item alone, without its rating, carries none."""
        several = (self.observed >= 0).sum(-1, keepdim=True) > 1
        if self.relevance is None:
            return several
        return several | ((self.observed >= 0) & ~self.relevance.isnan()).any(-1, keepdim=True)

    @property
    def is_observed(self) -> Tensor:
        """Which places of the list are observed, bool ``(rows, n)``."""
        rows, n = self.items.shape
        mask = torch.zeros((rows, n + 1), dtype=torch.bool, device=self.items.device)
        return mask.scatter_(-1, torch.where(self.observed < 0, n, self.observed), True)[:, :n]

    def _each(self, change: Callable[[Tensor], Tensor]) -> "Lists":
        return Lists(*(None if part is None else change(part) for part in vars(self).values()))  # type: ignore[arg-type]
