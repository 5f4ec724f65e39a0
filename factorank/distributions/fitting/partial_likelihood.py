"""The exact log-likelihood of a Mallows law on rankings that leave items incomparable, where it can be had.

* Levels of tied items that hold all items: a closed form
(:func:`factorank.distributions.fitting.dispersion.digit_weights`). * Two items: a closed form in the distance
of their places in the centre. * A chain of some items: dynamic programming over the places of the chain's
items. * Any partial order of few items: the sum over all orders.
"""

import math
from collections.abc import Callable

import numpy as np
import torch

from factorank.distributions.conditioning.amp import cumulated
from factorank.distributions.factorized import geometric_table
from factorank.distributions.fitting.ballots import Ballots
from factorank.distributions.fitting.dispersion import digits_told, log_normaliser, mallows_likelihood
from factorank.lexicographic import permutation_at

MOST_STEPS = 3e7
"""The steps of the dynamic programmes, or the orders summed, for one value of the likelihood: 0.1 seconds."""
SUMMED_UP_TO = 8
"""The largest number of items whose orders are listed."""


class PartialLikelihood:
    """``likelihood(order, phi)`` for all rows of ``ballots``; ``exact`` is false where it is out of reach."""

    def __init__(self, ballots: Ballots) -> None:
        ranks, self.weights, self.n = ballots.ranks, ballots.weights, ballots.n
        listed, levels = (ranks >= 0).sum(1), ranks.max(1) + 1
        weak, chain = listed == self.n, (listed == levels) & (ballots.above is None)
        self.weak, self.pairs = np.flatnonzero(weak), np.flatnonzero(chain & ~weak & (listed == 2))
        self.chains = np.flatnonzero(chain & ~weak & (listed > 2))
        self.others = np.flatnonzero(~weak & ~chain)
        self.ranks, self.lengths = ranks, listed
        work = sum(map(self._steps, self.lengths[self.chains].tolist()))
        self.exact = work <= MOST_STEPS
        if len(self.others) or not self.exact:
            self.exact = self.n <= SUMMED_UP_TO and math.factorial(self.n) * len(ranks) <= MOST_STEPS
            if self.exact:
                self.others, self.chains = np.concatenate([self.others, self.chains]), self.chains[:0]
                self.orders = permutation_at(torch.arange(math.factorial(self.n)), self.n)
                agrees = ballots.partial()[torch.from_numpy(self.others)].agrees
                every = self.orders[:, None].expand(-1, len(self.others), -1)
                self.agrees = agrees(every).T.numpy().astype(np.float32)

    def _steps(self, length: int) -> int:
        """About the steps of the dynamic programme of a chain, its items spread evenly over the centre."""
        held = [round(i * length / self.n) for i in range(self.n)]
        return sum(math.comb(i, k) * (k + 1) for i, k in enumerate(held))

    def at(self, order: np.ndarray) -> Callable[[float], float]:
        """The log-likelihood of the centre ``order`` as a function of φ."""
        rows = self.rows_at(order)
        return lambda phi: float(self.weights @ rows(phi))

    def rows_at(self, order: np.ndarray) -> Callable[[float], np.ndarray]:
        """The log-probability of each row ``(rows,)`` as a function of φ."""
        rank = np.argsort(order)
        kinds = ((self.weak, self._of_weak), (self.pairs, self._of_pairs), (self.chains, self._of_chains))
        parts = [(rows, of(rank)) for rows, of in (*kinds, (self.others, self._of_others)) if len(rows)]

        def values(phi: float) -> np.ndarray:
            result = np.zeros(len(self.ranks))  # a single item is no order
            for rows, part in parts:
                result[rows] = part(phi)
            return result

        return values

    def _of_weak(self, rank: np.ndarray) -> Callable[[float], np.ndarray]:
        from factorank.kernels.fitting import disagreements

        ranks = self.ranks[self.weak]
        against, told = disagreements(ranks, rank[None])[:, 0], digits_told(ranks)
        sizes = np.arange(self.n, 0, -1.0)

        def values(phi: float) -> np.ndarray:
            if phi == 0:
                return np.where(against > 0, -np.inf, 0.0)
            theta = -math.log(phi)
            return -theta * against - told @ log_normaliser(np.array(theta), sizes)

        return values

    def _of_pairs(self, rank: np.ndarray) -> Callable[[float], np.ndarray]:
        places = rank[self._listed(self.pairs, 2)]
        ahead = places[:, 1] - places[:, 0]  # negative: against the centre

        def values(phi: float) -> np.ndarray:
            share = pair_probabilities(phi, self.n)[np.abs(ahead) - 1]
            with np.errstate(divide="ignore"):
                return np.log(np.where(ahead > 0, share, 1 - share))

        return values

    def _of_chains(self, rank: np.ndarray) -> Callable[[float], np.ndarray]:
        from factorank.kernels.chains import chain_log_probs

        listed = self._listed(self.chains, int(self.lengths[self.chains].max()))
        chains, lengths = np.where(listed >= 0, rank[listed], -1), self.lengths[self.chains]
        binomials = np.array([[math.comb(a, b) for b in range(self.n + 2)] for a in range(self.n + 2)])

        def values(phi: float) -> np.ndarray:
            ratio = torch.full((self.n,), phi, dtype=torch.float64)
            logs = geometric_table(ratio, "insertion", log=True).numpy()
            return chain_log_probs(chains, lengths, cumulated(logs), np.exp(logs), binomials)

        return values

    def _of_others(self, rank: np.ndarray) -> Callable[[float], np.ndarray]:
        from factorank.kernels.chains import kendall_to

        orders, distances = self.orders.numpy(), np.empty(len(self.orders), dtype=np.int64)
        kendall_to(orders, rank, distances)
        many = self.n * (self.n - 1) // 2 + 1
        # For each voter, how many of the orders that agree have each distance: exact in float32 below 2^24.
        at_distance = self.agrees @ np.eye(many, dtype=np.float32)[distances]
        digits = np.ones(self.n)

        def values(phi: float) -> np.ndarray:
            mass = at_distance.astype(float) @ phi ** np.arange(many)
            with np.errstate(divide="ignore"):
                return np.log(mass) + mallows_likelihood(phi, 0.0, digits)

        return values

    def _listed(self, rows: np.ndarray, most: int) -> np.ndarray:
        """The items that these rows list, best first, then -1: ``(rows, most)``."""
        ranks = self.ranks[rows]
        order = np.argsort(np.where(ranks < 0, self.n, ranks), axis=1, kind="stable")[:, :most]
        return np.where(np.arange(most) < self.lengths[rows][:, None], order, -1)


def pair_probabilities(phi: float, n: int) -> np.ndarray:
    r"""``[k - 1]``: the probability that an item is above the one k places below it in the centre, k < n.

    It is :math:`f(k+1) - f(k)` with :math:`f(x) = x / (1 - φ^x)`; a series near φ = 1, where these cancel.
    """
    k = np.arange(1.0, n)
    if phi == 0:
        return np.ones(n - 1)
    theta = -math.log(phi)
    if theta == 0:
        return np.full(n - 1, 0.5)
    series = 0.5 + theta * (2 * k + 1) / 12 - theta**3 * ((k + 1) ** 4 - k**4) / 720
    with np.errstate(over="ignore"):
        closed = (k + 1) / -np.expm1(-theta * (k + 1)) - k / -np.expm1(-theta * k)
    return np.where(theta * (k + 1) < 0.05, series, closed)
