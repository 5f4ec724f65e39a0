"""How good a ranker's probabilities are: calibration, code length, dependence on the reference."""

import math
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from factorank.permutations import inverse
from factorank.rerank.evaluation.lists import EvaluationLists
from factorank.rerank.evaluation.protocol import KS
from factorank.rerank.place_probabilities import law_places, list_law
from factorank.rerank.ranker import Ranker
from factorank.rerank.reference import list_reference
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
                cell = {"n": lists.n, "r": r, "k": k, "bin": b, "count": count}
                yield cell | {
                    "stated": float(stated[inside].double().mean()),
                    "hit": float(hit[inside].mean()),
                }


@torch.no_grad()
def bits(ranker: Ranker, lists: EvaluationLists, r: int, *, nfe: int | None = None, seed: int = 0) -> float:
    """The mean code length, in bits, of the order of a list given that of its first r: one reference each.

    Exact at one NFE, for autoregressive models, and left to right. Lists are scored with their ties broken
    at random, so that no model can get below the entropy of the ties.
    """
    model = ranker.model
    keys = torch.rand(model.n, generator=torch.Generator().manual_seed(stream_seed(seed, "bits")))
    nfe = (None if model.causal else 1) if nfe is None else nfe
    padded = torch.nn.functional.pad(lists.order, (0, model.n - lists.n), value=-1).to(ranker.device)
    total = 0.0
    for rows, reference, law in _laws(ranker, lists, r, keys, nfe, LISTS_AT_ONCE):
        order, place_of = padded[rows], inverse(reference, check=False)
        renamed = torch.where(order < 0, -1, place_of.gather(-1, order.clamp(min=0)))
        total -= float(law.log_prob(renamed).double().sum()) if law.exact else math.nan
    return total / len(lists.items) / math.log(2)


@torch.no_grad()
def reference_change(
    ranker: Ranker, lists: EvaluationLists, r: int, k: int = 10, seed: int = 0
) -> dict[str, float]:
    """How far the law depends on the reference: mean absolute change of an unobserved item's probability of
    the top k when the reference is reversed; ``observed``: in the part of the observed items alone, ``all``:
    in both parts."""
    nfe = None if ranker.model.causal else 1
    first = torch.rand(ranker.model.n, generator=torch.Generator().manual_seed(seed))
    mixed, other = first.clone(), 1 - first
    mixed[:r] = other[:r]  # the observed items are the first r of the list
    tops = []
    for keys in (first, mixed, other):
        parts = []
        for _, reference, law in _laws(ranker, lists, r, keys, nfe, 256):
            places = law_places(law, samples=1024)
            place_of = inverse(reference, check=False)[..., None].expand_as(places)
            parts.append(places.gather(-2, place_of)[:, r : lists.n, :k].sum(-1))
        tops.append(torch.cat(parts))
    changes = [float((top - tops[0]).abs().mean(-1).mean()) for top in tops[1:]]
    return dict(zip(("observed", "all"), changes, strict=True))


def _laws(
    ranker: Ranker, lists: EvaluationLists, r: int, keys: Tensor, nfe: int | None, at_once: int
) -> Iterator[tuple[slice, Tensor, Any]]:
    """The laws of lists given their first r items, in parts: the rows, their references, their law."""
    whole = lists.for_ranker(ranker, r)
    for start in range(0, len(whole), at_once):
        rows = slice(start, start + at_once)
        part = whole.part(rows).to(ranker.device)
        reference = list_reference(part, keys.to(ranker.device), kind=ranker.reference)
        yield rows, reference, list_law(ranker.model, part, reference, nfe)
