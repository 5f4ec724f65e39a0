"""What votes say of the parameters of a law, as a posterior distribution.

Mallows: the sum over all centres is computed by dynamic programming over sets of items. So the posterior of
the dispersion is exact, and draws of dispersion and centre are independent: no chain has to converge.

Plackett-Luce: draws from the normal distribution at the mode (Laplace), with importance weights that make up
for the difference.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from factorank.data.rankings import Rankings
from factorank.distributions import PlackettLuce
from factorank.distributions.fitting.ballots import read_ballots
from factorank.distributions.fitting.checks import Unranked, check_strength
from factorank.distributions.fitting.choices import choices_of, curvature, tied_above
from factorank.distributions.fitting.dispersion import log_normaliser
from factorank.distributions.fitting.kemeny import pairwise_counts
from factorank.errors import FactorankError
from factorank.votes.tables import aligned

LARGEST = 20
"""The largest number of items whose orders are summed over: 2^20 sets, a second for each dispersion."""
GRID = 31
"""Dispersions at which the posterior of a Mallows law is computed."""


@dataclass(frozen=True)
class MallowsPosterior:
    """Draws of dispersion and centre, and the density of the dispersion on a grid."""

    items: tuple[str, ...]
    thetas: Tensor
    """Draws of θ = -log φ, ``(draws,)``."""
    centres: Tensor
    """Draws of the centre with them: orders ``(draws, n)``."""
    grid: Tensor
    density: Tensor
    """The posterior density of θ, at the points of ``grid``; exact, but for the grid."""

    @property
    def mean(self) -> float:
        """The posterior mean of θ."""
        return float(torch.trapezoid(self.grid * self.density, self.grid))

    def quantile(self, share: float) -> float:
        """The θ below which this share of the posterior lies."""
        mass = torch.cat(
            [torch.zeros(1, dtype=torch.float64), torch.cumulative_trapezoid(self.density, self.grid)]
        )
        return float(np.interp(share, mass / mass[-1], self.grid))

    def interval(self, level: float = 0.95) -> tuple[float, float]:
        """The shortest interval of θ that holds this share of the posterior."""
        lows = np.linspace(0, 1 - level, 400)
        ends = [(self.quantile(low), self.quantile(low + level)) for low in lows]
        return min(ends, key=lambda end: end[1] - end[0])

    def place_probabilities(self) -> Tensor:
        """``[j, i]``: the probability that item j is at place i of the centre, from the draws."""
        n = self.centres.shape[1]
        hits = torch.nn.functional.one_hot(self.centres, n).double().mean(0)  # (place, item)
        return hits.T

    def __str__(self) -> str:
        low, high = self.interval()
        best = self.place_probabilities()[:, 0]
        leader = int(best.argmax())
        phi = f"phi {math.exp(-self.mean):.4f} (95%: {math.exp(-high):.4f} to {math.exp(-low):.4f})"
        return f"{phi}; {self.items[leader]} is first in the centre with probability {best[leader]:.3f}"


def mallows_posterior(
    rankings: Rankings,
    *,
    distance: Literal["kendall", "footrule"] = "kendall",
    rate: float = 0.001,
    draws: int = 1000,
    generator: torch.Generator | None = None,
) -> MallowsPosterior:
    r"""The posterior of a Mallows law :math:`P(x) ∝ e^{-θ d(x, σ)}` on complete rankings.

    The centre σ is uniform beforehand, and nθ is exponential with this ``rate``, as in the R package
    BayesMallows, which calls nθ alpha. Exact up to 20 items.

    Args:
        rankings: complete and strict.
        distance: "kendall", or "footrule", the sum over the items of how far their places lie apart.
        rate: of the exponential prior of nθ.
        draws: of θ and the centre.
        generator: of the draws.

    Vitelli and others, "Probabilistic preference learning with the Mallows rank model", 2018.

    >>> from factorank import Mallows
    >>> orders = Mallows([2, 0, 1, 3], 0.4).sample((50,), generator=torch.Generator().manual_seed(0))
    >>> votes = Rankings.from_orders(orders)
    >>> posterior = mallows_posterior(votes, generator=torch.Generator().manual_seed(0))
    >>> low, high = posterior.interval()
    >>> low < -math.log(0.4) < high, posterior.centres[0]
    (True, tensor([2, 0, 1, 3]))
    """
    from factorank.kernels.subsets import draw_orders, half_sums, order_sums

    rankings.check_complete("; the posterior of a Mallows law is for complete rankings")
    check_strength("rate", rate)
    n, voters = rankings.n, float(rankings.voters)
    if n > LARGEST:
        raise FactorankError(f"the posterior sums over the orders of at most {LARGEST} items, not {n}")
    orders, weights = rankings.to_padded_orders().numpy(), rankings.weights.numpy()
    counts, costs, places = np.zeros((n, n)), np.zeros((n, n)), np.arange(n)
    if distance == "kendall":
        counts = pairwise_counts(orders, weights)
    else:
        ranks = np.argsort(orders, axis=1)
        costs = np.einsum("v,vai->ai", weights, np.abs(ranks[:, :, None] - places).astype(float))
    tables, empty = half_sums(counts), half_sums(np.zeros((n, n)))
    apart = np.abs(places[:, None] - places).astype(float)

    def log_density(theta: float) -> float:
        """Up to a constant: prior, likelihood summed over the centres, normaliser."""
        if distance == "kendall":
            normaliser = float(log_normaliser(np.array(theta), places + 1.0).sum())
        else:
            normaliser = order_sums(empty, apart, theta)[-1]
        return order_sums(tables, costs, theta)[-1] - voters * normaliser - rate * n * theta

    points = _grid(log_density)
    grid, logs = _smooth(points, np.array([log_density(theta) for theta in points]))
    density = np.exp(logs - logs.max())
    density /= np.trapezoid(density, grid)
    mass = np.concatenate([[0.0], np.cumsum((density[1:] + density[:-1]) / 2 * np.diff(grid))])
    device = "cpu" if generator is None else generator.device
    uniform = torch.rand(draws, n + 1, dtype=torch.float64, generator=generator, device=device).cpu().numpy()
    thetas = np.interp(uniform[:, 0], mass / mass[-1], grid)
    # The centre is drawn at the nearest of the points: one table for all draws there.
    nearest = np.abs(thetas[:, None] - points).argmin(1)
    centres = np.empty((draws, n), dtype=np.int64)
    for point in np.unique(nearest):
        here, theta = nearest == point, points[point]
        sums = order_sums(tables, costs, theta)
        centres[here] = draw_orders(tables, costs, theta, sums, uniform[here, 1:])
    return MallowsPosterior(
        tuple(rankings.items), torch.from_numpy(thetas), torch.from_numpy(centres), torch.from_numpy(grid),
        torch.from_numpy(density),
    )  # fmt: skip


def _grid(log_density: Callable[[float], float]) -> np.ndarray:
    """Points around the mode, as far as the density is more than a millionth of its largest value."""
    points = np.geomspace(1e-3, 5.0, 9)
    for _ in range(3):  # closer and closer around the largest
        values = np.array([log_density(point) for point in points])
        best = int(values.argmax())
        mode, top = points[best], values[best]
        points = np.linspace(points[max(best - 1, 0)], points[min(best + 1, len(points) - 1)], 7)
    ends = []
    for side in (-1, 1):
        width = 0.1 * mode
        while mode + side * width > 0 and log_density(mode + side * width) > top - 14:
            width *= 1.4
        ends.append(max(mode + side * width, 1e-6))
    return np.linspace(ends[0], ends[1], GRID)


def _smooth(points: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """A finer grid, with the values interpolated by cubics whose slopes are those of the neighbours."""
    step = points[1] - points[0]
    slopes = np.gradient(values, step)
    fine = np.linspace(points[0], points[-1], 32 * (len(points) - 1) + 1)
    left = np.minimum(((fine - points[0]) / step).astype(int), len(points) - 2)
    t = (fine - points[left]) / step
    cubic = (
        (1 + 2 * t) * (1 - t) ** 2 * values[left]
        + t * (1 - t) ** 2 * step * slopes[left]
        + t**2 * (3 - 2 * t) * values[left + 1]
        + t**2 * (t - 1) * step * slopes[left + 1]
    )
    return fine, cubic


@dataclass(frozen=True)
class PlackettLucePosterior:
    """Weighted draws of the logits."""

    items: tuple[str, ...]
    mode: Tensor
    """``(n,)``, of mean zero."""
    logits: Tensor
    """Draws ``(draws, n)``, of mean zero each."""
    weights: Tensor
    """Importance weights of the draws ``(draws,)``; they sum to one."""

    @property
    def effective(self) -> float:
        """How many equal weights would say as much."""
        return float(1 / self.weights.square().sum())

    @property
    def mean(self) -> Tensor:
        """The posterior mean of the logits ``(n,)``."""
        return self.weights @ self.logits

    def intervals(self, level: float = 0.95) -> list[tuple[float, float]]:
        """The middle part of the posterior of each logit that has this probability."""
        ends = []
        for column in self.logits.T:
            values, order = column.sort()
            mass = self.weights[order].cumsum(0)
            low, high = (
                float(np.interp(share, mass, values)) for share in ((1 - level) / 2, (1 + level) / 2)
            )
            ends.append((low, high))
        return ends

    def p_best(self) -> Tensor:
        """The probability that each item has the largest logit ``(n,)``."""
        best = torch.nn.functional.one_hot(self.logits.argmax(1), self.logits.shape[1]).double()
        return self.weights @ best

    def __str__(self) -> str:
        means, best, ends = self.mean, self.p_best(), self.intervals()
        rows = [["item", "logit", "95%", "P(best)"]]
        for item in means.argsort(descending=True).tolist():
            low, high = ends[item]
            shown = [f"{means[item]:.3f}", f"{low:.3f} – {high:.3f}", f"{best[item]:.3f}"]
            rows.append([self.items[item], *shown])
        return aligned(rows)


def plackett_luce_posterior(
    rankings: Rankings,
    *,
    unranked: Unranked | None = None,
    penalty: float = 0.1,
    draws: int = 4000,
    generator: torch.Generator | None = None,
) -> PlackettLucePosterior:
    r"""The posterior of the logits of Plackett-Luce, each of which is normal beforehand.

    Args:
        rankings: complete, or with items left out; ties at the end only.
        unranked: as of :meth:`PlackettLuce.fit`.
        penalty: the precision of the prior: logits have a standard deviation of :math:`1/\sqrt{penalty}`.
        draws: from the normal distribution at the mode.
        generator: of the draws.

    >>> votes = Rankings(["a", "b", "c"], torch.tensor([[0, 1, 2], [1, 0, 2]]), torch.tensor([60, 40]))
    >>> posterior = plackett_luce_posterior(votes, generator=torch.Generator().manual_seed(0))
    >>> posterior.p_best().argmax(), posterior.effective > 1000
    (tensor(0), True)
    """
    from factorank.kernels.fitting import choice_log_probs

    ballots = read_ballots(rankings, None, unranked)
    if tied_above(ballots.ranks).any():
        raise FactorankError("the posterior of Plackett-Luce takes ties at the end of a ranking only")
    if not penalty > 0:
        raise FactorankError(f"{{parameter}} is above 0, not {penalty}", parameter="penalty")
    law = PlackettLuce.fit(rankings, unranked=unranked, penalty=penalty)
    mode = law.logits.numpy()
    data = choices_of(ballots.ranks, ballots.weights)
    precision = torch.from_numpy(curvature(data, mode) + penalty * np.eye(len(mode)))
    factor = torch.linalg.cholesky(precision)
    device = "cpu" if generator is None else generator.device
    noise = torch.randn(draws, len(mode), dtype=torch.float64, generator=generator, device=device).cpu()
    steps = torch.linalg.solve_triangular(factor.T, noise.T, upper=True).T
    logits = law.logits + steps
    likelihood = ballots.weights @ choice_log_probs(data.items, data.starts, data.stages, logits.numpy())
    posterior = torch.from_numpy(likelihood) - penalty / 2 * logits.square().sum(1)
    weights = (posterior + noise.square().sum(1) / 2).softmax(0)
    centred = logits - logits.mean(1, keepdim=True)
    return PlackettLucePosterior(tuple(rankings.items), law.logits, centred, weights)
