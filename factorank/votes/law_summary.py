"""A fitted law in numbers: consensus, parameters, intervals, and how well it fits."""

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from factorank import distributions as laws
from factorank.data.rankings import Rankings
from factorank.distributions import Mixture, PermutationDistribution
from factorank.distributions.fitting.checks import Unranked
from factorank.permutations import inverse
from factorank.votes.families import FEWEST_VOTERS
from factorank.votes.goodness import expected_places, goodness
from factorank.votes.pairs import consensus_methods, pairwise
from factorank.votes.probability import log_prob


def summary(
    law: PermutationDistribution,
    rankings: Rankings,
    unranked: Unranked | None = None,
    refits: Sequence[PermutationDistribution] = (),
    generator: torch.Generator | None = None,
) -> dict[str, Any]:
    """The facts about a law fitted to rankings, as JSON can hold them.

    Places count from 1. The intervals of the parameters of a single law are those of ``law.report``. With
    ``refits`` (:func:`factorank.votes.bootstrap`) places, and the parameters of mixtures, have intervals as
    well, the middle 95% of theirs.

    >>> from factorank import votes
    >>> rankings = Rankings(["a", "b", "c"], torch.tensor([[0, 1, 2], [1, 0, 2]]), torch.tensor([60, 40]))
    >>> facts = summary(votes.fit_family("mallows", rankings), rankings)
    >>> facts["family"], facts["voters"], facts["components"][0]["consensus"]
    ('Mallows', 100, [0, 1, 2])
    """
    uniform = log_prob(laws.Uniform(law.n, dtype=torch.float64), rankings, unranked)
    facts: dict[str, Any] = {
        "items": list(rankings.items),
        "voters": rankings.voters,
        "rows": len(rankings),
        "uniform_bits": _bits(float((uniform * rankings.weights).sum()), rankings.voters),
        "refits": len(refits),
    }
    if report := law.report:
        names = ["family", "log_likelihood", "bits", "parameters", "aic", "bic", "iterations", "converged"]
        facts |= {name: getattr(report, name) for name in names}
        facts["bits_se"] = _bits(report.standard_error, rankings.voters) if report.standard_error else None
        facts |= {"consensus_exact": report.exact, "warnings": list(report.warnings)}
        facts |= {"starts": report.starts, "restarts": list(report.restarts)}
        facts["monte_carlo_error"] = report.monte_carlo_error
    facts["goodness"] = goodness(law, rankings, unranked, generator).facts()
    table, methods = pairwise(rankings, unranked), consensus_methods(rankings, unranked)
    facts["pairs"] = table.wins.tolist()
    facts["condorcet_winner"] = table.condorcet_winner
    facts["consensus_methods"] = {
        name: {"order": each.order.tolist(), "distance": each.distance} for name, each in methods.items()
    }
    best = methods["kemeny"]
    facts["consensus_methods"]["kemeny"] |= {
        "exact": best.exact,
        "lower_bound": best.lower_bound,
        "best_orders": best.best_orders,
    }
    components = law.components if isinstance(law, Mixture) else (law,)
    weights = law.weights.tolist() if isinstance(law, Mixture) else [1.0]
    facts["components"] = []
    for number, (weight, component) in enumerate(zip(weights, components, strict=True)):
        again = [refit.components[number] if isinstance(refit, Mixture) else refit for refit in refits]
        part = _component(component, again, generator) | {"weight": weight}
        if rankings.voters < FEWEST_VOTERS:
            part["intervals"] = None
        if isinstance(law, Mixture):
            shares = [float(refit.weights[number]) for refit in refits if isinstance(refit, Mixture)]
            part["weight_interval"] = _interval(torch.tensor(shares)[:, None])[0] if shares else None
        facts["components"].append(part)
    return facts


def _component(
    law: PermutationDistribution, refits: Sequence[PermutationDistribution], generator: torch.Generator | None
) -> dict[str, Any]:
    marginals = expected_places(law, generator)
    name, values = parameters(law)
    part: dict[str, Any] = {
        "consensus": law.mode.tolist(),
        "reference": law.reference.tolist() if isinstance(law, laws.RIM) else None,
        "mean_places": (marginals @ torch.arange(1, law.n + 1, dtype=marginals.dtype)).tolist(),
        "marginals": marginals.tolist(),
        "place_intervals": None,
        "parameter": name,
        "intervals": None,
        "values": [None if math.isnan(value) else value for value in values.tolist()],
    }
    if refits:
        places = torch.stack([inverse(refit.mode) for refit in refits]).double() + 1
        part["place_intervals"] = _interval(places, whole=True)
    if law.report is not None and law.report.values:
        part["errors"] = [None if math.isnan(error) else error for error in law.report.errors]
        part["intervals"] = [None if math.isnan(end[0]) else list(end) for end in law.report.intervals()]
    elif refits and values.numel():
        part["intervals"] = _interval(torch.stack([parameters(refit)[1] for refit in refits]))
    return part


def parameters(law: PermutationDistribution) -> tuple[str | None, Tensor]:
    """The name and the values of a law's parameters: a single number, or one for each item."""
    if isinstance(law, laws.Mallows):
        return "phi", law.phi.double()[None]
    if isinstance(law, laws.GeneralizedMallows):
        phis = law.phis.double().clone()
        phis[0] = math.nan  # the first item is inserted into an empty list
        return "phi", phis[inverse(law.central)]
    if isinstance(law, laws.PlackettLuce):
        return "logit", law.logits.double()
    if isinstance(law, laws.RIM):
        slots = (law.probs.double() * torch.arange(law.n)).sum(-1)
        return "overtakes", (torch.arange(law.n) - slots)[inverse(law.reference)]
    return None, torch.empty(0, dtype=torch.float64)


def _interval(values: Tensor, whole: bool = False) -> list[list[float] | None]:
    """The middle 95% of each column of ``(refits, m)``, NaN left out; None if a column has nothing else."""
    how = ("lower", "higher") if whole else ("linear", "linear")
    low = torch.nanquantile(values.double(), 0.025, dim=0, interpolation=how[0])
    high = torch.nanquantile(values.double(), 0.975, dim=0, interpolation=how[1])
    return [None if a.isnan() else [float(a), float(b)] for a, b in zip(low, high, strict=True)]


def _bits(nats: float, voters: int) -> float:
    return abs(nats) / voters / math.log(2)
