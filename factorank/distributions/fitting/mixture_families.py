"""What EM needs of each family that :meth:`factorank.Mixture.fit` mixes.

A family gets the class of its laws from the caller, so that these can use EM in their own ``fit``.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import torch

from factorank.distributions.base import PermutationDistribution
from factorank.distributions.factorized import geometric_table
from factorank.distributions.fitting import choices
from factorank.distributions.fitting.ballots import Ballots
from factorank.distributions.fitting.checks import check_strength
from factorank.distributions.fitting.completed import Data, Rows, complete_data
from factorank.distributions.fitting.dispersion import (
    best_phis,
    climb,
    digits_told,
    fit_mallows_phi,
    log_normaliser,
)
from factorank.distributions.fitting.errors import FitError
from factorank.distributions.fitting.graphs import strongly_connected
from factorank.distributions.fitting.kemeny import STEP_EFFORT, disagreement, kemeny
from factorank.distributions.fitting.references import (
    insertion_shares,
    overtaking_reference,
    rim_reference,
    sweep_reference,
)

SEARCHED_UP_TO = 12
"""The largest number of items for which every M-step finds the best reference: a few milliseconds."""
REACH = 3
"""Beyond that number an M-step moves each item of a RIM's reference by so many places at most."""
MOST_REFINEMENTS = 120
"""The ways to put the tied items of a ranking in order, of which EM for Plackett-Luce lists all."""


class Family:
    """An M-step that never lowers the (penalised) likelihood, and what else EM needs."""

    name: ClassVar[str]
    title: ClassVar[str]
    strength: ClassVar[str | None] = None
    """The option that regularises the family, if there is one."""
    one_step: ClassVar[bool] = True
    """Whether the M-step is a maximum, so that complete data of a single component need no second one."""

    def __init__(self, law: Callable[..., Any], smoothing: float = 0.0, penalty: float = 0.0) -> None:
        self.law = law
        for option, value in (("smoothing", smoothing), ("penalty", penalty)):
            check_strength(option, value)
            if value and option != self.strength:
                raise FitError(f"a mixture of {self.title} has no {option}")
        self.smoothing, self.penalty = smoothing, penalty

    def prepare(self, ballots: Ballots, samples: int, seed: int) -> Data:
        """The data of EM: complete orders that agree with the votes."""
        return complete_data(ballots, samples, seed)

    def log_probs(self, rows: Rows, laws: Sequence[Any]) -> np.ndarray:
        """The log-probability of each row under each law: ``(rows, k)``, float64."""
        orders = torch.from_numpy(rows.orders)
        return torch.stack([law._log_prob(orders).double() for law in laws], 1).numpy()

    def rough(self, order: np.ndarray) -> PermutationDistribution:
        """A law around an order, from which EM can begin."""
        n = len(order)
        return self.law(torch.from_numpy(order), torch.full((n,), 0.5, dtype=torch.float64))

    def parameters(self, n: int) -> int:
        """The number of free parameters of one law."""
        return n - 1

    def maximise(
        self, rows: Rows, weights: np.ndarray, previous: Sequence[Any]
    ) -> list[PermutationDistribution]:
        """The M-step: a law for each column of ``weights`` ``(rows, k)``, from the previous laws or None."""
        columns = np.ascontiguousarray(weights.T)
        return [self.maximise_one(rows, column, law) for column, law in zip(columns, previous, strict=True)]

    def maximise_one(self, rows: Rows, weights: np.ndarray, previous: Any) -> PermutationDistribution:
        """The M-step of one component."""
        raise NotImplementedError

    def prior(self, laws: Sequence[Any]) -> float:
        """What is added to the log-likelihood to give the function that EM climbs."""
        return 0.0

    def doubts(self, rows: Rows, weights: np.ndarray, k: int) -> list[str]:
        """The warnings about component k, which was fitted with these weights."""
        return []


class MallowsFamily(Family):
    name, title = "mallows", "Mallows"

    def prepare(self, ballots: Ballots, samples: int, seed: int) -> Data:
        if not ballots.weak:
            return complete_data(ballots, samples, seed)
        ballots = ballots.distinct()
        rows = TiedRows(ballots.ranks)
        return Data(rows, ballots.weights, rows)

    def rough(self, order: np.ndarray) -> PermutationDistribution:
        return self.law(torch.from_numpy(order), torch.tensor(0.5, dtype=torch.float64))

    def parameters(self, n: int) -> int:
        return 1

    def log_probs(self, rows: Rows, laws: Sequence[Any]) -> np.ndarray:
        n, distances = rows.ranks.shape[1], rows.distances([law.central.numpy() for law in laws])
        phis = np.array([float(law.phi) for law in laws])
        with np.errstate(divide="ignore"):
            theta = -np.log(phis)
        finite = np.where(phis > 0, theta, 1.0)
        terms = log_normaliser(finite[:, None], np.arange(n, 0, -1.0))
        told = rows.told if isinstance(rows, TiedRows) else np.ones((1, n))
        logs = -finite * distances - told @ terms.T
        return np.where(phis > 0, logs, np.where(distances > 0, -np.inf, 0.0))

    def maximise(
        self, rows: Rows, weights: np.ndarray, previous: Sequence[Any]
    ) -> list[PermutationDistribution]:
        counts, laws = rows.pairwise_counts(weights), []
        told = rows.told if isinstance(rows, TiedRows) else np.ones((len(rows), rows.ranks.shape[1]))
        digits = weights.T @ told
        for k, law in enumerate(previous):
            order = kemeny(counts[k], None if law is None else law.central.numpy(), STEP_EFFORT).order
            phi, _ = fit_mallows_phi(disagreement(counts[k], order), digits[k])
            laws.append(
                self.law(torch.from_numpy(order), torch.tensor(phi, dtype=torch.float64), validate_args=False)
            )
        return laws


class TiedRows(Rows):
    """Rows of a Mallows law, which may have ties."""

    @cached_property
    def told(self) -> np.ndarray:
        """How often each row tells each digit: ``(rows, n)``."""
        return digits_told(self.ranks)


class GeneralizedMallowsFamily(Family):
    name, title = "generalized-mallows", "generalized Mallows"

    def maximise(
        self, rows: Rows, weights: np.ndarray, previous: Sequence[Any]
    ) -> list[PermutationDistribution]:
        laws: list[PermutationDistribution] = []
        for counts, total, law in zip(rows.pairwise_counts(weights), weights.sum(0), previous, strict=True):
            shares = counts / total
            if len(shares) <= SEARCHED_UP_TO:
                order = overtaking_reference(shares).order
            else:
                start = kemeny(shares, effort=STEP_EFFORT).order if law is None else law.central.numpy()
                order, _, _ = climb(shares, start, max_moves=1000)
            phis = torch.from_numpy(best_phis(shares, order))
            laws.append(self.law(torch.from_numpy(order), phis, validate_args=False))
        return laws


class RIMFamily(Family):
    name, title, strength = "rim", "RIM", "smoothing"

    def rough(self, order: np.ndarray) -> PermutationDistribution:
        half = torch.full((len(order),), 0.5, dtype=torch.float64)
        return self.law(geometric_table(half, "insertion", log=False), torch.from_numpy(order))

    def parameters(self, n: int) -> int:
        return n * (n - 1) // 2

    def maximise_one(self, rows: Rows, weights: np.ndarray, previous: Any) -> PermutationDistribution:
        if rows.ranks.shape[1] <= SEARCHED_UP_TO:
            order = rim_reference(rows.orders, weights, self.smoothing).order
        else:
            start = None if previous is None else previous.reference.numpy()
            order = sweep_reference(rows.orders, weights, self.smoothing, start, REACH)
        probs, _ = insertion_shares(rows.orders, weights, order, self.smoothing)
        return self.law(torch.from_numpy(probs), torch.from_numpy(order), validate_args=False)

    def prior(self, laws: Sequence[Any]) -> float:
        if not self.smoothing:
            return 0.0
        tables = [law.logits.numpy() for law in laws]
        return self.smoothing * float(sum(logs[np.tri(len(logs)) > 0].sum() for logs in tables))


class PlackettLuceFamily(Family):
    name, title, strength = "plackett-luce", "Plackett-Luce", "penalty"
    one_step = False

    def prepare(self, ballots: Ballots, samples: int, seed: int) -> Data:
        ballots = ballots.distinct()
        if ballots.above is not None:
            raise FitError("Plackett-Luce takes rankings, with ties and items left out, not partial orders")
        tied = choices.tied_above(ballots.ranks)
        if not tied.any():
            rows = ChoiceRows(ballots.ranks)
            return Data(rows, ballots.weights, rows)
        ranks, owners = refinements(ballots.ranks)
        return Data(ChoiceRows(ranks), ballots.weights, Rows(ballots.ranks), owners)

    def rough(self, order: np.ndarray) -> PermutationDistribution:
        return self.law(torch.from_numpy(-0.5 * np.argsort(order).astype(float)))

    def log_probs(self, rows: Rows, laws: Sequence[Any]) -> np.ndarray:
        from factorank.kernels.fitting import choice_log_probs

        data = _choices(rows)
        logits = np.stack([law.logits.double().numpy() for law in laws])
        return choice_log_probs(data.items, data.starts, data.stages, logits)

    def maximise_one(self, rows: Rows, weights: np.ndarray, previous: Any) -> PermutationDistribution:
        start = np.zeros(rows.ranks.shape[1]) if previous is None else previous.logits.numpy()
        steps = 3 if previous is None else 1  # one step of Newton's is enough once EM is under way
        logits = choices.improve(replace(_choices(rows), weights=weights), start, self.penalty, steps)
        return self.law(torch.from_numpy(logits), validate_args=False)

    def prior(self, laws: Sequence[Any]) -> float:
        return -self.penalty / 2 * float(sum(law.logits.square().sum() for law in laws))

    def doubts(self, rows: Rows, weights: np.ndarray, k: int) -> list[str]:
        from factorank.kernels.fitting import pairwise_counts_of_ranks

        # A thousandth of a vote that is against it does not make a maximum that means anything.
        edges = pairwise_counts_of_ranks(rows.ranks, np.ascontiguousarray(weights)) > 1e-3
        if self.penalty or weights.sum() < 1e-3 or len(edges) == 1 or strongly_connected(edges):
            return []
        return [
            f"in component {k} {text}; a penalty above 0 settles it" for text in choices.explain(edges)[0]
        ]


class ChoiceRows(Rows):
    """Rows of Plackett-Luce: items left out are -1, and the last level may be tied."""

    @cached_property
    def choices(self) -> choices.Choices:
        """The choices in the rows; their weights are those of EM."""
        return choices.choices_of(self.ranks, np.ones(len(self.ranks)))


def _choices(rows: Rows) -> choices.Choices:
    if not isinstance(rows, ChoiceRows):
        raise TypeError(f"Plackett-Luce has rows of choices, not {type(rows).__name__}")
    return rows.choices


def refinements(ranks: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Each row with the ties above its last level in every order: rows, and the row each comes from.

    >>> refinements(np.array([[0, 0, 1]]))[0]
    array([[0, 1, 2],
           [1, 0, 2]])
    """
    import itertools

    rows, owners = [], []
    for owner, row in enumerate(ranks):
        levels = [np.flatnonzero(row == level) for level in range(row.max() + 1)]
        ways = math.prod(math.factorial(len(level)) for level in levels[:-1])
        if ways > MOST_REFINEMENTS:
            raise FitError(
                f"ranking {owner} ties so many items above its last ones that they can be ordered in {ways}"
                f" ways, more than {MOST_REFINEMENTS}; votes.break_ties(generator) draws one of them"
            )
        for way in itertools.product(*(itertools.permutations(level) for level in levels[:-1])):
            refined, place = np.full(len(row), -1), 0
            for item in itertools.chain(*way):
                refined[item], place = place, place + 1
            refined[levels[-1]] = place
            rows.append(refined)
            owners.append(owner)
    return np.array(rows), np.array(owners)


FAMILIES: dict[str, type[Family]] = {
    family.name: family for family in (MallowsFamily, GeneralizedMallowsFamily, RIMFamily, PlackettLuceFamily)
}
"""By the names that ``Mixture.fit`` takes."""
