"""Gibbs chains of the orders that agree with each voter's partial order, under a Mallows law."""

import math
from dataclasses import dataclass

import numpy as np
import torch

from factorank.distributions.conditioning.amp import cumulated, relations
from factorank.distributions.factorized import geometric_table
from factorank.distributions.fitting.ballots import Ballots
from factorank.distributions.fitting.dispersion import log_normaliser
from factorank.distributions.fitting.linear_extensions import log_share

FEWEST_CHAINS, MOST_CHAINS = 2_000, 20_000
"""Over all voters: few voters have several chains each, in proportion to their weight."""
NODES = 10
"""At which the likelihood is integrated from the uniform law."""
PARTICLES = 1000
"""For the share of the orders that agree with a voter, where it is not counted."""


@dataclass(frozen=True)
class Drawn:
    """What sweeps saw, summed over the voters."""

    mean: float
    """Of the distance to the centre."""
    variance: float
    """Of the distance, given each voter's partial order."""
    error: float
    """The standard error of the mean."""
    pairs: np.ndarray
    """``[a, b]``: the expected weight of the orders that put a above b."""


class Chains:
    """Chains for all rows of ``ballots``, in proportion to their weights, at least one for each."""

    def __init__(self, ballots: Ballots, seed: int) -> None:
        self.n, self.seed, self.number = ballots.n, seed, 0
        rows, weights = len(ballots.weights), ballots.weights
        target = min(max(FEWEST_CHAINS, rows), MOST_CHAINS)
        each = np.maximum(np.round(weights / weights.sum() * target), 1).astype(np.int64)
        self.owners = np.repeat(np.arange(rows), each)
        self.weights = (weights / each)[self.owners]
        self.edges, self.starts = _neighbours(ballots)
        self.related = relations(ballots.partial().above)
        self.orders = np.empty((len(self.owners), self.n), dtype=np.int64)
        self.distances = np.zeros(len(self.owners), dtype=np.int64)
        self.places = np.empty_like(self.orders)

    def set_law(self, order: np.ndarray, theta: float) -> None:
        """Go on under another law; the first time from completions that AMP draws."""
        from factorank.kernels.chains import kendall_to
        from factorank.kernels.particles import start_chains

        self.rank, self.phi = np.argsort(order), math.exp(-theta)
        if self.number == 0:
            logs = geometric_table(torch.full((self.n,), self.phi).double(), "insertion", log=True).numpy()
            law = np.ascontiguousarray(order), cumulated(logs), logs
            start_chains(self.related, self.owners, *law, self.seed, self.orders)
            self.places = np.argsort(self.orders, axis=1)
        kendall_to(self.orders, self.rank, self.distances)

    def run(self, sweeps: int, pairs: bool) -> Drawn:
        """So many sweeps over all chains."""
        from factorank.kernels.chains import gibbs_sweep
        from factorank.kernels.fitting import pairwise_counts

        counts = np.zeros((self.n, self.n))
        taken = range(0, sweeps, max(1, sweeps // 4)) if pairs else ()
        first = np.zeros(sweeps)
        sums, squares = np.zeros(len(self.owners)), np.zeros(len(self.owners))
        for sweep in range(sweeps):
            self.number += 1
            state = (self.orders, self.places, self.owners, self.edges, self.starts)
            gibbs_sweep(*state, self.rank, self.phi, self.distances, self.seed, self.number)
            first[sweep] = self.weights @ self.distances
            sums += self.distances
            squares += self.distances.astype(float) ** 2
            if sweep in taken:
                counts += pairwise_counts(self.orders, self.weights, np.ones(self.n)) / len(taken)
        return Drawn(
            float(first.mean()), self._variance(sums, squares, sweeps), _error_of_mean(first), counts
        )

    def _variance(self, sums: np.ndarray, squares: np.ndarray, sweeps: int) -> float:
        """Within the rows: over the sweeps and the chains of a row, whose states are alike."""
        rows = int(self.owners[-1]) + 1
        draws = np.bincount(self.owners, minlength=rows) * float(sweeps)
        means = np.bincount(self.owners, sums, rows) / draws
        spread = np.bincount(self.owners, squares, rows) / draws - means**2
        weights = np.bincount(self.owners, self.weights, rows)
        return float(weights @ (spread * draws / np.maximum(draws - 1, 1)))


def thermodynamic_likelihood(
    ballots: Ballots, order: np.ndarray, theta: float, seed: int, samples: int
) -> tuple[float, float]:
    r"""The log-likelihood and its standard error.

    Its derivative in θ is :math:`N E_θ[d] - \sum_v E_θ[d \mid v]`. From the uniform law, where counting
    gives the likelihood, it is integrated by Gauss and Legendre's rule, in the root of θ.
    """
    chains = Chains(ballots, seed)
    nodes, weights = np.polynomial.legendre.leggauss(NODES)
    value, variance = _uniform_likelihood(ballots), 0.0
    sweeps = max(3, samples // 10)
    sizes = np.arange(ballots.n, 0, -1.0)
    total = 0.0
    for node, weight in zip((nodes + 1) / 2, weights / 2, strict=True):
        at = theta * node**2
        chains.set_law(order, at)
        chains.run(max(2, sweeps // 2), pairs=False)
        drawn = chains.run(sweeps, pairs=False)
        total -= weight * 2 * theta * node * drawn.mean
        variance += (weight * 2 * theta * node * drawn.error) ** 2
    normaliser = float(log_normaliser(np.array(theta), sizes).sum() - np.log(sizes).sum())
    return value + total - ballots.total * normaliser, math.sqrt(variance)


def _uniform_likelihood(ballots: Ballots) -> float:
    """Under the uniform law: the share of the orders that agree."""
    if ballots.above is not None:
        return float(ballots.weights @ _uniform_log_shares(ballots.above))
    factorials = np.cumsum(np.concatenate([[0.0], np.log(np.arange(1, ballots.n + 1))]))
    levels = np.zeros((len(ballots.ranks), ballots.n + 1), dtype=np.int64)
    np.add.at(levels, (np.arange(len(levels))[:, None], ballots.ranks), 1)  # -1: the last column
    agreeing = factorials[levels[:, :-1]].sum(1) - factorials[ballots.n - levels[:, -1]]
    return float(ballots.weights @ agreeing)


def _uniform_log_shares(above: torch.Tensor) -> np.ndarray:
    """Of any partial orders ``(rows, n, n)``: counted, or estimated where their parts are large."""
    from factorank.kernels.particles import log_evidence

    shares = [log_share(row) for row in above.numpy()]
    values = np.array([math.nan if share is None else share for share in shares])
    large = np.flatnonzero(np.isnan(values))
    if len(large):
        n = above.shape[-1]
        logs = geometric_table(torch.ones(n, dtype=torch.float64), "insertion", log=True).numpy()
        law = np.arange(n), cumulated(logs), logs
        values[large] = log_evidence(relations(above[torch.from_numpy(large)]), *law, PARTICLES, 0)
    return values


def _neighbours(ballots: Ballots) -> tuple[np.ndarray, np.ndarray]:
    """The items directly above and below each item, row by row, as :func:`gibbs_sweep` takes them."""
    if ballots.above is None:  # those of the level before and of the level after
        ranks = ballots.ranks
        placed = (ranks[:, :, None] >= 0) & (ranks[:, None, :] >= 0)
        difference = np.where(placed, ranks[:, :, None] - ranks[:, None, :], 0)
        side = np.where(np.abs(difference) == 1, difference, 0).astype(np.int8)
    else:
        above = ballots.above.numpy()
        side = above.transpose(0, 2, 1).astype(np.int8) - above.astype(np.int8)
    # First those above (1), then those below (-1), for each row and item.
    rows, items, upper = np.nonzero(side == 1)
    rows_b, items_b, lower = np.nonzero(side == -1)
    key = np.concatenate([(rows * ballots.n + items) * 2, (rows_b * ballots.n + items_b) * 2 + 1])
    edges = np.concatenate([upper, lower])[np.argsort(key, kind="stable")]
    ends = np.searchsorted(np.sort(key), np.arange(2 * len(side) * ballots.n + 1))
    starts = np.stack([ends[:-1:2], ends[1::2], ends[2::2]], 1).reshape(len(side), ballots.n, 3)
    return edges.astype(np.int64), starts


def _error_of_mean(values: np.ndarray) -> float:
    """The standard error of the mean of dependent values, by the means of batches."""
    if len(values) < 2:
        return math.nan
    batches = np.array_split(values, min(len(values), max(2, round(math.sqrt(len(values))))))
    means = np.array([batch.mean() for batch in batches])
    return float(means.std(ddof=1) / math.sqrt(len(means)))
