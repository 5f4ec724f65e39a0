"""Plackett and Luce's law of maximum likelihood: whether there is a maximum, where, and its report."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from factorank.distributions.fitting.checks import check_independent, item_features
from factorank.distributions.fitting.choices import (
    Choices,
    beats,
    climb,
    explain,
    split_choices,
    standard_errors,
)
from factorank.distributions.fitting.errors import FitWarning
from factorank.distributions.fitting.graphs import strongly_connected
from factorank.distributions.fitting.report import FitReport
from factorank.errors import warn


@dataclass(frozen=True)
class ChoiceFit:
    """The logits of mean zero, the coefficients of the features if there are such, and the report."""

    logits: np.ndarray
    coefficients: np.ndarray | None
    report: FitReport


def fit_choices(
    data: Choices,
    n: int,
    names: tuple[str, ...],
    *,
    penalty: float,
    max_iterations: int,
    tolerance: float,
) -> ChoiceFit:
    """A logit for each item; where the likelihood would drive groups of items apart for ever, they are put
    far apart, with a warning, and each is fitted on its own."""
    edges = beats(data, n)
    level, groups = np.zeros(n), [np.arange(n)]
    doubts: list[str] = []  # those that are warned of, and those that are only reported
    settled: list[str] = []
    errors = np.full(n, np.nan)
    whole = data
    if n > 1 and not strongly_connected(edges):
        reasons, apart, levels = explain(edges, names or None)
        if penalty:
            settled = [f"{text}; the penalty decides" for text in reasons]
        else:
            doubts = [f"{text}; a penalty above 0 settles it" for text in reasons]
            groups, level = apart, levels
            data = split_choices(data, groups)
    end = climb(data, np.zeros(n), penalty, max_iterations, tolerance)
    logits = end.parameters
    for group in groups:
        logits[group] -= logits[group].mean()
    logits += level
    logits -= logits.mean()
    if not end.converged:
        doubts.append(end.doubt)
    for text in doubts:
        warn(text, FitWarning)
    if len(groups) == 1:
        errors = standard_errors(whole, logits, penalty)
    report = FitReport(
        "Plackett-Luce",
        rankings=float(whole.weights.sum()),
        log_likelihood=end.log_likelihood,
        parameters=n - 1,
        iterations=end.iterations,
        converged=end.converged,
        warnings=(*settled, *doubts),
    )
    return ChoiceFit(logits, None, report.with_estimates("logit", logits, errors, names))


def fit_features(
    data: Choices,
    features: Any,
    n: int,
    *,
    penalty: float,
    max_iterations: int,
    tolerance: float,
) -> ChoiceFit:
    """A coefficient for each column of the features ``(n, columns)``."""
    table = item_features(features, n)
    if not penalty:
        check_independent(table)
    end = climb(data, np.zeros(table.shape[1]), penalty, max_iterations, tolerance, table)
    if not end.converged:
        warn(end.doubt, FitWarning)
    logits = table @ end.parameters
    report = FitReport(
        "Plackett-Luce",
        rankings=float(data.weights.sum()),
        log_likelihood=end.log_likelihood,
        parameters=table.shape[1],
        iterations=end.iterations,
        converged=end.converged,
        warnings=() if end.converged else (end.doubt,),
    )
    errors = standard_errors(data, logits, penalty, table)
    report = report.with_estimates("coefficient", end.parameters, errors, ())
    return ChoiceFit(logits - logits.mean(), end.parameters, report)
