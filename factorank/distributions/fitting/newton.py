"""Newton's method for concave log-likelihoods, its steps solved by conjugate gradients."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

Value = Callable[[np.ndarray], tuple[float, float, np.ndarray, np.ndarray]]
"""The penalised log-likelihood at some parameters, the log-likelihood itself, the gradient of the former, and
the diagonal of minus its Hessian (or positive numbers like it), which scales the conjugate gradients."""
Times = Callable[[np.ndarray], np.ndarray]
"""Minus the Hessian, at the parameters that were evaluated last, times a vector."""


@dataclass(frozen=True)
class Ascent:
    """Where an ascent ended."""

    parameters: np.ndarray
    log_likelihood: float
    iterations: int
    converged: bool

    @property
    def doubt(self) -> str:
        """What is said of an ascent that did not converge."""
        return f"stopped after {self.iterations} iterations, before the gradient was small"


def ascend(
    value: Value, times: Times, start: np.ndarray, goal: float, max_iterations: int, *, rough: float
) -> Ascent:
    """Climb until no entry of the gradient is above ``goal``.

    A step that does not raise the objective is shortened until it does. Where none does any more, a gradient
    below ``rough`` counts as converged.
    """
    parameters = start
    objective, likelihood, gradient, diagonal = value(parameters)
    for iteration in range(max_iterations):
        if np.abs(gradient).max(initial=0.0) <= goal:
            return Ascent(parameters, likelihood, iteration, True)
        step = _conjugate_gradients(times, gradient, diagonal)
        step *= min(1.0, 5.0 / np.abs(step).max())  # far from the maximum the quadratic model means little
        slope = float(gradient @ step)
        for _ in range(40):
            tried = value(parameters + step)
            if tried[0] >= objective + 1e-4 * slope:
                break
            # Near the maximum the gain is below the rounding of the sum; the gradient still falls.
            if slope < 1e-12 * abs(objective) and np.abs(tried[2]).max() < np.abs(gradient).max():
                break
            step, slope = step / 2, slope / 2
        else:
            value(parameters)
            return Ascent(parameters, likelihood, iteration, bool(np.abs(gradient).max() <= rough))
        parameters = parameters + step
        objective, likelihood, gradient, diagonal = tried
    return Ascent(parameters, likelihood, max_iterations, False)


def _conjugate_gradients(times: Times, gradient: np.ndarray, diagonal: np.ndarray) -> np.ndarray:
    """Conjugate gradients, scaled by the diagonal, to a residual that shrinks with the gradient."""
    scale = 1 / np.maximum(diagonal, 1e-12 * max(diagonal.max(), 1e-300))
    step, residual = np.zeros_like(gradient), gradient.copy()
    scaled = scale * residual
    direction, energy = scaled.copy(), float(residual @ scaled)
    goal = min(0.1, np.sqrt(energy / max(float(diagonal.sum()), 1e-300))) ** 2 * energy
    for _ in range(2 * len(gradient) + 10):
        product = times(direction)
        curved = float(direction @ product)
        if curved <= 0:
            break
        length = energy / curved
        step += length * direction
        residual -= length * product
        scaled = scale * residual
        before, energy = energy, float(residual @ scaled)
        if energy <= goal:
            break
        direction = scaled + energy / before * direction
    return step if step.any() else scale * gradient
