"""The dynamic programme of laws whose insertion slots are independent."""

import math
from functools import partial
from typing import Self

import torch
from torch import Tensor

from factorank.distributions.conditioning.programmes.place_sets import PlaceSets
from factorank.distributions.conditioning.programmes.programme import NEVER, Programme


class InsertionProgramme(Programme):
    """Inserts the items of the reference one by one.

    It tracks the places of those observed items between which others are still to be inserted.
    """

    def __init__(self, chain: list[int], n: int, best: bool) -> None:
        super().__init__(chain, n, best)
        self.tracked = [self._needed(i) for i in range(n + 1)]
        self.position = {item: c for c, item in enumerate(chain)}

    def _needed(self, i: int) -> list[int]:
        """Positions in the chain of the items that matter once items 0..i-1 are inserted."""
        here = [item < i for item in self.chain]
        last = len(self.chain) - 1
        return [
            c
            for c in range(last + 1)
            if here[c] and ((c and not here[c - 1]) or (c < last and not here[c + 1]))
        ]

    def states(self, limit: int) -> int:
        total = 0
        for i, tracked in enumerate(self.tracked):
            total += math.comb(i, len(tracked)) if tracked else 0
            if total > limit:
                break
        return total

    def run(self, table: Tensor) -> Self:
        self.table = table.double().clamp(min=NEVER)
        self.numbering = PlaceSets(self.n, max(len(tracked) for tracked in self.tracked), table.device)
        # beyond[i]: by the number of the set of tracked places, after i items are inserted.
        self.beyond = [self.table.new_zeros(1)] * (self.n + 1)
        for i in reversed(range(self.n)):
            self.beyond[i] = self.beyond[i + 1]
            if self.tracked[i] or i in self.position:
                sets = self.numbering.sets(i, len(self.tracked[i]))
                self.beyond[i] = self._totals(sets, partial(self._weights, i), i + 1)
        total = self.beyond[0][0]
        self.log_evidence = torch.where(total > NEVER / 2, total, -math.inf)
        return self

    def _weights(self, i: int, places: Tensor) -> Tensor:
        """For tracked places ``(rows, k)`` the log-weight of each slot of item i, ``(rows, i + 1)``."""
        beyond, slots = self.beyond[i + 1], torch.arange(i + 1, device=places.device)
        if i not in self.position:
            # A slot moves the places at or behind it; only the number of those before it matters.
            gap = (slots > places[..., None]).sum(-2)
            return self.table[i, : i + 1] + beyond[self.numbering.shifted(places, 1)].gather(-1, gap)
        before, low, high = self._bounds(i, places)
        number = torch.zeros_like(low)
        for position, c in enumerate(self.tracked[i + 1]):
            if c == self.position[i]:
                number = number + self.numbering.part(slots, position)
            else:
                j = self.tracked[i].index(c)
                number = number + self.numbering.part(places[:, j : j + 1] + (j >= before), position)
        inside = (slots > low) & (slots <= high)
        after = beyond[torch.where(inside, number.expand_as(inside), 0)]
        return torch.where(inside, self.table[i, : i + 1] + after, NEVER)

    def _bounds(self, i: int, places: Tensor) -> tuple[int, Tensor, Tensor]:
        """How many tracked items come before item i in the chain; the slots (low, high] that agree."""
        tracked = self.tracked[i]
        before = sum(c < self.position[i] for c in tracked)
        low = places[:, before - 1 : before] if before else places.new_full((len(places), 1), -1)
        high = (
            places[:, before : before + 1] if before < len(tracked) else places.new_full((len(places), 1), i)
        )
        return before, low, high

    def sample(self, count: int, generator: torch.Generator | None) -> Tensor:
        places = torch.zeros((count, 0), dtype=torch.int64, device=self.table.device)
        digits = []
        for i in range(self.n):
            if not self.tracked[i] and i not in self.position:
                digits.append(self._draw_free(i, count, generator))
                continue
            slot = self._pick(self._weights(i, places), generator)
            digits.append(slot)
            column = slot[:, None]
            places = places + (places >= column)
            if i in self.position:
                every = dict(zip(self.tracked[i], places.unbind(-1), strict=True)) | {self.position[i]: slot}
                kept = [every[c] for c in self.tracked[i + 1]]
                places = torch.stack(kept, -1) if kept else places[:, :0]
        return torch.stack(digits, -1)
