"""Mallows from rankings that leave items incomparable: a sampler finds the fit, exact sums finish it."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from factorank.distributions.conditioning.amp import new_seed
from factorank.distributions.fitting.ballots import Ballots
from factorank.distributions.fitting.dispersion import fit_mallows_phi
from factorank.distributions.fitting.em import EMSettings
from factorank.distributions.fitting.kemeny import STEP_EFFORT, disagreement, kemeny
from factorank.distributions.fitting.partial_chains import Chains, thermodynamic_likelihood
from factorank.distributions.fitting.partial_likelihood import PartialLikelihood
from factorank.distributions.fitting.report import FitReport

PARTIAL_EM = EMSettings(max_iterations=30, tolerance=1e-4, samples=0)
"""The defaults; the tolerance is of the change of φ, and no samples stand for a number by the chains."""
SETTLING = (2, 3, 4, 6, 8)
"""Sweeps of the rounds in which the centre still moves."""
DRAWS = 100_000
"""Orders that all chains together draw in a round, where the number of samples is not given."""
LEAST_THETA, LARGEST_THETA = 1e-6, 14.0
"""Where the search for θ = -log φ ends: φ from 10^-6 to 1."""
GOLDEN = (3 - math.sqrt(5)) / 2
"""The shorter part of a golden section."""


@dataclass(frozen=True)
class PartialFit:
    """A centre, φ on the scale θ = -log φ, and what is known of its error."""

    order: np.ndarray
    theta: float
    error: float
    """The standard error of θ, from the observed information."""
    monte_carlo: float = 0.0
    """The part of the error of θ that is due to the sampler; 0 where sums were exact."""
    likelihood: float = 0.0
    likelihood_error: float | None = None
    iterations: int = 0
    converged: bool = True


def fit_partial_mallows(
    ballots: Ballots, settings: EMSettings, central: np.ndarray | None = None
) -> tuple[np.ndarray, float, FitReport]:
    r"""A Mallows law of maximum likelihood for partial orders: centre, φ and report.

    The likelihood of a voter is the probability of all orders that agree with their partial order. By
    Fisher's identity its derivative is that of the completed data, in expectation: the centre is the Kemeny
    consensus of the expected pairwise counts, and θ = -log φ solves :math:`E_θ[d] = \bar d(θ)`, the mean of
    the distances of the completions. Gibbs chains, their number in proportion to the counts of the voters,
    draw the completions exactly in the long run. The conditional variance of d gives Newton's steps and the
    observed information (Louis, 1982).

    Where the likelihood can be summed (:class:`PartialLikelihood`), θ is its exact maximum, and neighbours of
    the centre are tried. Elsewhere it is integrated along θ from the uniform law, and reported with the error
    of the sampler.
    """
    ballots = ballots.distinct()
    seed = new_seed(settings.generator)
    exact = PartialLikelihood(ballots)
    start = kemeny(ballots.partial().above.numpy().transpose(1, 2, 0) @ ballots.weights).order
    order = start if central is None else central
    fit = _sample_fit(ballots, order, settings, seed, keep=central is not None)
    if exact.exact:
        fit = _finish(exact, fit, keep=central is not None)
    else:
        value, error = thermodynamic_likelihood(ballots, fit.order, fit.theta, seed + 2**40, settings.samples)
        fit = replace(fit, likelihood=value, likelihood_error=error)
    phi = math.exp(-fit.theta) if fit.theta > LEAST_THETA else 1.0
    warnings: tuple[str, ...] = ()
    if not fit.converged:
        warnings = (f"the last of {fit.iterations} rounds still moved φ by more than {settings.tolerance:g}",)
    report = FitReport(
        "Mallows (partial orders)",
        rankings=ballots.total,
        log_likelihood=fit.likelihood,
        parameters=1,
        iterations=fit.iterations,
        converged=fit.converged,
        exact=None if central is not None else False,
        standard_error=fit.likelihood_error,
        monte_carlo_error=None if exact.exact else phi * fit.monte_carlo,
        warnings=warnings,
    )
    return fit.order, phi, report.with_estimates("phi", [phi], [phi * fit.error], ballots.items)


def _sample_fit(
    ballots: Ballots, order: np.ndarray, settings: EMSettings, seed: int, keep: bool
) -> PartialFit:
    """Short rounds of Gibbs sweeps that settle the centre, then long ones for θ, a Newton step after each."""
    n, total = ballots.n, ballots.total
    chains = Chains(ballots, seed)
    theta, pairs = 0.5, None
    for sweeps in SETTLING:
        chains.set_law(order, theta)
        chains.run(2, pairs=False)  # to forget the law before
        drawn = chains.run(sweeps, pairs=True)
        # Later rounds are longer and count more, but the earlier ones steady the centre.
        pairs = drawn.pairs if pairs is None else (drawn.pairs + pairs) / 2
        after = order if keep else kemeny(pairs, order, STEP_EFFORT).order
        if np.array_equal(after, order):
            theta, _ = _newton(drawn.mean, drawn.variance, theta, n, total)
        else:
            theta = _theta(disagreement(drawn.pairs, after), n, total)
        order = after
    samples = settings.samples or int(np.clip(DRAWS / len(chains.owners), 10, 50))
    for number in range(settings.max_iterations):
        chains.set_law(order, theta)
        chains.run(max(2, samples // 4), pairs=False)
        drawn = chains.run(samples, pairs=False)
        moved, information = _newton(drawn.mean, drawn.variance, theta, n, total)
        change = abs(math.exp(-moved) - math.exp(-theta))
        theta, noise = moved, drawn.error / information if information > 0 else math.nan
        error = 1 / math.sqrt(information) if information > 0 else math.nan
        done = change <= settings.tolerance + 3 * math.exp(-theta) * float(np.nan_to_num(noise))
        fit = PartialFit(order, theta, error, noise, iterations=number + 1, converged=done)
        if done:
            break
    return fit


def _theta(disagreements: float, n: int, total: float) -> float:
    phi = fit_mallows_phi(disagreements, np.full(n, total))[0]
    return float(np.clip(-math.log(max(phi, 1e-300)), LEAST_THETA, LARGEST_THETA))


def _newton(mean: float, variance: float, theta: float, n: int, total: float) -> tuple[float, float]:
    """θ where the expected distance of the law meets that of the completions, and the information there.

    ``mean`` and ``variance`` are sums over the voters of the distance given their partial order, at
    ``theta``. The share of the variance that is missing, ρ, changes slowly with θ; so the mean of the
    completions moves by ρ times as much as that of the law, and the two meet at (mean - ρ E) / (1 - ρ).
    """
    from factorank.kernels.references import geometric_variance

    def spread(at: float) -> float:
        return total * sum(geometric_variance(at, float(size)) for size in range(2, n + 1))

    missing = min(variance / spread(theta), 0.98)
    expected = total * _expected_distance(theta, n)
    after = _theta((mean - missing * expected) / (1 - missing), n, total)
    return after, spread(after) * (1 - missing)


def _expected_distance(theta: float, n: int) -> float:
    from factorank.kernels.fitting import geometric_mean

    return sum(geometric_mean(theta, float(size)) for size in range(2, n + 1))


def _finish(exact: PartialLikelihood, fit: PartialFit, keep: bool) -> PartialFit:
    """The exact maximum in θ, with swaps of neighbours in the centre while they raise the likelihood."""
    order, theta = fit.order, fit.theta
    theta, value = _maximum(exact.at(order), theta)
    improved = not keep
    while improved:
        improved = False
        for place in range(exact.n - 1):
            swapped = order.copy()
            swapped[[place, place + 1]] = swapped[[place + 1, place]]
            if exact.at(swapped)(math.exp(-theta)) > value + 1e-9:
                order, improved = swapped, True
                theta, value = _maximum(exact.at(order), theta)
    at = exact.at(order)
    step = 1e-3 * max(theta, 0.05)
    sides = [at(math.exp(-max(theta + shift, 0.0))) for shift in (-step, step)]
    information = (2 * value - sum(sides)) / step**2
    error = 1 / math.sqrt(information) if information > 0 else math.nan
    return PartialFit(order, theta, error, likelihood=value, iterations=fit.iterations)


def _maximum(value: Callable[[float], float], start: float) -> tuple[float, float]:
    """The θ of the largest value of a function of φ, near ``start``, and that value.

    Brent's search: the vertex of a parabola through three points, or a golden section where that leads out.
    """
    low, high = start / 2 if start > 0.05 else 0.0, min(2 * start + 0.05, LARGEST_THETA)
    known: dict[float, float] = {}

    def at(theta: float) -> float:
        if theta not in known:
            known[theta] = value(math.exp(-theta))
        return known[theta]

    best = second = third = min(max(start, low), high)
    step = before = high - low
    while high - low > 1e-9 * max(high, 1.0):
        least = 2e-10 * max(high, 1.0)
        a, b = (best - second) * (at(best) - at(third)), (best - third) * (at(best) - at(second))
        bend = 2 * (b - a)
        to_vertex = ((best - third) * b - (best - second) * a) / bend if bend else math.inf
        inside = low < best - to_vertex < high and abs(to_vertex) < abs(before) / 2
        before, step = (
            step,
            -to_vertex if inside else GOLDEN * ((low if 2 * best > low + high else high) - best),
        )
        trial = best + (step if abs(step) > least else math.copysign(least, step))
        if at(trial) >= at(best):
            low, high = (best, high) if trial > best else (low, best)
            best, second, third = trial, best, second
        else:
            low, high = (low, trial) if trial > best else (trial, high)
            second, third = (trial, second) if second == best or at(trial) >= at(second) else (second, trial)
        if abs(step) <= least and high - low < 1e-6:
            break
    best = max((best, low), key=at) if low == 0 else best  # a maximum at the uniform law
    return best, at(best)
