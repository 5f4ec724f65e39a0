"""How often intervals of scores and confidence sets of ranks hold the truth: simulated tournaments.

The items of a tournament have known scores; their battles are drawn from Davidson's law and fitted. Hard
cases are scores that are nearly tied, and sparse graphs, where most items never met. Errors of the scores
come from the normal law with the observed information. In some of the tournaments they are also taken from
the bootstrap with one Newton step for each resample, and from whole refits, which should agree. Beside the
simultaneous sets with step-down stand Bonferroni's, and the naive ones: the ranks of the ends of intervals.
"""

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from factorank.distributions.comparisons import Battles, Davidson, Fitted, fit_battles
from factorank.distributions.fitting.errors import FitError
from factorank.experiments.record import measured_already, write_measured
from factorank.files import read_json_lines
from factorank.leaderboard.ranks import (
    RankSets,
    bonferroni_rank_sets,
    marginal_rank_sets,
    naive_rank_sets,
    simultaneous_rank_sets,
)

LEVEL = 0.95
NU = 0.6
BATTLES = 200
"""Of each item, about."""
DRAWS = 1000
RESAMPLES = 200
CHUNK = 25
"""Repetitions that are measured and stored together."""
METHODS = ("normal", "one-step bootstrap", "bootstrap", "bonferroni", "naive")


@dataclass(frozen=True)
class Tournament:
    """The number of items, who meets whom, and the true scores."""

    n: int
    graph: str
    """ "dense": all pairs meet. "sparse": each item meets about four others."""
    scores: str
    """ "spread": over three nats. "near ties", "tied": neighbours are 0.02, 0.0001 nats apart."""

    @property
    def name(self) -> str:
        """For a folder."""
        return f"{self.n}-{self.graph}-{self.scores.replace(' ', '-')}"

    def truth(self) -> Tensor:
        """The scores, best first, of mean zero."""
        step = {"spread": 3 / (self.n - 1), "near ties": 0.02, "tied": 1e-4}[self.scores]
        scores = -step * torch.arange(self.n, dtype=torch.float64)
        return scores - scores.mean()

    def pairs(self, random: np.random.Generator) -> np.ndarray:
        """Who meets whom, ``(rows, 2)``."""
        if self.graph == "dense":
            return np.column_stack(np.triu_indices(self.n, 1))
        circle = random.permutation(self.n)
        met = {tuple(sorted(pair)) for pair in zip(circle, np.roll(circle, 1), strict=True)}
        while len(met) < min(2 * self.n, self.n * (self.n - 1) // 2):
            met.add(tuple(sorted(random.choice(self.n, 2, replace=False))))
        return np.array(sorted(met), np.int64)

    def battles(self, random: np.random.Generator) -> Battles:
        """A tournament, drawn."""
        pairs = self.pairs(random)
        times = max(1, round(BATTLES * self.n / 2 / len(pairs)))
        chances = Davidson(self.truth(), nu=NU).log_probs(pairs).exp().numpy()
        counts = random.multinomial(times, chances / chances.sum(1, keepdims=True)).astype(np.float64)
        return Battles(pairs[:, 0], pairs[:, 1], counts, np.zeros((len(pairs), 0)), self.n)


TOURNAMENTS = tuple(
    Tournament(n, graph, scores)
    for scores in ("spread", "near ties", "tied")
    for n in (10, 50, 130)
    for graph in ("dense", "sparse")
)


def measure(
    out: Path, tournaments: tuple[Tournament, ...], repetitions: int, seed: int, about: dict[str, Any]
) -> Iterator[list[dict[str, Any]]]:
    """Measure what the folder does not hold yet, and give the rows of each tournament.

    Of 130 items there are a fifth of the repetitions. The sets of each rank by itself and the bootstrap with
    one step are measured in a fifth of them, whole refits in the first ones, of up to 50 items.
    """
    for tournament in tournaments:
        many = repetitions // 5 if tournament.n > 100 else repetitions
        sums: list[dict[str, Any]] = []
        for chunk in range(0, many, CHUNK):
            name = f"{chunk:05d}"
            facts = asdict(tournament) | {
                "seed": seed,
                "commit": about["commit"],
                "to": min(chunk + CHUNK, many),
            }
            if not measured_already(out / tournament.name, facts, name):
                random = np.random.default_rng([seed, tournament.n, *tournament.name.encode(), chunk])
                more = chunk < many / 5
                refits = chunk == 0 and tournament.n <= 50
                rows = list(repeated(tournament, facts["to"] - chunk, random, more=more, refits=refits))
                write_measured(out / tournament.name, facts, rows, name)
            sums += read_json_lines(out / tournament.name / f"{name}.jsonl")
        yield [row | about for row in summed(tournament, sums, seed)]


def repeated(
    tournament: Tournament, times: int, random: np.random.Generator, *, more: bool, refits: bool
) -> Iterator[dict[str, Any]]:
    """A row for each tournament and method; none for a tournament whose likelihood has no maximum."""
    truth = tournament.truth()
    for _ in range(times):
        generator = torch.Generator().manual_seed(int(random.integers(2**62)))
        try:
            fitted = fit_battles(tournament.battles(random), Davidson.link)
        except FitError:
            yield {"method": None}
            continue
        for method, (error, own, joint) in answers(fitted, generator, more=more, refits=refits).items():
            within = (fitted.scores() - truth).abs() <= error
            yield {"method": method, "interval": float(within.double().mean())} | {
                "simultaneous": bool(_held(joint).all()),
                "width": _width(joint),
                "rank": None if own is None else float(_held(own).double().mean()),
                "rank_width": None if own is None else _width(own),
            }


def answers(
    fitted: Fitted, generator: torch.Generator, *, more: bool, refits: bool
) -> dict[str, tuple[Tensor, RankSets | None, RankSets]]:
    """Of each method half the intervals of the scores, the sets of each rank, and those of all together."""
    z = float(torch.special.ndtri(torch.tensor((1 + LEVEL) / 2, dtype=torch.float64)))
    scores, covariance = fitted.scores(), fitted.score_covariance()
    values, vectors = torch.linalg.eigh(covariance)
    noise = torch.randn((DRAWS, len(scores)), dtype=torch.float64, generator=generator)
    draws = {"normal": noise @ (vectors * values.clamp(min=0).sqrt()).T}
    for method, wanted in (("one-step bootstrap", more), ("bootstrap", refits)):
        if wanted:
            again = fitted.refits(RESAMPLES, generator, one_step=method != "bootstrap")
            draws[method] = again - again.mean(0)
    result: dict[str, tuple[Tensor, RankSets | None, RankSets]] = {}
    for method, errors in draws.items():
        spread = covariance.diagonal().sqrt() if method == "normal" else errors.std(0)
        own = marginal_rank_sets(scores, errors, LEVEL) if more else None
        result[method] = (z * spread, own, simultaneous_rank_sets(scores, errors, LEVEL))
    error = result["normal"][0]
    naive = naive_rank_sets(scores - error, scores + error)
    return result | {
        "bonferroni": (error, None, bonferroni_rank_sets(scores, draws["normal"], LEVEL)),
        "naive": (error, naive, naive),
    }


def summed(tournament: Tournament, sums: list[dict[str, Any]], seed: int) -> Iterator[dict[str, Any]]:
    """A row for each method."""
    missing = sum(row["method"] is None for row in sums)
    for method in METHODS:
        rows = [row for row in sums if row["method"] == method]
        if not rows:
            continue
        mean = {key: _mean([row[key] for row in rows]) for key in rows[0] if key != "method"}
        share = mean["simultaneous"] or 0.0
        yield {"experiment": "leaderboard", "what": "coverage", "method": method, "level": LEVEL} | {
            **asdict(tournament),
            "seed": seed,
            "repetitions": len(rows),
            "without_maximum": missing,
            "interval_coverage": mean["interval"],
            "rank_coverage": mean["rank"],
            "rank_width": mean["rank_width"],
            "simultaneous_coverage": share,
            "simultaneous_se": round((share * (1 - share) / len(rows)) ** 0.5, 4),
            "simultaneous_width": mean["width"],
        }


def _mean(values: list[float | None]) -> float | None:
    """The mean of those that were measured, to four digits."""
    there = [float(value) for value in values if value is not None]
    return round(float(np.mean(there)), 4) if there else None


def _held(sets: RankSets) -> Tensor:
    """Whether the set of each item holds its rank: the items are numbered from the best."""
    ranks = torch.arange(1, len(sets.low) + 1)
    return (sets.low <= ranks) & (ranks <= sets.high)


def _width(sets: RankSets) -> float:
    """The mean number of ranks in a set."""
    return float((sets.high - sets.low + 1).double().mean())
