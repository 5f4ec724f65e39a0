"""Numbers for sets of places: the combinatorial number system."""

import math

import torch
from torch import Tensor


class PlaceSets:
    r"""Numbers the sets of k of the places 0, 1, …

    The number of a set is :math:`\sum_j \binom{s_j}{j+1}`, whatever the number of places.
    """

    def __init__(self, n: int, most: int, device: torch.device) -> None:
        top = torch.iinfo(torch.int64).max // 4
        rows = [[min(math.comb(place, k), top) for k in range(1, most + 1)] for place in range(n + 2)]
        self.binomials = torch.tensor(rows, dtype=torch.int64, device=device).view(n + 2, most)

    def part(self, place: Tensor, position: int) -> Tensor:
        """What a place at that position of a rising set adds to the number of the set."""
        return self.binomials[place, position]

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
