"""What EM needs of each family that :meth:`factorank.Mixture.fit` mixes."""

from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from factorank.distances import kendall
from factorank.distributions.base import PermutationDistribution
from factorank.distributions.fitting import choices
from factorank.distributions.fitting.checks import (
    Unranked,
    check_strength,
    complete_orders,
    padded_orders,
    ranks_of_padded,
)
from factorank.distributions.fitting.consensus import disagreement, kemeny, pairwise_counts
from factorank.distributions.fitting.dispersion import best_phis, climb, fit_mallows_phi
from factorank.distributions.fitting.graphs import strongly_connected
from factorank.distributions.fitting.references import overtaking_reference, rim_reference, sweep_reference
from factorank.distributions.fitting.report import FitError
from factorank.distributions.generalized_mallows import GeneralizedMallows
from factorank.distributions.mallows import Mallows
from factorank.distributions.plackett_luce import PlackettLuce, listed_log_prob
from factorank.distributions.rim import RIM, insertion_shares

SEARCHED_UP_TO = 12
"""The largest number of items for which every M-step finds the best reference: a few milliseconds."""
REACH = 3
"""Beyond that number an M-step moves each item of a RIM's reference by so many places at most."""


class Family:
    """An M-step that never lowers the (penalised) likelihood, and what else EM needs."""

    name: ClassVar[str]
    title: ClassVar[str]
    strength: ClassVar[str | None] = None
    """The option that regularises the family, if there is one."""
    one_step: ClassVar[bool] = True
    """Whether the M-step is a maximum, so that a single component needs no second one."""
    padded: ClassVar[bool] = False
    """Whether the orders may leave items out."""

    def __init__(
        self,
        smoothing: float = 0.0,
        penalty: float = 0.0,
        unranked: Unranked | None = None,
        items: int | None = None,
    ) -> None:
        for option, value in (("smoothing", smoothing), ("penalty", penalty)):
            check_strength(option, value)
            if value and option != self.strength:
                raise FitError(f"a mixture of {self.title} has no {option}")
        if not self.padded and (unranked is not None or items is not None):
            raise FitError(
                "rankings that leave items out are fitted by the families 'plackett-luce' and 'mallows', not"
                f" {self.name!r}"
            )
        self.smoothing, self.penalty, self.unranked, self.items = smoothing, penalty, unranked, items

    def read(self, orders: Tensor) -> tuple[np.ndarray, int]:
        """Checked rows of orders ``(*batch, n)``, and the number of items."""
        rows = complete_orders(orders)
        return rows, rows.shape[1]

    def log_prob(self, law: Any, rows: Tensor) -> Tensor:
        """The log-probability of each row ``(rows,)``, float64."""
        return law._log_prob(rows).double()

    def distances(self, rows: np.ndarray) -> Callable[[int], np.ndarray]:
        """From the number of a row to the distances of all rows to it."""
        orders = torch.from_numpy(rows)
        return lambda row: kendall(orders, orders[row], check=False).numpy()

    def parameters(self, n: int) -> int:
        """The number of free parameters of one law."""
        return n - 1

    def maximise(self, rows: np.ndarray, weights: np.ndarray, previous: Any) -> PermutationDistribution:
        """The M-step of one component, from its previous law, or from None."""
        raise NotImplementedError

    def prior(self, laws: list[PermutationDistribution]) -> float:
        """What is added to the log-likelihood to give the function that EM climbs."""
        return 0.0

    def doubts(self, rows: np.ndarray, weights: np.ndarray, k: int) -> list[str]:
        """The warnings about component k, which was fitted with these weights."""
        return []


class MallowsFamily(Family):
    name, title = "mallows", "Mallows"

    def parameters(self, n: int) -> int:
        return 1

    def maximise(self, rows: np.ndarray, weights: np.ndarray, previous: Any) -> PermutationDistribution:
        counts = pairwise_counts(rows, weights)
        order, _ = kemeny(counts, None if previous is None else previous.central.numpy())
        phi, _ = fit_mallows_phi(disagreement(counts, order), len(order), float(weights.sum()))
        return Mallows(torch.from_numpy(order), torch.tensor(phi, dtype=torch.float64))


class GeneralizedMallowsFamily(Family):
    name, title = "generalized-mallows", "generalized Mallows"

    def maximise(self, rows: np.ndarray, weights: np.ndarray, previous: Any) -> PermutationDistribution:
        shares = pairwise_counts(rows, weights) / weights.sum()
        if len(shares) <= SEARCHED_UP_TO:
            order = overtaking_reference(shares).order
        else:
            start = kemeny(shares)[0] if previous is None else previous.central.numpy()
            order, _, _ = climb(shares, start, max_moves=1000)
        return GeneralizedMallows(torch.from_numpy(order), torch.from_numpy(best_phis(shares, order)))


class RIMFamily(Family):
    name, title, strength = "rim", "RIM", "smoothing"

    def parameters(self, n: int) -> int:
        return n * (n - 1) // 2

    def maximise(self, rows: np.ndarray, weights: np.ndarray, previous: Any) -> PermutationDistribution:
        if rows.shape[1] <= SEARCHED_UP_TO:
            order = rim_reference(rows, weights, self.smoothing).order
        else:
            start = None if previous is None else previous.reference.numpy()
            order = sweep_reference(rows, weights, self.smoothing, start, REACH)
        probs, _ = insertion_shares(rows, weights, order, self.smoothing)
        return RIM(torch.from_numpy(probs), torch.from_numpy(order))

    def _prior(self, probs: np.ndarray) -> float:
        return self.smoothing * float(np.log(probs[np.tri(len(probs)) > 0]).sum()) if self.smoothing else 0.0

    def prior(self, laws: list[PermutationDistribution]) -> float:
        return sum(self._prior(law.probs.numpy()) for law in laws if isinstance(law, RIM))


class PlackettLuceFamily(Family):
    name, title, strength = "plackett-luce", "Plackett-Luce", "penalty"
    one_step, padded = False, True

    def read(self, orders: Tensor) -> tuple[np.ndarray, int]:
        """Rows may end in -1, and may be shorter than the list of items."""
        rows, _, self.items = padded_orders(orders, self.unranked, self.items)
        return rows, self.items

    def log_prob(self, law: Any, rows: Tensor) -> Tensor:
        return listed_log_prob(law.logits, rows, self.unranked)

    def distances(self, rows: np.ndarray) -> Callable[[int], np.ndarray]:
        from factorank.kernels.fitting import disagreement_shares

        ranks = self._ranks(rows)
        return lambda row: disagreement_shares(ranks, row)

    def _ranks(self, rows: np.ndarray) -> np.ndarray:
        """The place of each item ``(rows, n)``; items left out share the last one, or have -1."""
        n = self.items or rows.shape[1]
        return ranks_of_padded(rows, n, left_out=-1 if self.unranked == "incomparable" else n)

    def maximise(self, rows: np.ndarray, weights: np.ndarray, previous: Any) -> PermutationDistribution:
        start = np.zeros(self.items or rows.shape[1]) if previous is None else previous.logits.numpy()
        logits = choices.improve(rows, weights, start, self.penalty, below=self.unranked == "below")
        return PlackettLuce(torch.from_numpy(logits))

    def prior(self, laws: list[PermutationDistribution]) -> float:
        logits = [law.logits for law in laws if isinstance(law, PlackettLuce)]
        return -self.penalty / 2 * float(sum(each.square().sum() for each in logits))

    def doubts(self, rows: np.ndarray, weights: np.ndarray, k: int) -> list[str]:
        from factorank.kernels.fitting import pairwise_counts_of_ranks

        # A thousandth of a vote that is against it does not make a maximum that means anything.
        edges = pairwise_counts_of_ranks(self._ranks(rows), weights) > 1e-3
        if self.penalty or weights.sum() < 1e-3 or len(edges) == 1 or strongly_connected(edges):
            return []
        return [
            f"in component {k} {text}; a penalty above 0 settles it" for text in choices.explain(edges)[0]
        ]


FAMILIES: dict[str, type[Family]] = {
    family.name: family for family in (MallowsFamily, GeneralizedMallowsFamily, RIMFamily, PlackettLuceFamily)
}
"""By the names that ``Mixture.fit`` takes."""
