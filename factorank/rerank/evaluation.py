"""How well lists are re-ranked: NDCG against the number of observed items, bits, calibration, references."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from factorank.data.ratings import Ratings, order_of
from factorank.errors import FactorankError
from factorank.metrics import ndcg
from factorank.rerank.expected_gain import respecting
from factorank.rerank.place_probabilities import Lists, law_given, reference_of
from factorank.rerank.ranker import Ranker
from factorank.training.data import stream_seed

if TYPE_CHECKING:
    from factorank.baselines.rankers import BaselineRanker

KS = (1, 3, 5, 10)
DRAWN, MOST_DRAWS = 16_384, 1024
"""Items that are drawn in all for a list where places are not exact, and orders of it at most: with few
draws the noise costs NDCG. What is observed is not drawn, and takes little time."""


@dataclass
class TestLists:
    """The lists that all methods are asked to rank: the first r places of each are what they observe."""

    __test__ = False

    items: Tensor
    """int64 ``(lists, n)``, in random order."""
    relevance: Tensor
    """float32 ``(lists, n)``."""
    order: Tensor
    """int64 ``(lists, n)``: places in the list, best first; ties broken at random, once for all methods."""
    users: Tensor
    """The user of each list, int64 ``(lists,)``."""
    scored: dict[str, Tensor] = field(default_factory=dict)
    """NDCG of the unobserved items for each user, float32 ``(users,)``, as scored last, by ``n/r/k``."""

    @property
    def n(self) -> int:
        return self.items.shape[-1]

    def observed(self, r: int) -> Tensor:
        """The first r places of the list, best first: int64 ``(lists, r)``."""
        return self.order[self.order < r].view(len(self.order), r)

    def given(self, r: int, ranker: Ranker) -> Lists:
        """The lists padded to the n of a ranker's model, and what it is told of them."""
        observed = self.observed(r)
        return Lists(
            torch.nn.functional.pad(self.items, (0, ranker.model.n - self.n), value=-1),
            observed,
            relevance=self.relevance.gather(1, observed) if ranker.told == "ratings" else None,
        )


def make_lists(ratings: Ratings, n: int, *, seed: int = 0, lists: int = 1000) -> TestLists:
    """At least ``lists`` lists of n, as many of each user who has n ratings; the seed decides everything."""
    users = ratings.users_with(n).cpu()
    if not len(users):
        raise FactorankError(f"no user to test on has {n} ratings")
    users = users.repeat(-(-lists // len(users)))
    generator = torch.Generator().manual_seed(stream_seed(seed, "lists", n))
    items, relevance = ratings.to("cpu").lists(n, users, generator)
    return TestLists(items, relevance, order_of(relevance, generator), users)


def default_rs(n: int) -> list[int]:
    """Numbers of observed items from 0 to n - 2: all up to n = 10, some beyond.

    >>> default_rs(20)
    [0, 1, 2, 3, 5, 8, 10, 15, 18]
    """
    if n <= 10:
        return list(range(max(n - 1, 1)))
    some = {0, 1, 2, 3, 5, 8, 10, 15, 20, 25, 30, 35, 40, 45, 60, 75, 90, n - 5, n - 2}
    return sorted(r for r in some if r <= n - 2)


def score_row(lists: TestLists, order: Tensor, r: int, ks: Sequence[int] = KS) -> Iterator[dict[str, Any]]:
    """NDCG of orders ``(lists, n)`` over the whole list and over the unobserved items, for each k.

    Means over users (a user's lists are averaged first) with the standard error of the mean.
    """
    n = lists.n
    relevance = lists.relevance
    rest = order[order >= r].view(len(order), n - r) - r
    for k in ks:
        if k > n:
            continue
        row: dict[str, Any] = {"n": n, "r": r, "k": k}
        unobserved = ndcg(rest, relevance[:, r:], k)
        for name, value in (("ndcg", ndcg(order, relevance, k)), ("ndcg_unobserved", unobserved)):
            row[name], row[f"{name}_se"] = over_users(value, lists.users)
        lists.scored[f"{n}/{r}/{k}"] = by_user(unobserved, lists.users).float()
        yield row | {"users": int(lists.users.unique().numel()), "lists": len(order)}


def over_users(values: Tensor, users: Tensor) -> tuple[float, float]:
    """The mean over users of the mean of each user's values ``(lists,)``, and its standard error."""
    means = by_user(values, users)
    return float(means.mean()), standard_error(means)


def by_user(values: Tensor, users: Tensor) -> Tensor:
    """The mean of each user's values ``(lists,)``, float64 ``(users,)``, by the number of the user."""
    _, index, count = users.unique(return_inverse=True, return_counts=True)
    return values.new_zeros(len(count), dtype=torch.float64).index_add_(0, index, values.double()) / count


def standard_error(means: Tensor) -> float:
    """Of the mean of independent values ``(users,)``; 0 for one alone."""
    return float(means.std() / math.sqrt(len(means))) if len(means) > 1 else 0.0


@dataclass(frozen=True)
class Asked:
    """How a ranker is asked."""

    by: str = "gain"
    nfe: int | None = None
    """1 unless given for masked models, n for autoregressive ones."""
    references: int = 8
    samples: int | None = None
    """Draws for places that are not exact, shared out over the references; unless given the more, the fewer
    items are to be placed."""
    seed: int = 0

    def draws(self, n: int, r: int = 0) -> int:
        """How many samples of an order of n of which r are observed.

        >>> Asked().draws(50), Asked().draws(50, 25), Asked().draws(20, 15), Asked(samples=64).draws(20)
        (327, 655, 1024, 64)
        """
        return min(max(DRAWN // max(n - r, 1), 1), MOST_DRAWS) if self.samples is None else self.samples


def ranked(ranker: Ranker, lists: TestLists, r: int, asked: Asked) -> tuple[Tensor, Tensor]:
    """Orders ``(lists, n)`` of the ranker and the place probabilities ``(lists, n, n)``, on the CPU."""
    answers = ranker.answers(
        lists.given(r, ranker).to(ranker.device),
        by=asked.by,
        nfe=asked.nfe,
        references=asked.references,
        samples=asked.draws(lists.n, r),
        generator=torch.Generator().manual_seed(stream_seed(asked.seed, "references")),
    )
    n = lists.n
    parts = [(order[:, :n].cpu(), places[:, :n, :n].cpu()) for _, order, places in answers]
    return torch.cat([order for order, _ in parts]), torch.cat([places for _, places in parts])


@torch.no_grad()
def bits(ranker: Ranker, lists: TestLists, r: int, asked: Asked) -> float:
    """The mean code length, in bits, of the order of a list given that of its first r: one reference each.

    Exact at one NFE, for autoregressive models, and left to right. Lists are scored with their ties broken
    at random, so that no model can get below the entropy of the ties.
    """
    model = ranker.model
    device = model.network.places.device
    given = lists.given(r, ranker)
    keys = torch.rand(model.n, generator=torch.Generator().manual_seed(stream_seed(asked.seed, "bits")))
    nfe = (None if model.causal else 1) if asked.nfe is None else asked.nfe
    order = torch.nn.functional.pad(lists.order, (0, model.n - lists.n), value=-1).to(device)
    total = 0.0
    for start in range(0, len(lists.items), 2048):
        part = given.part(slice(start, start + 2048)).to(device)
        reference = reference_of(part, keys.to(device), known=ranker.known)
        law = law_given(model, part, reference, nfe)
        place_of = reference.argsort(-1)
        these = order[start : start + 2048]
        renamed = torch.where(these < 0, -1, place_of.gather(-1, these.clamp(min=0)))
        total -= float(law.log_prob(renamed).double().sum()) if law.exact else math.nan
    return total / len(lists.items) / math.log(2)


def score_ranker(
    ranker: Ranker,
    lists: TestLists,
    rs: Sequence[int],
    ks: Sequence[int] = KS,
    asked: Asked | None = None,
    calibrate: Sequence[int] = (),
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Rows of a ranker: NDCG for each r and k, and the held-out bits; and of its calibration at some r."""
    asked = Asked() if asked is None else asked
    rows, bins = [], []
    for r in rs:
        order, places = ranked(ranker, lists, r, asked)
        length = bits(ranker, lists, r, asked)
        drawn = ranker.model.causal or asked.nfe not in (None, 1)
        facts = {
            "bits": None if math.isnan(length) else length,
            "samples": asked.draws(lists.n, r) if drawn else None,
        }
        rows += [row | facts for row in score_row(lists, order, r, ks)]
        if r in calibrate:
            bins += list(calibration(places, lists, r, ks))
    return rows, bins


def score_baseline(
    baseline: "BaselineRanker", lists: TestLists, rs: Sequence[int], ks: Sequence[int] = KS
) -> Iterator[dict[str, Any]]:
    """Rows of a baseline that gives scores. Over the whole list, observed items keep their known order."""
    for r in rs:
        generator = torch.Generator().manual_seed(stream_seed(0, "baseline", r))
        told = lists.observed(r) if baseline.reads == "order" else lists.relevance[:, :r]
        scores = baseline.scores(lists.items, r, told, generator=generator).cpu()
        order = scores.argsort(dim=-1, descending=True, stable=True)  # the list itself is in random order
        for row in score_row(lists, respecting(order, lists.observed(r)), r, ks):
            yield row | {"bits": None}


def calibration(
    places: Tensor, lists: TestLists, r: int, ks: Sequence[int] = KS, bins: int = 10
) -> Iterator[dict[str, Any]]:
    """Does the stated probability of the top k hold? Unobserved items by what was stated, and their hits.

    ``places (lists, n, n)`` are the probabilities of the places of a list's items.
    """
    rank = lists.order.argsort(-1)
    for k in ks:
        if k >= lists.n:
            continue
        stated = places[:, r:, :k].sum(-1).clamp(0, 1).reshape(-1)
        hit = (rank[:, r:] < k).reshape(-1).double()
        index = (stated * bins).long().clamp(max=bins - 1)
        for b in range(bins):
            inside = index == b
            if count := int(inside.sum()):
                facts = {"n": lists.n, "r": r, "k": k, "bin": b, "count": count}
                yield facts | {
                    "stated": float(stated[inside].double().mean()),
                    "hit": float(hit[inside].mean()),
                }


@torch.no_grad()
def reference_change(
    ranker: Ranker, lists: TestLists, r: int, k: int = 10, seed: int = 0
) -> dict[str, float]:
    """How far the law depends on the reference: mean absolute change of an unobserved item's probability of
    the top k when the reference is reversed; ``observed``: in the part of the observed items alone, ``all``:
    in both parts."""
    from factorank.rerank.place_probabilities import law_places

    model = ranker.model
    device = model.network.places.device
    first = torch.rand(model.n, generator=torch.Generator().manual_seed(seed))
    mixed, other = first.clone(), 1 - first
    mixed[:r] = other[:r]  # the observed items are the first r of the list
    given = lists.given(r, ranker)
    changes = dict.fromkeys(("observed", "all"), 0.0)
    for start in range(0, len(given), 256):
        part = given.part(slice(start, start + 256)).to(device)
        tops = []
        for keys in (first, mixed, other):
            reference = reference_of(part, keys.to(device), known=ranker.known)
            law = law_given(model, part, reference, None if model.causal else 1)
            places = law_places(law, samples=1024)
            back = reference.argsort(-1)[..., None].expand_as(places)
            tops.append(places.gather(-2, back)[:, r : lists.n, :k].sum(-1))
        for name, top in zip(changes, tops[1:], strict=True):
            changes[name] += float((top - tops[0]).abs().mean(-1).sum())
    return {name: change / len(given) for name, change in changes.items()}
