"""How well a law describes the votes: first places, pairs and places, expected against observed."""

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from factorank import distributions as laws
from factorank.data.rankings import Rankings
from factorank.distributions import Mixture, PermutationDistribution
from factorank.distributions.fitting.checks import Unranked
from factorank.distributions.fitting.kemeny import pairwise_counts
from factorank.distributions.fitting.partial_likelihood import pair_probabilities
from factorank.errors import DistributionError
from factorank.permutations import inverse
from factorank.votes.pairs import pairwise
from factorank.votes.tables import aligned

SAMPLES = 20_000
"""Draws that estimate what has no formula."""
FEWEST_EXPECTED = 5
"""First places that an item must be expected to have for a cell of its own in Pearson's test."""


@dataclass(frozen=True)
class Goodness:
    """Shares of the voters, expected under a law and observed."""

    items: tuple[str, ...]
    voters: float
    """Those whose first place is known."""
    first_expected: Tensor
    """The probability of each item to be first ``(n,)``."""
    first_observed: Tensor
    pairs_expected: Tensor
    """``[a, b]``: the probability that a is above b."""
    pairs_observed: Tensor
    """NaN where nobody compared the two."""
    pairs_compared: Tensor
    """``[a, b]``: how many voters did."""
    places_expected: Tensor
    """``[j, i]``: the probability of item j at place i."""
    places_observed: Tensor
    """Among those who told who is at place i; NaN where nobody did."""

    @property
    def chi_square(self) -> float:
        """Pearson's statistic of the first places; items expected there less than 5 times are one cell."""
        expected, observed = self._cells()
        return float(((observed - expected) ** 2 / expected.clamp(min=1e-300)).sum())

    @property
    def p_value(self) -> float:
        """Of the first places, by χ² with as many degrees of freedom as cells, less one: small where the law
        does not fit.

        That is exact, for many voters, if the law is given beforehand. A law that was fitted to the same
        votes comes closer to them, so that the p-value of a right one is a little too large, never too small.
        """
        freedom = len(self._cells()[0]) - 1
        if freedom < 1:
            return 1.0
        half = torch.tensor([freedom / 2, self.chi_square / 2], dtype=torch.float64)
        return float(torch.special.gammaincc(half[0], half[1]))

    def _cells(self) -> tuple[Tensor, Tensor]:
        """First places expected and observed, with the rare items in one cell: χ² needs a few in each."""
        expected, observed = self.voters * self.first_expected, self.voters * self.first_observed
        rare = expected < FEWEST_EXPECTED
        if int(rare.sum()) < 2:
            return expected, observed
        joined = [torch.cat([values[~rare], values[rare].sum()[None]]) for values in (expected, observed)]
        return joined[0], joined[1]

    @property
    def pair_scores(self) -> Tensor:
        """``[a, b]``: the difference of observed and expected, in standard errors."""
        share = self.pairs_expected.clamp(1e-12, 1 - 1e-12)
        return (self.pairs_observed - share) / (share * (1 - share) / self.pairs_compared.clamp(min=1)).sqrt()

    def residual_pairs(self, count: int = 5) -> list[tuple[str, str, float, float, float]]:
        """The pairs that the law misses most: a, b, expected and observed share of a above b, and score."""
        scores = self.pair_scores.nan_to_num(0.0).triu(1)
        order = scores.abs().flatten().argsort(descending=True)[:count].tolist()
        places = [divmod(place, len(self.items)) for place in order]
        return [
            (
                self.items[a],
                self.items[b],
                float(self.pairs_expected[a, b]),
                float(self.pairs_observed[a, b]),
                float(scores[a, b]),
            )
            for a, b in places
            if a < b
        ]

    def __str__(self) -> str:
        shares = zip(self.items, self.first_expected.tolist(), self.first_observed.tolist(), strict=True)
        first = [["first places", "expected", "observed"]]
        first += [[item, f"{expected:.3f}", f"{observed:.3f}"] for item, expected, observed in shares]
        pairs = [["pairs missed most", "expected", "observed", "standard errors"]]
        for a, b, expected, observed, score in self.residual_pairs():
            pairs.append([f"{a} above {b}", f"{expected:.3f}", f"{observed:.3f}", f"{score:+.1f}"])
        test = f"chi-square {self.chi_square:.1f}, p = {self.p_value:.2g}, {self.voters:g} voters"
        return "\n\n".join([f"{aligned(first)}\n{test}"] * (self.voters > 0) + [aligned(pairs)])

    def facts(self) -> dict[str, object]:
        """All of it as JSON can hold it."""
        names = ("first_expected", "first_observed", "pairs_expected", "pairs_observed", "places_expected")
        values = {name: _plain(getattr(self, name)) for name in (*names, "places_observed")}
        tests = {"chi_square": self.chi_square, "p_value": self.p_value}
        return {"voters": self.voters} | values | tests | {"residual_pairs": self.residual_pairs()}


def goodness(
    law: PermutationDistribution,
    rankings: Rankings,
    unranked: Unranked | None = None,
    generator: torch.Generator | None = None,
) -> Goodness:
    """First places, pairs and places of the votes beside those that a law expects.

    Rankings of subsets (``unranked="incomparable"``) tell of pairs only: their first item is first among few.

    >>> votes = Rankings(["a", "b", "c"], torch.tensor([[0, 1, 2], [1, 0, 2]]), torch.tensor([60, 40]))
    >>> fit = goodness(laws.Mallows.fit(votes), votes)
    >>> print(fit)
    first places  expected  observed
    a                0.803     0.600
    b                0.164     0.400
    c                0.033     0.000
    chi-square 42.5, p = 5.8e-10, 100 voters
    <BLANKLINE>
    pairs missed most  expected  observed  standard errors
    a above b             0.831     0.600             -6.1
    b above c             0.831     1.000             +4.5
    a above c             0.939     1.000             +2.6
    """
    n, weights = rankings.n, rankings.weights
    places = expected_places(law, generator)
    table = pairwise(rankings, unranked)
    compared = table.wins + table.wins.T
    orders = torch.where(
        (rankings.ranks >= 0).all(1, keepdim=True) | torch.tensor(unranked == "below"), rankings.ranks, -1
    )
    observed, known = torch.zeros(n, n, dtype=torch.float64), torch.zeros(n, dtype=torch.float64)
    for place in range(n):
        alone = (orders == place).sum(1) == 1
        item = (orders == place).int().argmax(1)
        told = alone & (_level_place(orders, place) == place)
        observed[:, place] = torch.zeros(n, dtype=torch.float64).scatter_add_(0, item[told], weights[told])
        known[place] = weights[told].sum()
    shares = torch.where(known > 0, observed / known.clamp(min=1e-300), torch.nan)
    return Goodness(
        items=tuple(rankings.items),
        voters=float(known[0]),
        first_expected=places[:, 0],
        first_observed=shares[:, 0].nan_to_num(0.0),
        pairs_expected=expected_pairs(law, generator),
        pairs_observed=torch.where(compared > 0, table.wins / compared.clamp(min=1), torch.nan),
        pairs_compared=compared,
        places_expected=places,
        places_observed=shares,
    )


def _level_place(ranks: Tensor, level: int) -> Tensor:
    """How many items are above the level of each row: its place where no level above has ties."""
    return ((ranks >= 0) & (ranks < level)).sum(1)


def expected_places(law: PermutationDistribution, generator: torch.Generator | None = None) -> Tensor:
    """``[j, i]``: the probability of item j at place i; estimated by draws where no formula is feasible."""
    try:
        return law.marginals().double()
    except DistributionError:
        return law.marginals(samples=SAMPLES, generator=generator).double()


def expected_pairs(law: PermutationDistribution, generator: torch.Generator | None = None) -> Tensor:
    """``[a, b]``: the probability that a is above b; estimated by draws where there is no formula.

    >>> expected_pairs(laws.Mallows([0, 1], torch.tensor(0.5, dtype=torch.float64)))[0, 1]
    tensor(0.6667, dtype=torch.float64)
    """
    n = law.n
    if isinstance(law, Mixture):
        parts = [expected_pairs(component, generator) for component in law.components]
        return torch.einsum("k,kab->ab", law.weights.double(), torch.stack(parts))
    if isinstance(law, laws.Uniform):
        return torch.full((n, n), 0.5, dtype=torch.float64)
    if isinstance(law, laws.PlackettLuce):
        shares = torch.sigmoid(law.logits.double()[:, None] - law.logits.double())
    elif isinstance(law, laws.Mallows) and law.weights is None and n > 1:
        ahead = np.concatenate([[0.5], pair_probabilities(float(law.phi), n)])
        distance = inverse(law.central)[None, :] - inverse(law.central)[:, None]
        share = torch.from_numpy(ahead)[distance.abs()]
        shares = torch.where(distance >= 0, share, 1 - share)
    else:
        orders = law.sample((SAMPLES,), generator=generator).cpu().numpy()
        shares = torch.from_numpy(pairwise_counts(orders, np.full(SAMPLES, 1 / SAMPLES)))
    return shares.fill_diagonal_(0.5)


def _plain(values: Tensor) -> list[object]:
    """Lists with None for NaN."""
    if values.ndim > 1:
        return [_plain(row) for row in values]
    return [None if math.isnan(value) else value for value in values.tolist()]
