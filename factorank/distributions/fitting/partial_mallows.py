"""Mallows and mixtures of it from partial rankings, by Monte-Carlo EM with AMP."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from factorank.distributions.conditioning.amp import cumulated, new_seed, relations
from factorank.distributions.factorized import geometric_table
from factorank.distributions.fitting.checks import Unranked, check_unused, row_weights
from factorank.distributions.fitting.consensus import disagreement, kemeny
from factorank.distributions.fitting.dispersion import fit_mallows_phi
from factorank.distributions.fitting.em import EMSettings, cluster_voters, empty_components, rounds
from factorank.distributions.fitting.report import FitError, FitReport
from factorank.distributions.partial_orders import PartialOrders

PARTIAL_EM = EMSettings(max_iterations=100, tolerance=1e-4, samples=50)
"""The defaults; the tolerance is of the change of weights and dispersions."""
LEAST_PHI = 1e-6
"""Under φ = 0 a vote that differs from the centre is impossible, and EM could never leave such a point."""


def as_partial_orders(
    orders: Tensor | PartialOrders, unranked: Unranked | None, items: int | None
) -> Tensor | PartialOrders:
    """Orders as :class:`PartialOrders` if some leave items out; else as they are."""
    if isinstance(orders, PartialOrders):
        check_unused("a fit to PartialOrders", unranked=unranked, items=items)
        return orders
    if unranked is None and items is not None:
        raise FitError("items= goes with unranked=, which says how the items left out are ranked")
    if unranked is None or (items in (None, orders.shape[-1]) and bool((orders != -1).all())):
        return orders
    return PartialOrders.from_orders(orders, unranked=unranked, items=items)


def fit_partial_mallows(
    partial: PartialOrders, weights: Tensor | None, settings: EMSettings
) -> tuple[Tensor, list[tuple[Tensor, Tensor]], FitReport]:
    r"""A mixture of Mallows laws fitted to partial orders: weights ``(k,)``, each centre and φ, and report.

    The likelihood of a voter is the probability of all orders that agree with their partial order. EM
    completes the data by their law given it. That law is represented by ``samples`` draws for each voter and
    component from AMP, weighted by :math:`P(x)/Q(x)`: the mean weight estimates the likelihood of the partial
    order without bias, and the self-normalised weighted draws estimate expectations under the completed data
    consistently as the samples grow. (Draws from AMP without weights would not: it is not the posterior.)
    The M-step is exact: a completion matters only through its pairs, so the centre is the Kemeny consensus
    of the expected pairwise counts, and φ solves the moment equation.

    The same random numbers serve every iteration, so that the iteration has a fixed point and "converged"
    means that weights and dispersions moved by less than the tolerance and the centres not at all. The
    log-likelihood reported is estimated afresh, with four times the samples and other random numbers, so it
    is not biased by the fit (half the variance of a voter's estimate is added, by which the logarithm of a
    mean is too low); its standard error and the least effective sample size are reported, too.

    Lu and Boutilier, JMLR 2014.
    """
    voters = row_weights(weights, (len(partial),))
    if len(partial) == 0 or partial.n == 0:
        raise FitError(f"a fit needs at least one voter and one item, not {partial}")
    above = partial.above.cpu().numpy()
    related = relations(partial.above)
    seed, fresh = new_seed(settings.generator), new_seed(settings.generator)
    ends = []
    for _ in rounds(settings.restarts, settings.progress, "restarts"):
        start = _start(above, voters, settings)
        state, iterations, converged = _iterate(start, related, voters, settings, seed)
        ends.append(
            (_expect(state, related, voters, 4 * settings.samples, fresh), state, iterations, converged)
        )
    best, state, iterations, converged = max(ends, key=lambda end: end[0].likelihood)
    warnings = []
    if not converged:
        warnings.append(
            f"the last of {iterations} iterations still moved the parameters by more than"
            f" {settings.tolerance:g}"
        )
    if best.effective < 0.1:
        warnings.append(
            "for some voters the samples are worth less than a tenth of their number; draw more samples"
        )
    warnings += empty_components(state.weights)
    k = settings.components
    report = FitReport(
        "Mallows (partial orders)" if k == 1 else f"mixture of {k} Mallows (partial orders)",
        rankings=float(voters.sum()),
        log_likelihood=best.likelihood,
        parameters=2 * k - 1,
        iterations=iterations,
        converged=converged,
        standard_error=best.error,
        effective_sample_size=best.effective,
        restarts=tuple(end[0].likelihood for end in ends) if settings.restarts > 1 else (),
        warnings=tuple(warnings),
    )
    device = partial.above.device
    centres = [torch.from_numpy(order).to(device) for order in state.orders]
    parameters = list(zip(centres, torch.from_numpy(state.phis).to(device), strict=True))
    return torch.from_numpy(state.weights).to(device), parameters, report


@dataclass(frozen=True)
class _State:
    weights: np.ndarray
    orders: list[np.ndarray]
    phis: np.ndarray


@dataclass(frozen=True)
class _Expected:
    counts: np.ndarray
    """``(components, n, n)``: the expected weight of the completions that put a above b."""
    masses: np.ndarray
    """The expected weight of each component."""
    likelihood: float
    error: float
    effective: float


def _expect(state: _State, related: np.ndarray, voters: np.ndarray, samples: int, seed: int) -> _Expected:
    """The E-step, by weighted completions that AMP draws."""
    from factorank.kernels.completions import expected_counts

    k, n = len(state.orders), related.shape[-1]
    logs = geometric_table(torch.from_numpy(state.phis)[:, None].expand(k, n), "insertion", log=True).numpy()
    counts, masses = np.zeros((k, n, n)), np.zeros(k)
    law = np.stack(state.orders), cumulated(logs), logs
    total, error, effective = expected_counts(
        related, voters, state.weights, *law, samples, seed, counts, masses
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
    settings: EMSettings,
    seed: int,
) -> tuple[_State, int, bool]:
    """EM from one start: the last state, the number of iterations, whether it converged."""
    for iteration in range(settings.max_iterations):
        expected = _expect(state, related, voters, settings.samples, seed)
        moved = _maximise(expected.counts, expected.masses, state.orders, state.phis)
        change = max(np.abs(moved.phis - state.phis).max(), np.abs(moved.weights - state.weights).max())
        same = all(np.array_equal(a, b) for a, b in zip(moved.orders, state.orders, strict=True))
        state = moved
        if same and change < settings.tolerance:
            return state, iteration + 1, True
    return state, settings.max_iterations, False


def _maximise(counts: np.ndarray, masses: np.ndarray, orders: list[np.ndarray], phis: np.ndarray) -> _State:
    """The M-step. A component that has lost all its voters keeps its law, at weight zero."""
    n = counts.shape[-1]
    weights, centres, spreads = masses / masses.sum(), [], phis.copy()
    for k, mass in enumerate(masses):
        if mass <= 1e-9 * masses.sum():
            weights[k] = 0.0
            centres.append(orders[k])
            continue
        order, _ = kemeny(counts[k], orders[k])
        centres.append(order)
        spreads[k] = max(fit_mallows_phi(disagreement(counts[k], order), n, mass)[0], LEAST_PHI)
    return _State(weights / weights.sum(), centres, spreads)


def _start(above: np.ndarray, voters: np.ndarray, settings: EMSettings) -> _State:
    """Centres from the preferences of the voters of each cluster; dispersions of one half."""
    k = settings.components

    def distances(voter: int) -> np.ndarray:
        against = (above & above[voter].T).sum((1, 2))
        shared = against + (above & above[voter]).sum((1, 2))
        return np.where(shared > 0, against / np.maximum(shared, 1), 0.5)

    label = np.zeros(len(voters), dtype=np.int64)
    if k > 1:
        label = cluster_voters(distances, voters, k, settings.generator)
    orders = []
    for name in range(k):
        counts = np.zeros(above.shape[1:])
        for voter in np.flatnonzero(label == name):
            counts += voters[voter] * above[voter]
        orders.append(kemeny(counts)[0])
    return _State(np.full(k, 1 / k), orders, np.full(k, 0.5))
