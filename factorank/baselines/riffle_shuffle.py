"""The riffle shuffle: its law, its distance from uniform, and the steps of a diffusion by it."""

import functools
import itertools
import math
from typing import ClassVar

import torch
from torch import Tensor
from torch.distributions import constraints

from factorank.distributions.base import PermutationDistribution
from factorank.errors import DistributionError
from factorank.permutations import inverse

LARGEST = 1_000
"""So many cards at most: the numbers are exact, and have thousands of digits."""


class RiffleShuffle(PermutationDistribution):
    r"""Riffle shuffles of n cards: cut into a packets, then drop them one upon the other at random.

    .. math:: P(X) = \binom{a + n - r}{n} / a^n

    where ``order[i]`` is the card that comes to place i and r counts its rising sequences: runs of cards
    c, c + 1, … that still stand in this order. With a = 2 this is the model of Gilbert, Shannon and Reeds,
    and a shuffle with b packets after one with a is a shuffle with a·b: t riffle shuffles are one with
    2^t packets.

    Args:
        n: the number of cards.
        packets: a, 1 or more, a number or an integer tensor ``(*batch,)``.

    Bayer and Diaconis, "Trailing the dovetail shuffle to its lair", 1992.

    >>> law = RiffleShuffle(3, packets=2)
    >>> law.log_prob(torch.tensor([[0, 1, 2], [1, 0, 2], [2, 1, 0]])).exp()
    tensor([0.5000, 0.1250, 0.0000])
    >>> law.sample((5,)).shape
    torch.Size([5, 3])
    """

    arg_constraints: ClassVar[dict[str, constraints.Constraint]] = {"packets": constraints.positive_integer}
    packets: Tensor

    def __init__(self, n: int, packets: int | Tensor = 2, *, validate_args: bool | None = None) -> None:
        if isinstance(n, bool) or not isinstance(n, int) or n < 0:
            raise DistributionError(f"RiffleShuffle takes a number of cards of 0 or more, not {n!r}")
        counts = torch.as_tensor(packets)
        if counts.is_floating_point() or counts.dtype == torch.bool or bool((counts < 1).any()):
            raise DistributionError(f"RiffleShuffle takes 1 or more packets, not {packets!r}")
        self.packets = counts.to(torch.int64)
        super().__init__(self.packets.shape, n, validate_args)

    def _log_prob(self, order: Tensor) -> Tensor:
        shape = torch.broadcast_shapes(order.shape[:-1], self.batch_shape)
        packets, rising = self.packets.expand(shape), rising_sequences(order).expand(shape)
        factors = (packets - rising)[..., None] + torch.arange(1, self.n + 1, device=order.device)
        log_ways = factors.clamp(min=0).double().log().sum(-1) - math.lgamma(self.n + 1)
        return (log_ways - self.n * packets.double().log()).to(torch.get_default_dtype())

    def _sample(self, shape: torch.Size, generator: torch.Generator | None) -> Tensor:
        size = (*shape, *self.batch_shape, self.n)
        uniform = torch.rand(size, dtype=torch.float64, device=self.device, generator=generator)
        return riffle(uniform, self.packets)

    @property
    def mode(self) -> Tensor:
        """The cards as they were."""
        return torch.arange(self.n, device=self.device).expand(*self.batch_shape, self.n)

    def _entropy(self) -> Tensor:
        each = [riffle_entropy(self.n, packets) for packets in self.packets.reshape(-1).tolist()]
        return torch.tensor(each, device=self.device).view(self.batch_shape)


def riffle(uniform: Tensor, packets: Tensor) -> Tensor:
    """Shuffles ``(*batch, n)`` from independent uniform numbers in [0, 1); ``packets`` is ``(*batch,)``.

    A shuffle undone is a stable sort by random digits: the digit of place i is the packet of the card there.
    Digits of a power of two are exactly uniform as long as it is at most the 2^24 values of a float32. Tensor
    operations only.
    """
    digits = (uniform * packets[..., None]).floor()
    return inverse(digits.argsort(dim=-1, stable=True), check=False)


def rising_sequences(order: Tensor) -> Tensor:
    """How many rising sequences each order ``(*batch, n)`` has: 1 plus the c with c + 1 before c.

    >>> rising_sequences(torch.tensor([0, 3, 1, 4, 2]))  # 0 1 2 and 3 4
    tensor(2)
    """
    places = inverse(order, check=False)
    return 1 + (places[..., 1:] < places[..., :-1]).sum(-1)


def total_variation(n: int, first: int, second: int | None = None) -> float:
    """The total variation distance between ``first`` and ``second`` riffle shuffles of n cards.

    ``second=None`` stands for infinitely many: the uniform law. Exact: orders with as many rising sequences
    are equally likely, and Eulerian numbers count them.

    >>> [round(total_variation(52, t), 3) for t in (5, 6, 7, 8)]  # "seven shuffles are enough"
    [0.924, 0.614, 0.334, 0.167]
    """
    for name, number, what in (
        ("n", n, "cards"),
        ("first", first, "shuffles"),
        ("second", second, "shuffles"),
    ):
        if number is not None and not 0 <= number <= LARGEST:
            there = f"{{parameter}} is a number of {what} to {LARGEST:,}, not {number}"
            raise DistributionError(there, parameter=name)
    over, under = 2 ** (first * n), math.factorial(n) if second is None else 2 ** (second * n)
    other = [1] * n if second is None else _ways(n, 2**second)
    each = zip(_eulerian(n), _ways(n, 2**first), other, strict=True)
    return sum(count * abs(p * under - q * over) for count, p, q in each) / (2 * over * under)


def riffle_entropy(n: int, packets: int) -> float:
    """The entropy of a riffle shuffle of n cards, in nats.

    >>> round(riffle_entropy(2, 2), 4)  # three ways in four to leave two cards as they are
    0.5623
    """
    ways, total = _ways(n, packets), packets**n
    return sum(
        count * way / total * (math.log(total) - math.log(way))
        for count, way in zip(_eulerian(n), ways, strict=True)
        if way
    )


def denoising_schedule(n: int) -> list[int]:
    """The numbers of shuffles between which a diffusion over n cards steps, from 0 to T.

    T is the first number of shuffles within 0.01 of the uniform law, in total variation. The first shuffles,
    and those near T, hardly change that distance. So the first step leads to where it falls below one half,
    and each later step to the first number of shuffles that is 0.28 away from the last. For 4, 9,
    16, 25 and 36 cards these are the schedules that Zhang et al. publish for jigsaw puzzles.

    >>> denoising_schedule(9), denoising_schedule(16)
    ([0, 3, 5, 9], [0, 4, 6, 10])
    """
    if n < 2:
        return [0, 1]
    last = next(t for t in itertools.count(1) if total_variation(n, t) < 0.01)
    steps = [0, next(t for t in itertools.count(1) if total_variation(n, t) < 0.5)]
    while steps[-1] < last:
        now = steps[-1]
        far = (t for t in range(now + 1, last) if total_variation(n, now, t) >= 0.28)
        steps.append(next(far, last))
    return steps


@functools.cache
def _eulerian(n: int) -> list[int]:
    """How many orders of n cards have 1, 2, …, n rising sequences."""
    row = [1] if n else []
    for size in range(2, n + 1):
        before, after = [0, *row], [*row, 0]
        row = [(size - k) * before[k] + (k + 1) * after[k] for k in range(size)]
    return row


def _ways(n: int, packets: int) -> list[int]:
    """The ways, of packets^n, to come to an order with 1, 2, …, n rising sequences."""
    return [math.comb(packets + n - rising, n) if packets >= rising else 0 for rising in range(1, n + 1)]
