"""Random lists of n items from the ratings of users, by tensor operations that never synchronise."""

import torch
from torch import Tensor


def random_places(lengths: Tensor, n: int, generator: torch.Generator | None) -> Tensor:
    """For each of ``(batch,)`` lengths m, n different whole numbers below m in random order: ``(batch, n)``.

    They are the first n places of a Fisher-Yates shuffle of 0..m-1. The m numbers are never written down, so
    that the cost does not depend on m. Draw i swaps places i and :math:`d_i`, uniform in i..m-1. The number
    at :math:`d_i` is :math:`d_i` itself, unless an earlier draw j went there, too, and left the number of its
    own place j. The last such j counts, and following these pointers to their end takes :math:`\\log_2 n`
    doublings. If m < n, the numbers from place m on mean nothing.
    """
    batch, device = len(lengths), lengths.device
    step = torch.arange(n, device=device)
    uniform = torch.rand((batch, n), dtype=torch.float64, device=device, generator=generator)
    room = (lengths[:, None] - step).clamp(min=1)
    draws = step + (uniform * room).to(torch.int64).clamp(max=room - 1)
    # The last draw before i that went to place i, if any: the number at i came from there.
    last = torch.full((batch, n + 1), -1, device=device)
    elsewhere = (draws < n) & (draws > step)
    last.scatter_reduce_(1, torch.where(elsewhere, draws, n), step.expand(batch, n), "amax")
    origin = torch.where(last[:, :n] >= 0, last[:, :n], step)
    for _ in range(max(n - 1, 0).bit_length()):
        origin = origin.gather(1, origin)
    # The last draw before i that went where draw i goes: its neighbour when draws are sorted by place.
    keys = (draws * n + step).sort(1).values
    where, who = keys // max(n, 1), keys % max(n, 1)
    same = torch.nn.functional.pad(where[:, 1:] == where[:, :-1], (1, 0))
    before = torch.where(same, who.roll(1, 1), -1)
    earlier = torch.empty_like(before).scatter_(1, who, before)
    return torch.where(earlier >= 0, origin.gather(1, earlier.clamp(min=0)), draws)


class UsersByActivity:
    """Users sorted by their number of ratings ``lengths`` ``(users,)``, the most active first."""

    def __init__(self, lengths: Tensor) -> None:
        self.longest = int(lengths.max()) if len(lengths) else 0
        """The number of ratings of the most active user."""
        self.users = lengths.argsort(descending=True, stable=True)
        counts = torch.bincount(lengths, minlength=self.longest + 1)
        self.at_least = counts.flip(0).cumsum(0).flip(0)
        """The number of users with at least m ratings, for m = 0..longest: the first so many of ``users``."""

    def draw(
        self, shortest: int, longest: int, batch: int, generator: torch.Generator | None
    ) -> tuple[Tensor, Tensor]:
        """Users and lengths ``(batch,)``: lengths uniform in shortest..longest, users with enough ratings."""
        device, more = self.users.device, longest - shortest
        length = torch.full((batch,), shortest, device=device)
        if more:
            uniform = torch.rand(batch, dtype=torch.float64, device=device, generator=generator)
            length = length + (uniform * (more + 1)).to(torch.int64).clamp(max=more)
        uniform = torch.rand(batch, dtype=torch.float64, device=device, generator=generator)
        among = self.at_least[length]
        return self.users[(uniform * among).to(torch.int64).clamp(max=among - 1)], length


def order_of(relevance: Tensor, generator: torch.Generator | None = None) -> Tensor:
    """The places ``(*batch, n)`` of a list's items, best first: an order over the places 0..n-1 of the list.

    Equal relevances are put in random order. Relevances below 0 mark padding, which keeps its order, last.

    >>> order_of(torch.tensor([1.0, 5.0, 3.0, -1.0]))
    tensor([1, 2, 0, 3])
    """
    n = relevance.shape[-1]
    keys = torch.rand(relevance.shape, device=relevance.device, generator=generator)
    keys = torch.where(relevance < 0, 1 + torch.arange(n, device=relevance.device), keys)
    shuffle = keys.argsort(-1)
    best_first = relevance.gather(-1, shuffle).argsort(dim=-1, descending=True, stable=True)
    return shuffle.gather(-1, best_first)
