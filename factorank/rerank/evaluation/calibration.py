"""How good a ranker's probabilities are: calibration and code length."""

import math
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from factorank.permutations import inverse
from factorank.rerank.evaluation.protocol import KS, EvaluationLists
from factorank.rerank.lists import list_reference
from factorank.rerank.place_probabilities import list_law
from factorank.rerank.ranker import Ranker
from factorank.training.random_streams import stream_seed

LISTS_AT_ONCE = 2048


def calibration(
    places: Tensor, lists: EvaluationLists, r: int, ks: Sequence[int] = KS, bins: int = 10
) -> Iterator[dict[str, Any]]:
    """The share of unobserved items that are among the first k, by the probability stated for it.

    ``places (lists, n, n)`` are the probabilities of the places of a list's items. A row is a bin of stated
    probabilities: their mean, and the share that was among the first k.
    """
    rank = inverse(lists.order, check=False)
    for k in ks:
        if k >= lists.n:
            continue
        stated = places[:, r:, :k].sum(-1).clamp(0, 1).reshape(-1)
        hit = (rank[:, r:] < k).reshape(-1).double()
        index = (stated * bins).long().clamp(max=bins - 1)
        for b in range(bins):
            inside = index == b
            if count := int(inside.sum()):
                means = {"stated": float(stated[inside].double().mean()), "hit": float(hit[inside].mean())}
                yield {"n": lists.n, "r": r, "k": k, "bin": b, "count": count} | means


@torch.no_grad()
def bits(ranker: Ranker, lists: EvaluationLists, r: int, *, nfe: int | None = None, seed: int = 0) -> float:
    """The mean code length, in bits, of the order of a list given that of its first r: one reference each.

    Exact at one NFE, for autoregressive models, and left to right. Lists are scored with their ties broken
    at random, so that no model can get below the entropy of the ties. NaN where there is no exact number, as
    for lists longer than the model's n.
    """
    model = ranker.model
    if lists.n > model.n:
        return math.nan
    keys = torch.rand(model.n, generator=torch.Generator().manual_seed(stream_seed(seed, "bits")))
    nfe = (None if model.causal else 1) if nfe is None else nfe
    padded = torch.nn.functional.pad(lists.order, (0, model.n - lists.n), value=-1)
    whole, total = lists.for_ranker(ranker, r), 0.0
    for start in range(0, len(whole), LISTS_AT_ONCE):
        rows = slice(start, start + LISTS_AT_ONCE)
        part, order = whole.part(rows).to(ranker.device), padded[rows].to(ranker.device)
        reference = list_reference(part, keys.to(ranker.device), kind=ranker.reference)
        law = list_law(model, part, reference, nfe)
        place_of = inverse(reference, check=False)
        renamed = torch.where(order < 0, -1, place_of.gather(-1, order.clamp(min=0)))
        total -= float(law.log_prob(renamed).double().sum()) if law.exact else math.nan
    return total / len(lists.items) / math.log(2)
