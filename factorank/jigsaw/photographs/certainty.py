"""How probable a solution is, by logistic regressions on held-out photographs.

A solution has two measures. *Fits*: the log-probability of each piece at its slot among all pieces, given its
neighbours. *Believed*: the log-probability of its slot by the placing alone. Neither says how often solutions
are right; regressions on both, fitted where the truth is known and nothing was trained, do.
"""

from dataclasses import dataclass

import numpy as np

SMALL = 1e-4


@dataclass(frozen=True)
class Certainty:
    """Coefficients of the two regressions: constant, of what fits, of what is believed."""

    of_whole: tuple[float, float, float] = (0.0, -1.0, -0.5)
    of_piece: tuple[float, float, float] = (0.0, 0.7, 0.3)

    @staticmethod
    def facts(fits: np.ndarray, believed: np.ndarray) -> tuple[float, float]:
        """Logarithms of how far the sums over the pieces are from certainty."""
        return float(np.log(SMALL - fits.sum())), float(np.log(SMALL - believed.sum()))

    @staticmethod
    def piece_facts(fits: np.ndarray, believed: np.ndarray) -> np.ndarray:
        """Log-odds of each piece, ``(n, 2)``."""
        log_probs = np.clip(np.stack([fits, believed], -1), -30, -1e-9)
        odds: np.ndarray = log_probs - np.log(-np.expm1(log_probs))
        return odds

    def whole(self, facts: tuple[float, float]) -> float:
        return float(_logistic(np.array(facts), self.of_whole))

    def piece(self, facts: np.ndarray) -> np.ndarray:
        return _logistic(facts, self.of_piece)

    @classmethod
    def fit(
        cls, facts: np.ndarray, right: np.ndarray, piece_facts: np.ndarray, pieces_right: np.ndarray
    ) -> "Certainty":
        """Fit both to solutions: facts ``(solutions, 2)`` and whether each is right, and those of pieces."""
        return cls(_regression(facts, right), _regression(piece_facts, pieces_right))


def _logistic(facts: np.ndarray, weights: tuple[float, float, float]) -> np.ndarray:
    value: np.ndarray = 1 / (1 + np.exp(-np.clip(weights[0] + facts @ np.array(weights[1:]), -30, 30)))
    return value


def _regression(
    facts: np.ndarray, right: np.ndarray, *, ridge: float = 1e-2, steps: int = 30
) -> tuple[float, float, float]:
    """Logistic regression by Newton's method, with a small ridge in case one side is never wrong."""
    inputs = np.concatenate([np.ones((len(facts), 1)), facts], 1)
    weights = np.zeros(3)
    for _ in range(steps):
        chance = 1 / (1 + np.exp(-np.clip(inputs @ weights, -30, 30)))
        gradient = inputs.T @ (right - chance) - ridge * weights
        curvature = (inputs * (chance * (1 - chance))[:, None]).T @ inputs + ridge * np.eye(3)
        weights = weights + np.linalg.solve(curvature, gradient)
    first, second, third = (float(weight) for weight in weights)
    return first, second, third
