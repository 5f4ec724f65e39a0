"""The dynamic programme over the places of the observed items, as far as both codes share it.

The digits of the code are drawn one by one. The state is where the observed items stand so far, as far as it
still matters. ``beyond[state]`` is the log-probability that the digits to come agree with the observation,
computed from the last step back; sampling then goes forward.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Self

import torch
from torch import Tensor

from factorank.distributions.conditioning.programmes.place_sets import PlaceSets
from factorank.distributions.drawing import draw_index

NEVER = -1e15
"""Stands for the logarithm of zero: finite, so that gradients stay numbers."""
_CELLS = 2**22
"""How many (state, digit) pairs are handled at once."""


class Programme(ABC):
    """The dynamic programme for one law and one observed chain of its items, named by the reference.

    With ``best`` it finds the most likely digits: sums become maxima, and draws become the best choice.
    """

    log_evidence: Tensor
    table: Tensor
    numbering: PlaceSets

    def __init__(self, chain: list[int], n: int, best: bool) -> None:
        self.chain, self.n, self.best = chain, n, best

    @abstractmethod
    def states(self, limit: int) -> int:
        """How many states there are; counting stops above the limit."""

    @abstractmethod
    def run(self, table: Tensor) -> Self:
        """Compute ``log_evidence`` and what sampling needs from the digits' log-probabilities ``(n, n)``."""

    @abstractmethod
    def sample(self, count: int, generator: torch.Generator | None) -> Tensor:
        """Draw digits ``(count, n)``."""

    def _totals(self, sets: Tensor, weights: Callable[[Tensor], Tensor], digits: int) -> Tensor:
        """For each set of places the log of the summed weights of all digits, or of the largest."""
        step = max(_CELLS // digits, 1)
        logs = [weights(part) for part in sets.split(step)]
        return torch.cat([part.amax(-1) if self.best else part.logsumexp(-1) for part in logs])

    def _pick(self, weights: Tensor, generator: torch.Generator | None) -> Tensor:
        return weights.argmax(-1) if self.best else draw_index(weights.log_softmax(-1), generator)

    def _draw_free(self, i: int, count: int, generator: torch.Generator | None) -> Tensor:
        """Draw digit i where the observation does not restrict it."""
        if self.best:
            return self.table[i].argmax().expand(count)
        cumulative = self.table[i].detach().exp().cumsum(-1)
        uniform = torch.rand(count, dtype=torch.float64, device=cumulative.device, generator=generator)
        return torch.searchsorted(cumulative, uniform * cumulative[-1], right=True)
