"""What EM needs of each family that :meth:`factorank.Mixture.fit` mixes."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from factorank.distances import kendall
from factorank.distributions.base import PermutationDistribution
from factorank.distributions.fitting.checks import Unranked, complete_orders, padded_orders
from factorank.distributions.fitting.consensus import kemeny, pairwise_counts
from factorank.distributions.fitting.generalized_mallows import improve as climb_generalized
from factorank.distributions.fitting.graphs import groups, strongly_connected
from factorank.distributions.fitting.mallows import dispersion_of
from factorank.distributions.fitting.plackett_luce import explain
from factorank.distributions.fitting.plackett_luce import improve as climb_plackett_luce
from factorank.distributions.fitting.report import FitError
from factorank.distributions.fitting.rim import insertion_shares
from factorank.distributions.generalized_mallows import GeneralizedMallows
from factorank.distributions.mallows import Mallows
from factorank.distributions.plackett_luce import PlackettLuce, listed_log_prob
from factorank.distributions.rim import RIM


class Family(ABC):
    """An M-step that never lowers the (penalised) likelihood, and what else EM asks for."""

    title: str
    one_step = True
    """Whether the M-step is a maximum, so that a single component needs no second one."""

    def __init__(self, smoothing: float, penalty: float) -> None:
        for name, value in (("smoothing", smoothing), ("penalty", penalty)):
            if not (np.isfinite(value) and value >= 0):
                raise FitError(f"{name} is finite and at least 0, not {value}")
        self.smoothing, self.penalty = smoothing, penalty
        used = {"RIM": "smoothing", "Plackett-Luce": "penalty"}.get(self.title)
        for name, value in (("smoothing", smoothing), ("penalty", penalty)):
            if value and name != used:
                raise FitError(f"a mixture of {self.title} has no {name}")

    def read(self, orders: Tensor, n: int | None = None) -> tuple[np.ndarray, int]:
        """Checked rows of orders ``(*batch, n)``, and the number of items."""
        rows = complete_orders(orders, n=n)
        return rows, rows.shape[1]

    def log_prob(self, law: PermutationDistribution, rows: Tensor) -> Tensor:
        """The log-probability of each row ``(rows,)``, float64."""
        return law._log_prob(rows).double()

    def distances(self, rows: np.ndarray) -> Callable[[int], np.ndarray]:
        """From the number of a row to how far all rows are from it."""
        orders = torch.from_numpy(rows)
        return lambda row: kendall(orders, orders[row], check=False).numpy()

    @abstractmethod
    def parameters(self, n: int) -> int: ...

    @abstractmethod
    def maximise(self, rows: np.ndarray, weights: np.ndarray, previous: Any) -> PermutationDistribution: ...

    def prior(self, laws: list[PermutationDistribution]) -> float:
        """What is added to the log-likelihood to give the function that EM climbs."""
        return 0.0

    def doubts(self, rows: np.ndarray, weights: np.ndarray, k: int) -> list[str]:
        """What must be said of component k, which was fitted with these weights."""
        return []


class _Mallows(Family):
    title = "Mallows"

    def parameters(self, n: int) -> int:
        return 1

    def maximise(self, rows: np.ndarray, weights: np.ndarray, previous: Any) -> PermutationDistribution:
        counts = pairwise_counts(rows, weights)
        order, _ = kemeny(counts, None if previous is None else previous.central.numpy())
        phi, _ = dispersion_of(counts, order, float(weights.sum()))
        return Mallows(torch.from_numpy(order), torch.tensor(phi, dtype=torch.float64))


class _GeneralizedMallows(Family):
    title = "generalized Mallows"

    def parameters(self, n: int) -> int:
        return n - 1

    def maximise(self, rows: np.ndarray, weights: np.ndarray, previous: Any) -> PermutationDistribution:
        start = None if previous is None else previous.central.numpy()
        order, phis = climb_generalized(rows, weights, start)
        return GeneralizedMallows(torch.from_numpy(order), torch.from_numpy(phis))


class _RIM(Family):
    title = "RIM"

    def parameters(self, n: int) -> int:
        return n * (n - 1) // 2

    def maximise(self, rows: np.ndarray, weights: np.ndarray, previous: Any) -> PermutationDistribution:
        references = [kemeny(pairwise_counts(rows, weights))[0]]
        if previous is not None:
            references.append(previous.reference.numpy())
        best = max(references, key=lambda reference: self._value(rows, weights, reference))
        probs, _ = insertion_shares(rows, weights, best, self.smoothing)
        return RIM(torch.from_numpy(probs), torch.from_numpy(best))

    def _value(self, rows: np.ndarray, weights: np.ndarray, reference: np.ndarray) -> float:
        probs, likelihood = insertion_shares(rows, weights, reference, self.smoothing)
        return likelihood + self._prior(probs)

    def _prior(self, probs: np.ndarray) -> float:
        return self.smoothing * float(np.log(probs[np.tri(len(probs)) > 0]).sum()) if self.smoothing else 0.0

    def prior(self, laws: list[PermutationDistribution]) -> float:
        return sum(self._prior(law.probs.numpy()) for law in laws if isinstance(law, RIM))


class _PlackettLuce(Family):
    title = "Plackett-Luce"
    one_step = False

    def __init__(
        self, smoothing: float, penalty: float, unranked: Unranked | None = None, items: int | None = None
    ) -> None:
        super().__init__(smoothing, penalty)
        self.unranked, self.items = unranked, items

    def read(self, orders: Tensor, n: int | None = None) -> tuple[np.ndarray, int]:
        """Rows may end in -1, and may be shorter than the list of items."""
        rows, _, self.items = padded_orders(orders, self.unranked, self.items if n is None else n)
        return rows, self.items

    def log_prob(self, law: Any, rows: Tensor) -> Tensor:
        return listed_log_prob(law.logits, rows, self.unranked)

    def distances(self, rows: np.ndarray) -> Callable[[int], np.ndarray]:
        from factorank.kernels import fitting as kernels

        ranks = self._ranks(rows)
        return lambda row: kernels.disagreements(ranks, row)

    def _ranks(self, rows: np.ndarray) -> np.ndarray:
        """The place of each item ``(rows, n)``; items left out share the last one, or have -1."""
        n = self.items or rows.shape[1]
        places = np.full((len(rows), n + 1), -1 if self.unranked == "incomparable" else n)
        np.put_along_axis(places, np.where(rows < 0, n, rows), np.arange(rows.shape[1])[None], axis=1)
        return np.ascontiguousarray(places[:, :n])

    def parameters(self, n: int) -> int:
        return n - 1

    def maximise(self, rows: np.ndarray, weights: np.ndarray, previous: Any) -> PermutationDistribution:
        start = np.zeros(self.items or rows.shape[1]) if previous is None else previous.logits.numpy()
        found = climb_plackett_luce(rows, weights, start, self.penalty, below=self.unranked == "below")
        return PlackettLuce(torch.from_numpy(found))

    def prior(self, laws: list[PermutationDistribution]) -> float:
        logits = [law.logits for law in laws if isinstance(law, PlackettLuce)]
        return -self.penalty / 2 * float(sum(each.square().sum() for each in logits))

    def doubts(self, rows: np.ndarray, weights: np.ndarray, k: int) -> list[str]:
        from factorank.kernels import fitting as kernels

        # A thousandth of a vote that is against it does not make a maximum that means anything.
        edges = kernels.pairwise_counts_of_ranks(self._ranks(rows), weights) > 1e-3
        if self.penalty or weights.sum() < 1e-3 or len(edges) == 1 or strongly_connected(edges):
            return []
        said, _ = explain(edges, groups(edges))
        return [f"in component {k} {text}; a penalty= above 0 settles it" for text in said]


FAMILIES: dict[str, Callable[..., Family]] = {
    "mallows": _Mallows,
    "generalized-mallows": _GeneralizedMallows,
    "rim": _RIM,
    "plackett-luce": _PlackettLuce,
}
"""By the names that ``Mixture.fit`` knows them by."""
