"""The model that sorts numbers of four handwritten digits: a reader of cells, and the law of the order."""

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn

from factorank.distributions import PermutationDistribution, PlackettLuce, RandomGrades
from factorank.experiments.digit_networks import DigitNetwork
from factorank.models.saving import read_module, rebuilt, write_module

Method = Literal["factorank", "score-and-sort"]
CELLS, LEVELS = 4, 10
FLOOR = 1e-4
"""What the levels of a cell share evenly: a digit that is misread must not make an order impossible."""
FORMAT, VERSION = "factorank-sorter", 1


class NumberSorter(nn.Module):
    """The law of the order of numbers ``(*batch, n, 4, 28, 28)``, smallest first."""

    def __init__(self, method: Method, channels: Sequence[int]) -> None:
        super().__init__()
        self.method, self.channels = method, tuple(channels)
        self.features = 128 if method == "score-and-sort" else LEVELS
        self.reader = DigitNetwork(self.features, self.channels)
        self.scorer: nn.Module | None = None
        if method == "score-and-sort":
            sizes = (CELLS * self.features, 512, 512)
            hidden = [layer for a, b in pairwise(sizes) for layer in (nn.Linear(a, b), nn.GELU())]
            self.scorer = nn.Sequential(*hidden, nn.Linear(sizes[-1], 1))

    def law_of(self, features: Tensor, *, check: bool = True) -> PermutationDistribution:
        """The law of the order of numbers whose cells have these features ``(*batch, n, 4, features)``."""
        if self.scorer is not None:
            return PlackettLuce(self.scorer(features.flatten(-2)).squeeze(-1), validate_args=check)
        levels = ((1 - FLOOR) * features.double().softmax(-1) + FLOOR / LEVELS).log()
        grades = levels[..., 0, :]
        for cell in range(1, CELLS):
            grades = (grades[..., None] + levels[..., cell, None, :]).flatten(-2)
        return RandomGrades(grades, validate_args=check)

    def distribution(self, numbers: Tensor) -> PermutationDistribution:
        """The law of the order of numbers ``(*batch, n, 4, 28, 28)``: pixels from 0 to 1, or bytes."""
        return self.law_of(self.reader(numbers))

    def sort(self, features: Tensor) -> Tensor:
        """A likely order ``(*batch, n)`` of numbers with these features."""
        if self.scorer is not None:
            return self.law_of(features).mode
        place_value = LEVELS ** torch.arange(CELLS - 1, -1, -1, device=features.device)
        return (features.argmax(-1) * place_value).sum(-1).argsort(dim=-1, stable=True)

    def loss(self, order: Tensor, context: Tensor, *, generator: torch.Generator | None = None) -> Tensor:
        """The exact :math:`-\\log p` of each order ``(*batch, n)``, in nats: ``(*batch,)``."""
        features = self.reader(context)
        with torch.autocast(order.device.type, enabled=False):
            return -self.law_of(features.float(), check=False).log_prob(order)

    def config(self) -> dict[str, Any]:
        return {"method": self.method, "channels": list(self.channels)}

    def save_pretrained(self, folder: str | Path, dtype: torch.dtype | None = None) -> None:
        """Write ``model.safetensors`` and ``config.json`` into a folder, both or neither."""
        write_module(self, folder, FORMAT, VERSION, self.config(), dtype)

    @classmethod
    def from_pretrained(cls, folder: str | Path) -> "NumberSorter":
        """Load what :meth:`save_pretrained` wrote, in eval mode."""
        wanted = ("method", "channels")
        config, weights = read_module(Path(folder), FORMAT, VERSION, wanted, "a sorter of numbers")
        return rebuilt(lambda: cls(**config), weights, Path(folder))
