"""Mallows and mixtures of it from partial rankings, by Monte-Carlo EM with AMP."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from factorank.distributions.conditioning.amp import insertion_table, new_seed, relations
from factorank.distributions.fitting.checks import row_weights
from factorank.distributions.fitting.consensus import kemeny
from factorank.distributions.fitting.mallows import dispersion_of
from factorank.distributions.fitting.progress import rounds
from factorank.distributions.fitting.report import FitError, FitReport
from factorank.distributions.fitting.seeds import spread_voters
from factorank.distributions.partial import PartialOrders

if TYPE_CHECKING:
    from factorank.distributions.mallows import Mallows

LEAST_PHI = 1e-6
"""Under φ = 0 a vote that differs from the centre is impossible, and EM could never leave such a point."""


def fit_mallows_partial(partial: PartialOrders, weights: Tensor | None = None, **options: Any) -> "Mallows":
    """The Mallows law of :class:`PartialOrders`: :func:`fit_mallows_mixture_partial` with one component.

    >>> tops = torch.tensor([[0, 1, -1, -1]] * 6 + [[1, 0, -1, -1]] * 2 + [[0, 2, -1, -1]])
    >>> law = fit_mallows_partial(PartialOrders.from_orders(tops), generator=torch.Generator().manual_seed(0))
    >>> law.central[:2]
    tensor([0, 1])
    """
    _, laws, report = fit_mallows_mixture_partial(partial, weights, components=1, restarts=1, **options)
    laws[0].report = report
    return laws[0]


def fit_mallows_mixture_partial(
    partial: PartialOrders,
    weights: Tensor | None = None,
    *,
    components: int,
    samples: int = 50,
    restarts: int = 5,
    max_iterations: int = 100,
    tolerance: float = 1e-4,
    generator: torch.Generator | None = None,
    progress: bool = False,
    held_out: PartialOrders | None = None,
    held_out_weights: Tensor | None = None,
) -> tuple[Tensor, list["Mallows"], FitReport]:
    r"""A mixture of Mallows laws fitted to partial orders: weights ``(k,)``, laws and report.

    The likelihood of a voter is the probability of all orders that agree with what they said. EM completes
    the data by their law given it. That law is represented by ``samples`` draws for each voter and component
    from AMP, weighted by :math:`P(x)/Q(x)`: the mean weight estimates the likelihood of the partial order
    without bias, and the self-normalised weighted draws estimate expectations under the completed data
    consistently as the samples grow. (Draws from AMP without weights would not: it is not the posterior.)
    The M-step is exact: a completion matters only through its pairs, so the centre is the Kemeny consensus
    of the expected pairwise counts, and φ solves the moment equation.

    The same random numbers serve every iteration, so that the iteration has a fixed point and "converged"
    means that weights and dispersions moved by less than ``tolerance`` and the centres not at all. The
    log-likelihood reported is estimated afresh, with four times the samples and other random numbers, so it
    is not flattered by the fit (half the variance of a voter's estimate is added, which a logarithm of a mean
    falls short by); its standard error and the least effective sample size stand beside it.

    Lu and Boutilier, JMLR 2014.
    """
    from factorank.distributions.mallows import Mallows

    voters = row_weights(weights, (len(partial),))
    check_settings(components=components, samples=samples, restarts=restarts, max_iterations=max_iterations)
    if len(partial) == 0 or partial.n == 0:
        raise FitError(f"a fit needs at least one voter and one item, not {partial}")
    if held_out is not None and held_out.n != partial.n:
        raise FitError(f"the held-out voters rank {held_out.n} items, the others {partial.n}")
    above = partial.above.cpu().numpy()
    related = relations(partial.above)
    seed, fresh = new_seed(generator), new_seed(generator)
    ends = []
    for _ in rounds(restarts, progress, "restarts"):
        start = _start(above, voters, components, generator)
        state, iterations, converged = _iterate(
            start, related, voters, samples, max_iterations, tolerance, seed
        )
        ends.append((_expect(state, related, voters, 4 * samples, fresh), state, iterations, converged))
    best, state, iterations, converged = max(ends, key=lambda end: end[0].likelihood)
    said = []
    if not converged:
        said.append(
            f"the last of {iterations} iterations still moved the parameters by more than {tolerance:g}"
        )
    if best.effective < 0.1:
        said.append(
            "for some voters the samples are worth less than a tenth of their number; draw more samples"
        )
    if (state.shares == 0).any():
        said.append(f"{int((state.shares == 0).sum())} of {components} components are empty")
    beyond = None
    if held_out is not None:
        other_weights = row_weights(held_out_weights, (len(held_out),))
        others = _expect(state, relations(held_out.above), other_weights, 4 * samples, fresh)
        beyond = others.likelihood / other_weights.sum()
    report = FitReport(
        "Mallows (partial orders)"
        if components == 1
        else f"mixture of {components} Mallows (partial orders)",
        rankings=float(voters.sum()),
        log_likelihood=best.likelihood,
        parameters=2 * components - 1,
        iterations=iterations,
        converged=converged,
        held_out=beyond,
        standard_error=best.error,
        effective_sample_size=best.effective,
        restarts=tuple(end[0].likelihood for end in ends) if restarts > 1 else (),
        warnings=tuple(said),
    )
    device = partial.above.device
    laws = [
        Mallows(torch.from_numpy(order).to(device), torch.tensor(phi, dtype=torch.float64, device=device))
        for order, phi in zip(state.orders, state.phis.tolist(), strict=True)
    ]
    return torch.from_numpy(state.shares).to(device), laws, report


def check_settings(**settings: int) -> None:
    """Refuse a count below one; the keyword names it."""
    for name, value in settings.items():
        if int(value) != value or value < 1:
            raise FitError(f"{name} is a whole number of at least 1, not {value}")


@dataclass(frozen=True)
class _State:
    shares: np.ndarray
    orders: list[np.ndarray]
    phis: np.ndarray


@dataclass(frozen=True)
class _Expected:
    counts: np.ndarray
    masses: np.ndarray
    likelihood: float
    error: float
    effective: float


def _expect(state: _State, related: np.ndarray, voters: np.ndarray, samples: int, seed: int) -> _Expected:
    from factorank.distributions.mallows import Mallows
    from factorank.kernels import amp as amp_kernels

    k, n = len(state.orders), related.shape[-1]
    tables = [
        insertion_table(Mallows(torch.from_numpy(order), torch.tensor(phi, dtype=torch.float64)))
        for order, phi in zip(state.orders, state.phis.tolist(), strict=True)
    ]
    counts, masses = np.zeros((k, n, n)), np.zeros(k)
    references, sums, logs = (np.stack(part) for part in zip(*tables, strict=True))
    total, error, effective = amp_kernels.expectation(
        related, voters, state.shares, references, sums, logs, samples, seed, counts, masses
    )
    used = voters > 0
    return _Expected(
        counts,
        masses,
        likelihood=float((voters * (total + error / 2))[used].sum()),
        error=float(np.sqrt((voters**2 * error)[used].sum())),
        effective=float(effective[used].min()),
    )


def _iterate(
    state: _State,
    related: np.ndarray,
    voters: np.ndarray,
    samples: int,
    max_iterations: int,
    tolerance: float,
    seed: int,
) -> tuple[_State, int, bool]:
    for iteration in range(max_iterations):
        expected = _expect(state, related, voters, samples, seed)
        moved = _maximise(expected.counts, expected.masses, state.orders, state.phis)
        change = max(np.abs(moved.phis - state.phis).max(), np.abs(moved.shares - state.shares).max())
        same = all(np.array_equal(a, b) for a, b in zip(moved.orders, state.orders, strict=True))
        state = moved
        if same and change < tolerance:
            return state, iteration + 1, True
    return state, max_iterations, False


def _maximise(
    counts: np.ndarray, masses: np.ndarray, orders: Sequence[np.ndarray | None], phis: np.ndarray
) -> _State:
    """The M-step. A component that has lost all its voters keeps its law, at weight zero."""
    n = counts.shape[-1]
    shares, centres, spreads = masses / masses.sum(), [], phis.copy()
    for k, mass in enumerate(masses):
        start = orders[k]
        if mass <= 1e-9 * masses.sum():
            shares[k] = 0.0
            centres.append(np.arange(n) if start is None else start)
            continue
        order, _ = kemeny(counts[k], start)
        centres.append(order)
        spreads[k] = max(dispersion_of(counts[k], order, mass)[0], LEAST_PHI)
    return _State(shares / shares.sum(), centres, spreads)


def _start(above: np.ndarray, voters: np.ndarray, k: int, generator: torch.Generator | None) -> _State:
    """Centres from what the voters of each cluster said outright; dispersions of one half."""

    def distances(voter: int) -> np.ndarray:
        against = (above & above[voter].T).sum((1, 2))
        shared = against + (above & above[voter]).sum((1, 2))
        return np.where(shared > 0, against / np.maximum(shared, 1), 0.5)

    label = spread_voters(distances, voters, k, generator) if k > 1 else np.zeros(len(voters), dtype=np.int64)
    orders = []
    for name in range(k):
        said = np.zeros(above.shape[1:])
        for voter in np.flatnonzero(label == name):
            said += voters[voter] * above[voter]
        orders.append(kemeny(said)[0])
    return _State(np.full(k, 1 / k), orders, np.full(k, 0.5))
