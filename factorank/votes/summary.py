"""A fitted law in plain numbers: consensus, parameters, intervals and the figures of the fit."""

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from factorank.data import Rankings
from factorank.distributions import (
    RIM,
    GeneralizedMallows,
    Mallows,
    PermutationDistribution,
    PlackettLuce,
    Uniform,
)
from factorank.distributions.fitting.checks import Unranked
from factorank.distributions.mixture import Mixture
from factorank.errors import DistributionError
from factorank.permutations import inverse
from factorank.votes import families

SAMPLES = 20_000
"""Draws for the probabilities that have no feasible formula."""


def summary(
    law: PermutationDistribution,
    rankings: Rankings,
    unranked: Unranked | None = None,
    refits: Sequence[PermutationDistribution] = (),
    generator: torch.Generator | None = None,
) -> dict[str, Any]:
    """What there is to say about a law fitted to rankings, as JSON holds it.

    Places count from 1. With refits (:mod:`factorank.votes.bootstrap`) every number has its interval,
    the middle 95% of theirs.
    """
    uniform = families.log_prob(Uniform(law.n, dtype=torch.float64), rankings, unranked)
    facts: dict[str, Any] = {
        "items": list(rankings.items),
        "voters": rankings.voters,
        "rows": len(rankings),
        "uniform_bits": _bits(float((uniform * rankings.weights).sum()), rankings.voters),
        "refits": len(refits),
    }
    if law.report is not None:
        report = law.report
        facts |= {
            "family": report.family,
            "log_likelihood": report.log_likelihood,
            "bits": report.bits,
            "bits_se": _bits(report.standard_error, rankings.voters) if report.standard_error else None,
            "parameters": report.parameters,
            "aic": report.aic,
            "bic": report.bic,
            "iterations": report.iterations,
            "converged": report.converged,
            "consensus_exact": report.exact,
            "warnings": list(report.warnings),
        }
    components = law.components if isinstance(law, Mixture) else (law,)
    weights = law.weights.tolist() if isinstance(law, Mixture) else [1.0]
    facts["components"] = []
    for number, (weight, component) in enumerate(zip(weights, components, strict=True)):
        like = [other.components[number] if isinstance(other, Mixture) else other for other in refits]
        part = _component(component, like, generator)
        part["weight"] = weight
        if isinstance(law, Mixture):
            others = [float(other.weights[number]) for other in refits if isinstance(other, Mixture)]
            part["weight_interval"] = _interval(torch.tensor(others)[:, None])[0] if others else None
        facts["components"].append(part)
    return facts


def _component(
    law: PermutationDistribution, refits: Sequence[PermutationDistribution], generator: torch.Generator | None
) -> dict[str, Any]:
    marginals, exact = _marginals(law, generator)
    mode = law.mode
    part: dict[str, Any] = {
        "consensus": mode.tolist(),
        "mean_places": (marginals @ torch.arange(1, law.n + 1, dtype=marginals.dtype)).tolist(),
        "marginals": marginals.tolist(),
        "marginals_exact": exact,
        "place_intervals": None,
    }
    if refits:
        places = torch.stack([inverse(other.mode) for other in refits]).double() + 1
        part["place_intervals"] = _interval(places, whole=True)
    name, values = parameters(law)
    part["parameter"], part["intervals"] = name, None
    part["values"] = [None if math.isnan(value) else value for value in values.tolist()]
    if refits and values.numel():
        part["intervals"] = _interval(torch.stack([parameters(other)[1] for other in refits]))
    return part


def parameters(law: PermutationDistribution) -> tuple[str | None, Tensor]:
    """The name and values of what a family has for parameters: one number, or one for each item."""
    if isinstance(law, Mallows):
        return "phi", law.phi.double()[None]
    if isinstance(law, GeneralizedMallows):
        phis = law.phis.double().clone()
        phis[0] = math.nan  # the first item is inserted into an empty list
        return "phi", phis[inverse(law.central)]
    if isinstance(law, PlackettLuce):
        return "logit", law.logits.double()
    if isinstance(law, RIM):
        slots = (law.probs.double() * torch.arange(law.n)).sum(-1)
        return "overtakes", (torch.arange(law.n) - slots)[inverse(law.reference)]
    return None, torch.empty(0, dtype=torch.float64)


def _marginals(law: PermutationDistribution, generator: torch.Generator | None) -> tuple[Tensor, bool]:
    try:
        return law.marginals().double(), True
    except DistributionError:
        return law.marginals(samples=SAMPLES, generator=generator).double(), False


def _interval(values: Tensor, whole: bool = False) -> list[list[float] | None]:
    """The middle 95% of each column of ``(refits, m)``, without not-a-numbers; None where nothing is left."""
    how = ("lower", "higher") if whole else ("linear", "linear")
    low = torch.nanquantile(values.double(), 0.025, dim=0, interpolation=how[0])
    high = torch.nanquantile(values.double(), 0.975, dim=0, interpolation=how[1])
    return [None if a.isnan() else [float(a), float(b)] for a, b in zip(low, high, strict=True)]


def _bits(nats: float, voters: int) -> float:
    return abs(nats) / voters / math.log(2)
