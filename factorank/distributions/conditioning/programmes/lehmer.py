"""The dynamic programme of laws whose Lehmer digits are independent."""

import math
from functools import partial
from typing import Self

import torch
from torch import Tensor

from factorank.distributions.conditioning.programmes.place_sets import PlaceSets
from factorank.distributions.conditioning.programmes.programme import NEVER, Programme


class LehmerProgramme(Programme):
    """Fills the places one by one, each with the item at index ``digit`` among those left.

    The state is how many observed items are placed, and the indices of the others among the items left. The
    last one of the chain is free to go anywhere.
    """

    def __init__(self, chain: list[int], n: int, best: bool) -> None:
        super().__init__(chain, n, best)
        self.last = len(chain) - 1
        self.next = [sorted(chain[c:]).index(chain[c]) for c in range(len(chain))]

    def states(self, limit: int) -> int:
        total = 0
        for i in range(self.n):
            total += sum(math.comb(self.n - i, len(self.chain) - c) for c in range(min(i + 1, self.last)))
            if total > limit:
                break
        return total

    def run(self, table: Tensor) -> Self:
        self.table = table.double().clamp(min=NEVER)
        self.numbering = PlaceSets(self.n, len(self.chain), table.device)
        never, free = self.table.new_full((1,), NEVER), self.table.new_zeros(self.n + 1)
        if self.best:
            free[:-1] = self.table.amax(-1).flip(0).cumsum(0).flip(0)
        # beyond[i][c]: by the number of the set of indices, after i places are filled; never where none is.
        self.beyond = [[never] * self.last + [free[i : i + 1]] for i in range(self.n + 1)]
        for i in reversed(range(self.n)):
            for c in range(min(i + 1, self.last)):
                sets = self.numbering.sets(self.n - i, len(self.chain) - c)
                if len(sets):
                    self.beyond[i][c] = self._totals(sets, partial(self._weights, i, c), self.n - i)
        start = torch.tensor(sorted(self.chain), device=table.device)
        total = self.beyond[0][0][self.numbering.of(start)]
        self.log_evidence = torch.where(total > NEVER / 2, total, -math.inf)
        return self

    def _weights(self, i: int, c: int, places: Tensor) -> Tensor:
        """For indices ``(rows, k)`` of the chain from c on: log-weights of the digits ``(rows, n - i)``."""
        left = torch.arange(self.n - i, device=places.device)
        gap = (left > places[..., None]).sum(-2)
        stay, go = self.beyond[i + 1][c], self.beyond[i + 1][c + 1]
        weights = stay[self.numbering.shifted(places, -1).clamp(max=len(stay) - 1)].gather(-1, gap)
        weights = weights.masked_fill((left == places[..., None]).any(-2), NEVER)
        chosen, rest = self._without_next(c, places)
        number = (
            self.numbering.of(rest).clamp(max=len(go) - 1) if c + 1 < self.last else torch.zeros_like(chosen)
        )
        weights = torch.where(left == chosen[:, None], go[number][:, None], weights)
        return self.table[i, : self.n - i] + weights

    def _without_next(self, c: int, places: Tensor) -> tuple[Tensor, Tensor]:
        """The index of the next item of the chain, and the indices of the others once it is placed."""
        t = self.next[c]
        return places[:, t], torch.cat((places[:, :t], places[:, t + 1 :] - 1), -1)

    def sample(self, count: int, generator: torch.Generator | None) -> Tensor:
        device = self.table.device
        digits = torch.empty((count, self.n), dtype=torch.int64, device=device)
        start = torch.tensor(sorted(self.chain), device=device).repeat(count, 1)
        groups = {0: (torch.arange(count, device=device), start)}  # by how many of the chain are placed
        for i in range(self.n):
            arrived: dict[int, list[tuple[Tensor, Tensor]]] = {}
            for c, (rows, places) in groups.items():
                if c == self.last:
                    digits[rows, i] = self._draw_free(i, len(rows), generator)
                    arrived.setdefault(c, []).append((rows, places))
                    continue
                digit = self._pick(self._weights(i, c, places), generator)
                digits[rows, i] = digit
                chosen, rest = self._without_next(c, places)
                placed = digit == chosen
                arrived.setdefault(c + 1, []).append((rows[placed], rest[placed]))
                moved = places - (places > digit[:, None]).to(torch.int64)
                arrived.setdefault(c, []).append((rows[~placed], moved[~placed]))
            groups = {
                c: (torch.cat([rows for rows, _ in parts]), torch.cat([places for _, places in parts]))
                for c, parts in arrived.items()
            }
        return digits
