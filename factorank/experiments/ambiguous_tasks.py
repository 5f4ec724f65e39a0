"""Tasks with several right answers: what is given, which orders are right, and how likely each is.

A case lists n items. Its answers are *ranks*: ``rank[j]`` is the place of item j. The target of a case is one
of its two answers, by a coin, so the law to be learnt is known: one half for each; or, under Plackett-Luce,
the law of given scores.

* ``blended-digits``. Ten pictures of the digits 0 to 9, each once, in random order, to be sorted. In a
  quarter of the lists one picture is a blend, the mean of the pixels of its own digit a and of another digit
  b with |a - b| of 2 or more; it counts as a or as b. In another quarter two pictures, those of the digits a
  and b, are both blends of an a and a b; one counts as a and the other as b. Equal digits keep the order of
  the list. Either way there are exactly two right orders. Half of the lists have no blend.
* ``symmetric-assignment``. A symmetric n×n matrix of costs, uniform on 0 to 1. If a matching of rows to
  columns is optimal then so is its inverse. Where the optimum is unique in each direction, it has cycles of
  length 1 and 2 and odd ones; matrices whose optimum has one longer cycle have exactly two optimal matchings,
  those with none have one. Other matrices are left out.
* ``coin-sort``. Ten uniform numbers, to be sorted up or down, by a coin.
* ``plackett-luce``. Items with four normal features; a fixed function of them gives the scores of a
  Plackett-Luce law, from which the order is drawn.
"""

import math
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple, Protocol

import torch
from torch import Tensor, nn

from factorank.assignment import best_assignment
from factorank.data.digits import Digits, DigitSets
from factorank.errors import FactorankError
from factorank.experiments.digit_networks import DigitNetwork, distorted
from factorank.files import write_whole
from factorank.permutations import compose, cycle_count, inverse

COLDEST, TEMPERATURES, ROUNDS = 2e-5, 40, 10
"""Of Sinkhorn's algorithm on the costs: the last temperature, how many there are, rounds at each."""
NEAR = 0.1
"""Probabilities of rows that differ by less are taken as almost equal."""


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


class Task(Protocol):
    """A task: cases to train on, cases for the test, and an encoder that makes a token of each item."""

    name: str
    n: int

    def cases(self, count: int, generator: torch.Generator) -> Cases: ...

    def test_cases(self, count: int, generator: torch.Generator) -> Cases: ...

    def encoder(self, width: int) -> nn.Module: ...


class CoinSort:
    """Ten numbers, sorted up or down."""

    name, n = "coin-sort", 10

    def cases(self, count: int, generator: torch.Generator) -> Cases:
        numbers = torch.rand((count, self.n, 1), generator=generator, device=generator.device)
        up = numbers.squeeze(-1).argsort(-1).argsort(-1)
        return Cases(numbers, torch.stack([up, self.n - 1 - up], 1))

    test_cases = cases

    def encoder(self, width: int) -> nn.Module:
        return VectorTokens(1, width, waves=7)


class GivenScores:
    """Six items whose features decide the scores of a Plackett-Luce law; 720 orders can be listed."""

    name, n = "plackett-luce", 6

    def cases(self, count: int, generator: torch.Generator) -> Cases:
        device = generator.device
        features = torch.randn((count, self.n, 4), generator=generator, device=device)
        scores = 2 * features[..., 0].tanh() + features[..., 1] * features[..., 2] + features[..., 3].sin()
        uniform = torch.rand((2, count, self.n), generator=generator, device=device, dtype=torch.float64)
        noisy = scores - (-uniform.clamp(min=1e-300).log()).log()
        ranks = noisy.argsort(dim=-1, descending=True).argsort(-1)
        return Cases(features, ranks.transpose(0, 1), scores)

    test_cases = cases

    def encoder(self, width: int) -> nn.Module:
        return VectorTokens(4, width)


class BlendedDigits:
    """Ten digits, some of them blends of two."""

    name, n = "blended-digits", 10

    def __init__(self, sets: DigitSets, device: torch.device | str) -> None:
        self.train, self.test = (ByLabel(each.to(device)) for each in (sets.train, sets.test))

    def cases(self, count: int, generator: torch.Generator) -> Cases:
        return self._cases(self.train, count, generator, distort=True)

    def test_cases(self, count: int, generator: torch.Generator) -> Cases:
        return self._cases(self.test, count, generator, distort=False)

    def _cases(self, digits: "ByLabel", count: int, generator: torch.Generator, *, distort: bool) -> Cases:
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
        first, second = digits.pictures(shown, uniform(n)), digits.pictures(other, uniform(n))
        if distort:
            first, second = distorted(first, generator), distorted(second, generator)
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


class SymmetricAssignment:
    """The cheapest matching of rows and columns, by what Sinkhorn's algorithm says of the costs.

    The context is the matrix of Sinkhorn's algorithm at a low temperature. Its columns are named by a draft,
    the best assignment under that matrix: column i is the one that the draft gives to row i. Rows whose
    draft is the least certain come first, almost equal ones in random order. All methods get the same
    context. Matrices are drawn and solved once, and kept in ``folder``.
    """

    name = "symmetric-assignment"

    def __init__(
        self, n: int, trained: int, tested: int, device: torch.device | str, folder: Path | None = None
    ) -> None:
        self.n = n
        self.train = _kept(folder, f"assignment-{n}-train", n, trained, 1, device)
        self.test = _kept(folder, f"assignment-{n}-test", n, tested, 2, device)

    def cases(self, count: int, generator: torch.Generator) -> Cases:
        many, device = len(self.train.ranks), generator.device
        chosen = torch.randint(many, (count,), generator=generator, device=device)
        return self._listed(self.train.context[chosen], self.train.ranks[chosen], generator)

    def test_cases(self, count: int, generator: torch.Generator) -> Cases:
        if count > len(self.test.ranks):
            raise FactorankError(f"there are {len(self.test.ranks)} test matrices, not {count}")
        return self._listed(self.test.context[:count], self.test.ranks[:count], generator)

    def _listed(self, matrix: Tensor, ranks: Tensor, generator: torch.Generator) -> Cases:
        """The cases with their rows in the order of certainty, and the columns with them."""
        certain, matrix, ranks = matrix.diagonal(dim1=-2, dim2=-1).float(), matrix.float(), ranks.long()
        noise = torch.rand(certain.shape, generator=generator, device=certain.device)
        names = (certain + NEAR * noise).argsort(-1)
        matrix = matrix.gather(-2, names[:, :, None].expand_as(matrix))
        matrix = matrix.gather(-1, names[:, None, :].expand_as(matrix))
        ranks = ranks.gather(-1, names[:, None].expand_as(ranks))
        return Cases(matrix, names.argsort(-1)[:, None].expand_as(ranks).gather(-1, ranks))

    def encoder(self, width: int) -> nn.Module:
        return VectorTokens(self.n, width)


def solved_matrices(n: int, count: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Symmetric costs ``(count, n, n)``, float64, and their optimal matchings ``(count, 2, n)``, exactly.

    A matching gives each row its column. Matrices with more than two optimal matchings are drawn again.
    """
    costs, matchings = [], []
    while sum(map(len, costs)) < count:
        drawn = torch.rand((max(64, count // 4), n, n), generator=generator, dtype=torch.float64).triu()
        drawn = drawn + drawn.triu(1).mT
        best = best_assignment(-drawn)
        fixed = (best == torch.arange(n)).sum(-1)
        back = best.gather(-1, best) == torch.arange(n)  # in cycles of length 1 and 2
        longer = cycle_count(best) - fixed - (back.sum(-1) - fixed) // 2
        costs.append(drawn[longer <= 1])
        matchings.append(best[longer <= 1])
    best = torch.cat(matchings)[:count]
    return torch.cat(costs)[:count], torch.stack([best, inverse(best, check=False)], 1)


def sinkhorn_of_costs(costs: Tensor) -> Tensor:
    """The doubly stochastic matrix of costs ``(*batch, n, n)`` at a low temperature, in logarithms.

    The temperature falls step by step and the potentials are kept, so that a few rounds at each are enough.
    Cheapest matchings share the matrix equally: two optimal ones have 1/2 each.
    """
    rows, columns = costs.new_zeros(costs.shape[:-1]), costs.new_zeros(costs.shape[:-1])
    for step in range(TEMPERATURES):
        temperature = 0.2 * (COLDEST / 0.2) ** (step / (TEMPERATURES - 1))
        for _ in range(ROUNDS):
            rows = -temperature * ((columns[..., None, :] - costs) / temperature).logsumexp(-1)
            columns = -temperature * ((rows[..., :, None] - costs) / temperature).logsumexp(-2)
    return (rows[..., :, None] + columns[..., None, :] - costs) / COLDEST


def _kept(folder: Path | None, name: str, n: int, count: int, seed: int, device: torch.device | str) -> Cases:
    """Solved matrices, as context and ranks relative to the draft; from the folder if they are there."""
    from safetensors.torch import load, save

    if folder is None:
        made = _drafted(n, count, seed, device)
    else:
        path = folder / f"{name}-{count}.safetensors"
        folder.mkdir(parents=True, exist_ok=True)
        with alone(folder):  # several processes need the same matrices: one solves them
            if not path.exists():
                write_whole(path, save(_drafted(n, count, seed, device)))
        made = load(path.read_bytes())
    return Cases(made["context"].to(device), made["ranks"].to(device))


def _drafted(n: int, count: int, seed: int, device: torch.device | str) -> dict[str, Tensor]:
    """Contexts, float16, and ranks, int16, of random matrices."""
    costs, matchings = solved_matrices(n, count, torch.Generator().manual_seed(seed))
    contexts, ranks = [], []
    for some, best in zip(costs.float().split(500), matchings.split(500), strict=True):
        log_matrix = sinkhorn_of_costs(some.to(device))
        draft = best_assignment(log_matrix)
        columns = draft[:, None, :].expand_as(log_matrix)
        contexts.append(log_matrix.exp().gather(-1, columns).half().cpu())
        back = inverse(draft, check=False).cpu()[:, None].expand_as(best)
        ranks.append(compose(back, best).to(torch.int16))
    return {"context": torch.cat(contexts), "ranks": torch.cat(ranks)}


@contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Wait until no other process is in the block with this folder."""
    import fcntl

    handle = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


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
