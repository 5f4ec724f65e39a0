r"""How well a law knows the several right answers of its cases: the columns of the experiment's rows.

``clean`` is the share of the cases with one right order whose mode is right (autoregressive models search
with a beam of 8, riffle diffusion with one of 20). ``both`` is the share of the cases with two right orders
in which each is among 64 samples, ``right`` the share of these samples that is right, and ``share`` that of
the more frequent answer among the right ones, in mean over the cases that have any (a fair coin has 0.55).
``bits`` is the mean of :math:`-\log_2 P` of the answers, and ``kl`` the divergence of the law from the true
one, in bits. Both need a likelihood, which Gumbel-Sinkhorn does not have; of riffle diffusion a bound is
known, ``bits_bound``. ``nfe`` is the mean number of evaluations that it takes to draw an answer.
"""

import math
import time
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from factorank.baselines import RiffleDiffusion
from factorank.baselines.ordering import OrderingModel
from factorank.distributions import PlackettLuce
from factorank.experiments.ambiguous_tasks import Cases, Task
from factorank.lexicographic import permutation_at
from factorank.models import PermutationModel
from factorank.permutations import inverse

SAMPLES = 64
ENTROPY_BOUND = 0.1
"""Nats that positions revealed together may share."""


def score(
    model: PermutationModel | OrderingModel,
    task: Task,
    *,
    by_rank: bool,
    cases: int = 2000,
    samples: int = SAMPLES,
    seed: int = 12345,
) -> Iterator[dict[str, Any]]:
    """The columns of a row for each law of the model.

    ``by_rank`` says whether its permutations list the place of each item, or the item of each place.
    """
    device = next(model.parameters()).device
    generator = torch.Generator(device).manual_seed(seed)
    tested = task.cases(cases, generator, "test")
    about: dict[str, Any] = {"cases": cases, "samples": samples}
    about["parameters"] = sum(weight.numel() for weight in model.parameters())
    if isinstance(model, OrderingModel):
        yield about | _score_baseline(model, tested, samples, generator)
        return
    ways: list[dict[str, Any]] = [{}]
    if not model.causal:
        nfes = sorted({2**k for k in range(model.n.bit_length()) if 2**k < model.n} | {model.n})
        ways = [{"nfe": nfe, "unmask": "left-to-right"} for nfe in nfes]
        ways += [{"entropy_bound": ENTROPY_BOUND}]
    for way in ways:
        yield about | _score_law(model, tested, way, by_rank, samples, generator)


def _score_law(
    model: PermutationModel,
    tested: Cases,
    way: dict[str, Any],
    by_rank: bool,
    samples: int,
    generator: torch.Generator,
) -> dict[str, Any]:
    started = time.perf_counter()

    def listed(ranks: Tensor) -> Tensor:
        return ranks if by_rank else inverse(ranks, check=False)

    two = tested.ambiguous if tested.scores is None else torch.zeros_like(tested.ambiguous)
    row: dict[str, Any] = {"entropy_bound": None, "clean": None, "both": None, "share": None} | way
    row["unmask"] = "left-to-right" if row["entropy_bound"] is None else "confident"
    with torch.no_grad():
        law = model.distribution(tested.context, **way)
        answers = listed(tested.ranks).movedim(1, 0)
        log_probs = torch.stack([law.log_prob(answer) for answer in answers])
        row["bits"] = -float(log_probs.mean()) / math.log(2)
        row["nfe"] = float(law.nfe_of(answers).double().mean())
        if tested.scores is None:
            row["kl"] = row["bits"] - float(two.double().mean())
        else:
            row["kl"] = _divergence(model, tested, way, by_rank)
        if bool((~two).any()) and tested.scores is None:
            mode = model.distribution(tested.context[~two], **way).mode
            row["clean"] = _share((mode == answers[0][~two]).all(-1))
        if bool(two.any()):
            drawn = model.distribution(tested.context[two], **way).sample((samples,), generator=generator)
            row |= count_answers(drawn, answers[:, two])
    return row | {"seconds": round(time.perf_counter() - started, 2)}


def _score_baseline(
    model: OrderingModel, tested: Cases, samples: int, generator: torch.Generator
) -> dict[str, Any]:
    started = time.perf_counter()
    names = ("unmask", "entropy_bound", "clean", "both", "share", "bits", "kl")
    row: dict[str, Any] = dict.fromkeys(names) | {"nfe": model.nfe}
    answers = inverse(tested.ranks, check=False).movedim(1, 0)
    two = tested.ambiguous
    if isinstance(model, RiffleDiffusion):
        model.eval()
        with torch.no_grad():
            bounds = [model.loss(answer, tested.context, generator=generator) for answer in answers]
        row["bits_bound"] = float(torch.stack(bounds).mean()) / math.log(2)
    if tested.scores is not None:
        return row | {"seconds": round(time.perf_counter() - started, 2)}
    if bool((~two).any()):
        options = {"beam": 20, "paths": 5} if isinstance(model, RiffleDiffusion) else {}
        mode = model.mode(tested.context[~two], **options)  # type: ignore[operator]
        row["clean"] = _share((mode == answers[0][~two]).all(-1))
    drawn = torch.cat(
        [
            model.sample(tested.context[two], (8,), generator=generator)  # type: ignore[operator]
            for _ in range(samples // 8)
        ]
    )
    return row | count_answers(drawn, answers[:, two]) | {"seconds": round(time.perf_counter() - started, 2)}


def count_answers(drawn: Tensor, answers: Tensor) -> dict[str, float | None]:
    """What samples ``(samples, cases, n)`` say of two answers ``(2, cases, n)``."""
    counts = (drawn[:, None] == answers).all(-1).sum(0)  # (2, cases)
    right = counts.sum(0)
    some = right > 0
    shares = counts.max(0).values[some] / right[some]
    return {
        "both": _share((counts > 0).all(0)),
        "right": float(right.double().mean()) / len(drawn),
        "share": float(shares.mean()) if len(shares) else None,
    }


def _divergence(
    model: PermutationModel, tested: Cases, way: dict[str, Any], by_rank: bool, most: int = 256
) -> float:
    """The divergence, in bits, of the law from the Plackett-Luce law of the scores, over all n! orders."""
    assert tested.scores is not None
    device = tested.scores.device
    orders = permutation_at(torch.arange(math.factorial(model.n), device=device), model.n)[:, None]
    true = PlackettLuce(tested.scores[:most].double()).log_prob(orders)
    law = model.distribution(tested.context[:most], **way)
    learnt = law.log_prob(inverse(orders, check=False) if by_rank else orders)
    return float((true.exp() * (true - learnt)).sum(0).mean()) / math.log(2)


def _share(right: Tensor) -> float:
    return float(right.double().mean())
