"""Families compared by the bits that they need for a ranking they were not fitted to."""

import math
import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch

from factorank.data import Rankings
from factorank.distributions import Uniform
from factorank.distributions.fitting.report import FitWarning
from factorank.votes import families
from factorank.votes.families import Setting


@dataclass(frozen=True)
class Score:
    """What one law needs for the held-out rankings."""

    family: str
    components: int
    bits: float
    """Mean over the held-out voters."""
    bits_se: float | None
    """Standard error of that mean; one voter has none."""
    parameters: int
    converged: bool
    seconds: float
    """Of the fit."""


def plan(rankings: Rankings, components: int, mixtures: Sequence[str]) -> list[tuple[str, int]]:
    """The families and numbers of components to compare, as far as the rankings allow."""
    single = [name for name in families.names() if name != "mixture"]
    if not rankings.complete:
        single = [name for name in families.partial_names() if name != "mixture"]
        mixtures = [name for name in mixtures if name in families.PARTLY_MIXED]
    laws = []
    for name in single:
        laws += [(name, k) for k in range(1, components + 1 if name in mixtures else 2)]
    return laws


def score(
    train: Rankings, held_out: Rankings, family: str, components: int, setting: Setting, seed: int = 0
) -> Score:
    """Fit a law to ``train`` and score it on ``held_out``.

    A ranking that a fitted law holds impossible would cost infinitely many bits, so every law is mixed with
    the uniform one, at a weight of one voter in those it was fitted to.
    """
    generator = torch.Generator().manual_seed(seed)
    start = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FitWarning)  # the score says what comes of it
        if components == 1:
            law = families.fit(family, train, replace(setting, components=1), generator)
        else:
            mixed = replace(setting, components=components, family=family)
            law = families.fit("mixture", train, mixed, generator)
    seconds = time.perf_counter() - start
    uniform = families.log_prob(Uniform(train.n, dtype=torch.float64), held_out, setting.unranked)
    each = families.log_prob(law, held_out, setting.unranked).double()
    share = 1 / (train.voters + 1)
    each = torch.logaddexp(each + math.log(1 - share), uniform + math.log(share))
    bits, weights = -each / math.log(2), held_out.weights
    mean = (bits * weights).sum() / weights.sum()
    variance = ((bits - mean) ** 2 * weights).sum() / weights.sum()
    return Score(
        family,
        components,
        bits=float(mean),
        bits_se=float((variance / (held_out.voters - 1)).sqrt()) if held_out.voters > 1 else None,
        parameters=law.report.parameters if law.report else 0,
        converged=law.report.converged if law.report else True,
        seconds=seconds,
    )
