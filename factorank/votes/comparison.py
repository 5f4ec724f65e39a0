"""Families compared by the bits that they need for rankings they were not fitted to."""

import math
import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from factorank.data.rankings import Rankings
from factorank.distributions import FitWarning, Uniform
from factorank.distributions.fitting.em import rounds
from factorank.votes.families import EXACT_ON_TOPS, FAMILIES, FitSettings, fit_family
from factorank.votes.probability import LARGEST_SUMMED, log_prob

SMOOTHED = FitSettings(components=3, smoothing=1.0, penalty=0.1)
"""The default settings of a comparison: a slot that no vote used stays possible, and logits stay finite."""


@dataclass(frozen=True)
class HeldOutScore:
    """The bits that a law needs for held-out rankings."""

    family: str
    components: int
    bits: float
    """Mean over the held-out voters."""
    bits_se: float | None
    """Standard error of the mean; None for a single voter."""
    parameters: int
    converged: bool
    seconds: float
    """Time of the fit."""
    voter_bits: Tensor = field(repr=False, compare=False)
    """Of each row held out."""
    difference: float | None = None
    """Mean bits more than the best law of a comparison, voter by voter; None outside one."""
    difference_se: float | None = None
    """Standard error of the difference: small where two laws find the same rankings hard."""


def compare(
    train: Rankings,
    held_out: Rankings,
    settings: FitSettings = SMOOTHED,
    *,
    mixtures: Sequence[str] = EXACT_ON_TOPS,
    seed: int = 0,
) -> list[HeldOutScore]:
    """Fit every family to ``train`` and score it on ``held_out``: see :func:`score_family`.

    The families ``mixtures`` are also mixed, 2 laws up to ``settings.components``. ``seed`` decides the
    starts of the mixtures.

    >>> from factorank import Mallows
    >>> orders = Mallows([0, 1, 2, 3], 0.3).sample((200,), generator=torch.Generator().manual_seed(0))
    >>> train, held_out = Rankings.from_orders(orders).split(0.2, torch.Generator().manual_seed(0))
    >>> scores = compare(train, held_out, FitSettings(components=1))
    >>> [f"{score.family} {score.bits:.2f}" for score in scores[:2]]
    ['uniform 4.58', 'mallows 2.81']
    """
    laws = laws_to_compare(train, settings.components, mixtures)
    quiet = replace(settings, progress=False)
    scores = [
        score_family(train, held_out, *laws[number], quiet, seed)
        for number in rounds(len(laws), settings.progress, "laws")
    ]
    return with_differences(scores, held_out)


def with_differences(scores: Sequence[HeldOutScore], held_out: Rankings) -> list[HeldOutScore]:
    """The scores with their differences to the best of them, paired by voter."""
    best = min(scores, key=lambda score: score.bits)
    paired = []
    for score in scores:
        mean, error = _mean(score.voter_bits - best.voter_bits, held_out)
        paired.append(replace(score, difference=mean, difference_se=error))
    return paired


def _mean(values: Tensor, held_out: Rankings) -> tuple[float, float | None]:
    """The mean over the voters, and its standard error; None for a single voter."""
    weights = held_out.weights / held_out.voters
    mean = float(values @ weights)
    variance = float((values - mean) ** 2 @ weights)
    return mean, math.sqrt(variance / (held_out.voters - 1)) if held_out.voters > 1 else None


def laws_to_compare(rankings: Rankings, components: int, mixtures: Sequence[str]) -> list[tuple[str, int]]:
    """The families, and numbers of components, whose probability of the rankings is exact.

    >>> tops = Rankings.from_orders(torch.tensor([[1, -1, -1, -1, -1, -1, -1, -1, -1]]))
    >>> laws_to_compare(tops, 2, ["rim", "mallows"])
    [('uniform', 1), ('mallows', 1), ('mallows', 2), ('plackett-luce', 1)]
    """
    exact = rankings.complete or rankings.n <= LARGEST_SUMMED
    fitted = FAMILIES if exact else ("uniform", *EXACT_ON_TOPS)
    mixed = [name for name in mixtures if name in fitted]
    return [
        (name, count)
        for name in fitted
        if name != "mixture"
        for count in range(1, components + 1 if name in mixed else 2)
    ]


def score_family(
    train: Rankings,
    held_out: Rankings,
    family: str,
    components: int = 1,
    settings: FitSettings = SMOOTHED,
    seed: int = 0,
) -> HeldOutScore:
    """Fit a law of a family, or a mixture of several, to ``train`` and score it on ``held_out``.

    A ranking that is impossible under a law would cost infinitely many bits. So every law is mixed with the
    uniform law, at the weight of one voter among those it was fitted to.

    >>> votes = Rankings(["a", "b"], torch.tensor([[0, 1], [1, 0]]), torch.tensor([60, 20]))
    >>> round(score_family(votes, votes, "mallows").bits, 3)
    0.811
    """
    generator = torch.Generator().manual_seed(seed)
    name = family if components == 1 else "mixture"
    start = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FitWarning)  # the score shows the effect
        law = fit_family(name, train, replace(settings, components=components, family=family), generator)
    seconds = time.perf_counter() - start
    uniform = log_prob(Uniform(train.n, dtype=torch.float64), held_out, settings.unranked)
    fitted = log_prob(law, held_out, settings.unranked).double()
    share = 1 / (train.voters + 1)
    nats = torch.logaddexp(fitted + math.log(1 - share), uniform + math.log(share))
    bits = -nats / math.log(2)
    fit = (law.report.parameters, law.report.converged) if law.report else (0, True)
    return HeldOutScore(family, components, *_mean(bits, held_out), *fit, seconds, bits)
