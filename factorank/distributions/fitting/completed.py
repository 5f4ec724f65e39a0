"""The data of EM: rows that a law gives a probability, and the voters that they belong to.

A voter whose order is partial has a row for each order that agrees with it, where these are few. Elsewhere
particles stand for them (sequential Monte Carlo), drawn anew under each law.
"""

import math
from collections.abc import Sequence
from functools import cached_property
from typing import Any, Protocol

import numpy as np
import torch

from factorank.distributions.base import PermutationDistribution
from factorank.distributions.conditioning.amp import insertion_table, relations
from factorank.distributions.fitting.ballots import Ballots

MOST_LISTED = 120
"""A voter with more orders than these that agree is completed by particles."""
MOST_ROWS = 500_000
"""All voters together have at most so many rows."""
LARGEST_TABLE = 4 * 10**7
"""The pairs of all rows are held in a table up to this size."""
FEWEST_PARTICLES = 10
"""For a voter, whatever the weight."""


class Rows:
    """Rankings as places of items, or as orders, and the pairs that they order."""

    def __init__(self, ranks: np.ndarray) -> None:
        self.ranks = ranks

    def __len__(self) -> int:
        return len(self.ranks)

    @cached_property
    def orders(self) -> np.ndarray:
        """Best first; items tied at the bottom become -1 where there are any."""
        return np.argsort(self.ranks, axis=1, kind="stable")

    @cached_property
    def pairs(self) -> np.ndarray | None:
        """``(rows, pairs)`` float64: 1 where a row has the first item of a pair a < b above, -1 below, else
        0.

        None if they would take too much memory.
        """
        rows, n = self.ranks.shape
        first, second = np.triu_indices(n, 1)
        if rows * len(first) > LARGEST_TABLE:
            return None
        a, b = self.ranks[:, first], self.ranks[:, second]
        return (np.sign(b - a) * ((a >= 0) & (b >= 0))).astype(np.float64)

    def disagreement_shares(self, row: int) -> np.ndarray:
        """For each row the share of the pairs ordered by it and by ``row`` that the two order differently.

        One half, as for strangers, where there is no such pair.
        """
        if self.pairs is None:
            from factorank.kernels.fitting import disagreement_shares

            return disagreement_shares(self.ranks, row)
        signs = self.pairs[row]
        agree = self.pairs @ signs
        if self.strict:
            return (1 - agree / max(len(signs), 1)) / 2
        shared = np.abs(self.pairs) @ np.abs(signs)
        return np.where(shared > 0, (1 - agree / np.maximum(shared, 1)) / 2, 0.5)

    def pairwise_counts(self, weights: np.ndarray) -> np.ndarray:
        """``(k, n, n)``: the weight of the rows that put a above b, for weights ``(rows, k)``."""
        n, k = self.ranks.shape[1], weights.shape[1]
        if self.pairs is None:
            from factorank.kernels.fitting import pairwise_counts_of_ranks

            each = [
                pairwise_counts_of_ranks(self.ranks, np.ascontiguousarray(column)) for column in weights.T
            ]
            return np.stack(each)
        first, second = np.triu_indices(n, 1)
        signed = weights.T @ self.pairs
        ordered = weights.sum(0)[:, None] if self.strict else weights.T @ np.abs(self.pairs)
        counts = np.zeros((k, n, n))
        counts[:, first, second] = (ordered + signed) / 2
        counts[:, second, first] = (ordered - signed) / 2
        return np.maximum(counts, 0.0)

    def distances(self, orders: Sequence[np.ndarray]) -> np.ndarray:
        """``(rows, k)``: how many pairs each row orders otherwise than each of the k orders."""
        ranks = np.stack([np.argsort(order) for order in orders])
        if self.pairs is None:
            from factorank.kernels.fitting import disagreements

            return disagreements(self.ranks, ranks)
        first, second = np.triu_indices(self.ranks.shape[1], 1)
        signs = np.sign(ranks[:, second] - ranks[:, first]).astype(np.float64)
        return (self.ordered[:, None] - self.pairs @ signs.T) / 2

    @cached_property
    def strict(self) -> bool:
        """Whether every row places every item without a tie."""
        n = self.ranks.shape[1]
        return bool((self.ranks.max(1) == n - 1).all() and (self.ranks >= 0).all())

    @cached_property
    def ordered(self) -> np.ndarray:
        """How many pairs each row orders."""
        n = self.ranks.shape[1]
        if self.strict or self.pairs is None:
            return np.full(len(self), n * (n - 1) / 2)
        return np.abs(self.pairs).sum(1)


class PartialRows(Rows):
    """Partial orders, of which only the pairs are known."""

    def __init__(self, above: np.ndarray) -> None:
        super().__init__(np.full(above.shape[:2], -1))
        self.above = above

    @cached_property
    def pairs(self) -> np.ndarray | None:
        first, second = np.triu_indices(self.ranks.shape[1], 1)
        above = self.above.astype(np.float64)
        return above[:, first, second] - above[:, second, first]


class LogProbs(Protocol):
    """The part of a family that data need."""

    def log_probs(self, rows: Rows, laws: Sequence[Any]) -> np.ndarray: ...


class Data:
    """Rows, each of a voter, with the weights of the voters."""

    def __init__(
        self, rows: Rows, weights: np.ndarray, voters: Rows, owners: np.ndarray | None = None
    ) -> None:
        self.rows, self.weights, self.voters = rows, weights, voters
        self.owners = np.arange(len(rows)) if owners is None else owners
        self.alone = owners is None
        """Whether each row is a voter."""

    exact = True

    def joint(self, family: LogProbs, shares: np.ndarray, laws: Sequence[Any]) -> np.ndarray:
        """The log-probability of each row together with each component: ``(rows, k)``."""
        with np.errstate(divide="ignore"):
            return family.log_probs(self.rows, laws) + np.log(shares)

    def evidence(self, joint: np.ndarray) -> np.ndarray:
        """The log-probability of each voter."""
        largest = joint.max(1)
        if self.alone:
            safe = np.where(np.isfinite(largest), largest, 0.0)
            with np.errstate(divide="ignore"):
                return safe + np.log(np.exp(joint - safe[:, None]).sum(1))
        top = np.full(len(self.weights), -np.inf)
        np.maximum.at(top, self.owners, largest)
        safe = np.where(np.isfinite(top), top, 0.0)
        mass = np.bincount(self.owners, np.exp(joint - safe[self.owners, None]).sum(1), len(top))
        with np.errstate(divide="ignore"):
            return safe + np.log(mass)

    def likelihood(
        self, family: LogProbs, shares: np.ndarray, laws: Sequence[Any]
    ) -> tuple[float, float | None]:
        """The log-likelihood of all voters, and its standard error where it is an estimate."""
        return float(self.weights @ self.evidence(self.joint(family, shares, laws))), None


class SampledData(Data):
    """Voters with too many orders that agree: particles for each of them and each component."""

    exact = False

    def __init__(
        self,
        listed: Data,
        voters: Rows,
        related: np.ndarray,
        weights: np.ndarray,
        samples: int,
        seed: int,
    ) -> None:
        self.listed, self.related, self.seed = listed, related, seed
        self.own_weights = weights
        even = weights / weights.mean() * samples
        each = np.clip(np.round(even), FEWEST_PARTICLES, 20 * samples).astype(np.int64)
        self.starts = np.concatenate([[0], np.cumsum(each)])
        super().__init__(listed.rows, np.concatenate([listed.weights, weights]), voters, listed.owners)
        self.alone = False

    def joint(self, family: LogProbs, shares: np.ndarray, laws: Sequence[Any]) -> np.ndarray:
        k, many, n = len(laws), self.starts[-1], self.related.shape[-1]
        orders, parts, _ = self._draw(laws, self.seed)
        listed = self.listed.joint(family, shares, laws)
        joint = np.full((len(listed) + k * many, k), -np.inf)
        joint[: len(listed)] = listed
        voter = len(self.listed.weights) + np.repeat(np.arange(len(self.related)), np.diff(self.starts))
        with np.errstate(divide="ignore"):
            for j in range(k):
                here = slice(len(listed) + j * many, len(listed) + (j + 1) * many)
                joint[here, j] = parts[j] + np.log(shares[j])
        self.rows = Rows(np.concatenate([self.listed.rows.ranks, np.argsort(orders, axis=-1).reshape(-1, n)]))
        self.owners = np.concatenate([self.listed.owners, np.tile(voter, k)])
        return joint

    def _draw(self, laws: Sequence[Any], seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Orders ``(k, particles, n)``, the logs of their shares, and the evidence ``(k, voters)``."""
        from factorank.kernels.particles import fill_particles

        k, many, n = len(laws), self.starts[-1], self.related.shape[-1]
        orders, parts = np.empty((k, many, n), dtype=np.int64), np.empty((k, many))
        evidence = np.empty((k, len(self.related)))
        for j, law in enumerate(laws):
            reference, sums, logs = insertion_table(law)
            fill_particles(
                self.related, reference, sums, logs, self.starts, orders[j], parts[j], evidence[j], seed
            )
        return orders, parts, evidence

    def likelihood(
        self, family: LogProbs, shares: np.ndarray, laws: Sequence[Any]
    ) -> tuple[float, float | None]:
        repeats, apart = 6, 2**40  # seeds that differ in low bits alone share random numbers
        runs = np.stack([self._draw(laws, self.seed + apart * (1 + number))[2] for number in range(repeats)])
        with np.errstate(divide="ignore"):
            values = runs + np.log(shares)[:, None]
        top = values.max((0, 1))
        masses = np.exp(values - top).sum(1)  # (repeats, voters): unbiased up to the factor
        mean, spread = masses.mean(0), masses.var(0, ddof=1) / repeats
        relative = spread / mean**2
        total = self.own_weights @ (top + np.log(mean) + relative / 2)  # the log of a mean is too low
        listed = self.listed.weights @ self.listed.evidence(self.listed.joint(family, shares, laws))
        return float(total + listed), math.sqrt(float(self.own_weights**2 @ relative))


def complete_data(ballots: Ballots, samples: int, seed: int) -> Data:
    """Data of complete orders: all that agree with each voter, or particles."""
    ballots = ballots.distinct()
    if ballots.complete:
        rows = Rows(ballots.ranks)
        return Data(rows, ballots.weights, rows)
    from factorank.kernels.particles import linear_extensions

    related = relations(ballots.partial().above)
    room = np.empty((MOST_LISTED, ballots.n), dtype=np.int64)
    orders, owners = [np.empty((0, ballots.n), dtype=np.int64)], [np.empty(0, dtype=np.int64)]
    listed: list[int] = []
    many: list[int] = []
    total = 0
    for voter, relation in enumerate(related):
        count = linear_extensions(relation, room) if total < MOST_ROWS and ballots.n < 63 else -1
        if count < 0:
            many.append(voter)
            continue
        orders.append(room[:count].copy())
        owners.append(np.full(count, len(listed)))
        listed.append(voter)
        total += count
    order = np.array(listed + many)
    above = None if ballots.above is None else ballots.above.numpy()[order]
    voters = Rows(ballots.ranks[order]) if above is None else PartialRows(above)
    ranks = np.argsort(np.concatenate(orders), axis=1)
    data = Data(Rows(ranks), ballots.weights[listed], voters, np.concatenate(owners))
    if not many:
        return data
    related = np.ascontiguousarray(related[many])
    return SampledData(data, voters, related, ballots.weights[many], samples, seed)


def law_on(law: PermutationDistribution, device: torch.device) -> PermutationDistribution:
    """The same law with its tensors on another device."""
    import copy

    moved = copy.copy(law)
    tensors = {name: value.to(device) for name, value in vars(law).items() if isinstance(value, torch.Tensor)}
    vars(moved).update(tensors)
    return moved
