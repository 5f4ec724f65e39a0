"""The dynamic programmes over the places of the observed items, which condition factorized laws.

The digits of the code are drawn one by one. The state is where the observed items stand so far, as far as it
still matters. ``beyond[state]`` is the log-probability that the digits to come agree with the observation,
computed from the last step back; sampling then goes forward.
"""

import math
from collections.abc import Callable
from functools import partial
from typing import Self

import torch
from torch import Tensor

from factorank.distributions.drawing import draw_index

NEVER = -1e15
"""Stands for the logarithm of zero: finite, so that gradients stay numbers."""
_CELLS = 2**22
"""How many (state, digit) pairs are handled at once."""


class _Programme:
    """The dynamic programme for one law and one observed chain of its items, named by the reference.

    ``states(limit)`` counts the states, and stops above the limit. ``run(table)`` computes ``log_evidence``
    and what sampling needs from the digits' log-probabilities ``(n, n)``. ``sample`` draws digits
    ``(count, n)``. With ``best`` it finds the most likely digits: sums become maxima, and draws become the
    best choice.
    """

    log_evidence: Tensor
    table: Tensor

    def __init__(self, chain: list[int], n: int, best: bool) -> None:
        self.chain, self.n, self.best = chain, n, best

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


class InsertionProgramme(_Programme):
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
        around = [True, *here, True]  # nothing is to come beyond the ends of the chain
        return [c for c, inserted in enumerate(here) if inserted and not (around[c] and around[c + 2])]

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
        # The slots (low, high] agree: those between the neighbours of item i in the chain.
        before = sum(c < self.position[i] for c in self.tracked[i])
        ends = places.new_tensor([-1, i]).expand(len(places), 2)
        walls = torch.cat((ends[:, :1], places, ends[:, 1:]), -1)
        low, high = walls[:, before : before + 1], walls[:, before + 1 : before + 2]
        number = torch.zeros_like(low)
        for position, c in enumerate(self.tracked[i + 1]):
            if c == self.position[i]:
                number = number + self.numbering.binomials[slots, position]
            else:
                j = self.tracked[i].index(c)
                moved = places[:, j : j + 1] + (j >= before)
                number = number + self.numbering.binomials[moved, position]
        inside = (slots > low) & (slots <= high)
        after = beyond[torch.where(inside, number.expand_as(inside), 0)]
        return torch.where(inside, self.table[i, : i + 1] + after, NEVER)

    def sample(self, count: int, generator: torch.Generator | None) -> Tensor:
        places = torch.zeros((count, 0), dtype=torch.int64, device=self.table.device)
        digits = []
        for i in range(self.n):
            if not self.tracked[i] and i not in self.position:
                digits.append(self._draw_free(i, count, generator))
                continue
            slot = self._pick(self._weights(i, places), generator)
            digits.append(slot)
            places = places + (places >= slot[:, None])
            if i in self.position:
                every = dict(zip(self.tracked[i], places.unbind(-1), strict=True)) | {self.position[i]: slot}
                kept = [every[c] for c in self.tracked[i + 1]]
                places = torch.stack(kept, -1) if kept else places[:, :0]
        return torch.stack(digits, -1)


class LehmerProgramme(_Programme):
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
        number = self.numbering.of(rest).clamp(max=len(go) - 1)
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


class PlaceSets:
    r"""Numbers the sets of k of the places 0, 1, …

    The number of a set is :math:`\sum_j \binom{s_j}{j+1}`, whatever the number of places.
    """

    def __init__(self, n: int, most: int, device: torch.device) -> None:
        top = torch.iinfo(torch.int64).max // 4
        rows = [[min(math.comb(place, k), top) for k in range(1, most + 1)] for place in range(n + 2)]
        self.binomials = torch.tensor(rows, dtype=torch.int64, device=device).view(n + 2, most)

    def of(self, places: Tensor) -> Tensor:
        """The numbers ``(*rows,)`` of rising sets ``(*rows, k)``."""
        return self.binomials[places, torch.arange(places.shape[-1], device=places.device)].sum(-1)

    def shifted(self, places: Tensor, by: int) -> Tensor:
        """For g = 0..k the number of the set with its places from the g-th on shifted: ``(rows, k + 1)``."""
        position = torch.arange(places.shape[-1], device=places.device)
        stay = self.binomials[places, position].cumsum(-1)
        move = self.binomials[(places + by).clamp(min=0), position].flip(-1).cumsum(-1).flip(-1)
        pad = torch.nn.functional.pad
        return pad(stay, (1, 0)) + pad(move, (0, 1))

    def sets(self, places: int, k: int) -> Tensor:
        """All sets of k of that many places, by number: ``(sets, k)``."""
        device = self.binomials.device
        if k == 0:
            return torch.zeros((1, 0), dtype=torch.int64, device=device)
        listed = torch.combinations(torch.arange(places, device=device), k)
        return listed[self.of(listed).argsort()] if len(listed) else listed.view(0, k)
