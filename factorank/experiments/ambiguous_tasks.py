"""Tasks with several right answers: what is given, which orders are right, and how likely each is.

A case lists n items. Its answers are *ranks*: ``rank[j]`` is the place of item j. The target of a case is one
of its two answers, by a coin, so the law to be learnt is known: one half for each; or, under Plackett-Luce,
the law of given scores.

* ``blended-digits``. Ten pictures of the digits 0 to 9, each once, in random order, to be sorted. In a
  quarter of the lists one picture is a blend, the mean of the pixels of its own digit a and of another digit
  b with |a - b| of 2 or more; it counts as a or as b. In another quarter two pictures, those of the digits a
  and b, are both blends of an a and a b; one counts as a and the other as b. Equal digits keep the order of
  the list. Either way there are exactly two right orders. Half of the lists have no blend.
* ``symmetric-assignment``, in :mod:`factorank.experiments.assignment_task`.
* ``coin-sort``. Ten uniform numbers, to be sorted up or down, by a coin.
* ``plackett-luce``. Items with four normal features; a fixed function of them gives the scores of a
  Plackett-Luce law, from which the order is drawn.
"""

import math
from typing import Literal, NamedTuple, Protocol

import torch
from torch import Tensor, nn

from factorank.data.digits import Digits, DigitSets
from factorank.experiments.digit_networks import DigitNetwork, half_distorted


class Cases(NamedTuple):
    """Cases of a task: what is given ``(cases, n, …)`` and the right ranks ``(cases, 2, n)``.

    A case with one answer has it twice. ``scores (cases, n)`` are those of a Plackett-Luce law, where the two
    answers are draws.
    """

    context: Tensor
    ranks: Tensor
    scores: Tensor | None = None

    @property
    def ambiguous(self) -> Tensor:
        """Which cases have two answers, bool ``(cases,)``."""
        return (self.ranks[:, 0] != self.ranks[:, 1]).any(-1)


Split = Literal["train", "held_out", "test"]
"""Cases to train on, to choose by, and for the results."""


class Task(Protocol):
    """A task: cases to train on, cases for the test, and an encoder that makes a token of each item."""

    name: str
    n: int

    def cases(self, count: int, generator: torch.Generator, split: Split = "train") -> Cases: ...

    def encoder(self, width: int) -> nn.Module: ...


class CoinSort:
    """Ten numbers, sorted up or down."""

    name, n = "coin-sort", 10

    def cases(self, count: int, generator: torch.Generator, split: Split = "train") -> Cases:
        numbers = torch.rand((count, self.n, 1), generator=generator, device=generator.device)
        up = numbers.squeeze(-1).argsort(-1).argsort(-1)
        return Cases(numbers, torch.stack([up, self.n - 1 - up], 1))

    def encoder(self, width: int) -> nn.Module:
        return VectorTokens(1, width, waves=7)


class GivenScores:
    """Six items whose features decide the scores of a Plackett-Luce law; 720 orders can be listed."""

    name, n = "plackett-luce", 6

    def cases(self, count: int, generator: torch.Generator, split: Split = "train") -> Cases:
        device = generator.device
        features = torch.randn((count, self.n, 4), generator=generator, device=device)
        scores = 2 * features[..., 0].tanh() + features[..., 1] * features[..., 2] + features[..., 3].sin()
        uniform = torch.rand((2, count, self.n), generator=generator, device=device, dtype=torch.float64)
        noisy = scores - (-uniform.clamp(min=1e-300).log()).log()
        ranks = noisy.argsort(dim=-1, descending=True).argsort(-1)
        return Cases(features, ranks.transpose(0, 1), scores)

    def encoder(self, width: int) -> nn.Module:
        return VectorTokens(4, width)


class BlendedDigits:
    """Ten digits, some of them blends of two."""

    name, n = "blended-digits", 10

    def __init__(self, sets: DigitSets, device: torch.device | str) -> None:
        self.digits = {
            "train": ByLabel(sets.train.to(device)),
            "held_out": ByLabel(sets.held_out.to(device)),
            "test": ByLabel(sets.test.to(device)),
        }

    def cases(self, count: int, generator: torch.Generator, split: Split = "train") -> Cases:
        n, device = self.n, generator.device

        def uniform(*shape: int) -> Tensor:
            return torch.rand((count, *shape), generator=generator, device=device)

        shown = uniform(n).argsort(-1)  # the digit of each picture
        kind = uniform()
        one, two = (kind >= 0.5) & (kind < 0.75), kind >= 0.75
        a = (n * uniform()).long().clamp(max=n - 1)
        apart = (torch.arange(n, device=device) - a[:, None]).abs()
        b = torch.where(apart >= torch.where(one, 2, 1)[:, None], uniform(n), -1.0).argmax(-1)
        is_a, is_b = shown == a[:, None], shown == b[:, None]
        blended = (is_a & (one | two)[:, None]) | (is_b & two[:, None])
        other = torch.where(is_a, b[:, None], a[:, None])
        digits = self.digits[split]
        first, second = digits.pictures(shown, uniform(n)), digits.pictures(other, uniform(n))
        if split == "train":
            first, second = half_distorted(first, generator), half_distorted(second, generator)
        else:
            first, second = first.float() / 255, second.float() / 255
        context = torch.where(blended[..., None, None], (first + second) / 2, first)
        # The other reading: the blend of one is b, the blends of two change their digits.
        read = torch.where(is_a & (one | two)[:, None], b[:, None], shown)
        read = torch.where(is_b & two[:, None], a[:, None], read)
        again = read.argsort(dim=-1, stable=True).argsort(-1)
        return Cases(context, torch.stack([shown, again], 1))

    def encoder(self, width: int) -> nn.Module:
        return DigitTokens(width)


class ByLabel:
    """Digits that can be drawn by what they show."""

    def __init__(self, digits: Digits) -> None:
        self.digits = digits
        self.counts = digits.labels.bincount(minlength=10)
        self.sorted = digits.labels.argsort(stable=True)
        self.first = self.counts.cumsum(0) - self.counts

    def pictures(self, labels: Tensor, uniform: Tensor) -> Tensor:
        """A picture ``(*batch, 28, 28)`` of each label ``(*batch,)``, by uniform numbers on [0, 1)."""
        within = torch.minimum((uniform * self.counts[labels]).long(), self.counts[labels] - 1)
        return self.digits.pixels[self.sorted[self.first[labels] + within]]


class VectorTokens(nn.Module):
    """Items that are vectors ``(*batch, n, features)``: a perceptron makes their tokens, one each.

    Numbers come with ``waves`` sines and cosines of falling wavelength, so that near ones can be told apart.
    """

    aligned = True

    def __init__(self, features: int, width: int, waves: int = 0) -> None:
        super().__init__()
        self.width, self.waves = width, waves
        size = features * (1 + 2 * waves)
        self.layers = nn.Sequential(nn.Linear(size, 2 * width), nn.GELU(), nn.Linear(2 * width, width))

    def forward(self, items: Tensor) -> Tensor:
        angles = [items * (math.pi * 2**k) for k in range(self.waves)]
        parts = [items, *(each.sin() for each in angles), *(each.cos() for each in angles)]
        tokens: Tensor = self.layers(torch.cat(parts, -1))
        return tokens


class DigitTokens(nn.Module):
    """Pictures of digits ``(*batch, n, 28, 28)``, from 0 to 1: convolutions make their tokens, one each."""

    aligned = True

    def __init__(self, width: int) -> None:
        super().__init__()
        self.width = width
        self.network = DigitNetwork(width, (32, 64, 64, 128, 128), (1, 2, 1, 2, 1))

    def forward(self, pictures: Tensor) -> Tensor:
        tokens: Tensor = self.network(pictures)
        return tokens
