"""Recommendations from the whole catalogue: candidates by a first stage, ranked by the law given the history.

The law takes lists of up to n items. Half of them are the user's: of a longer history, items evenly spaced
along the user's order. The others are the candidates. What is stated of an item (mean place, interval,
probability of the first k) is that among the candidates, not counting the history.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from factorank.data.ratings import Ratings
from factorank.data.ratings.choices import chosen
from factorank.errors import FactorankError
from factorank.models import PermutationLaw
from factorank.rerank.constraints import diverse_order, group_numbers, grouped_best
from factorank.rerank.expected_gain import expected_gain
from factorank.rerank.keys import seeds_of
from factorank.rerank.lists import Lists, list_reference
from factorank.rerank.observations import known_items, read_histories
from factorank.rerank.place_probabilities import list_law
from factorank.rerank.reranking import Query, Reranking, state

if TYPE_CHECKING:
    from factorank.rerank.ranker import Ranker

ROWS, SCORES = 1024, 1 << 26
"""Users at a time, at most, and scores: a large catalogue takes fewer users."""
DRAWS = 128
"""Orders of a list that are drawn, over all references, for the places of the candidates."""


@dataclass
class Histories:
    """What users have rated, best first: items ``(rows, h)``, -1 pads, and relevances, NaN where unknown."""

    items: Tensor
    relevance: Tensor

    def part(self, rows: Tensor) -> "Histories":
        """Those of some rows."""
        return Histories(self.items[rows], self.relevance[rows])

    def spread(self, most: int) -> "Histories":
        """At most so many items of each, evenly spaced along the order, the best and the worst among them."""
        length = (self.items >= 0).sum(-1, keepdim=True)
        kept = length.clamp(max=most)
        place = torch.arange(min(most, self.items.shape[1]))
        at = torch.where(length > most, (place * (length - 1)).double() / max(most - 1, 1), place)
        at = at.round().long().clamp(max=max(self.items.shape[1] - 1, 0))
        past = place >= kept
        return Histories(
            self.items.gather(-1, at).masked_fill(past, -1),
            self.relevance.gather(-1, at).masked_fill(past, torch.nan),
        )


class Candidates(NamedTuple):
    """The items that users may be recommended, and what is known of them."""

    items: Tensor
    """int64 ``(rows, c)``, the likeliest first, -1 past the end."""
    scores: Tensor
    """``(rows, c)``: those of the first stage."""
    places: Tensor
    """``(rows, c, c)``: the probabilities of their places among themselves."""

    def order(self, gains: Tensor, blend: float) -> Tensor:
        """Their order ``(rows, c)``, -1 past the end: by the first stage's score plus ``blend`` times the
        expected gain under the law, both with deviation 1 over the candidates of a user."""
        present = self.items >= 0
        gain = expected_gain(self.places, present.sum(-1), gains)
        score = _standard(self.scores, present) + blend * _standard(gain, present)
        order = torch.where(present, score, -torch.inf).argsort(dim=-1, descending=True, stable=True)
        return torch.where(present, order, -1)


def recommended(
    ranker: "Ranker",
    observed: Any,
    query: Query,
    forbidden: Sequence[Any],
    groups: Mapping[Any, Any] | None,
    seed: int,
) -> Reranking:
    """The answer of :meth:`factorank.Ranker.recommend`."""
    items, ratings, single = read_histories(
        ranker.catalogue, observed, seed, ranker.told, ranker.rating_range
    )
    histories = Histories(items, ranker.relevance(ratings))
    banned, ids, k = known_items(ranker.catalogue, forbidden), ranker.catalogue.ids, query.k
    grouped = None if groups is None else group_numbers(ranker.catalogue, [ids], groups, len(ids))[0]
    parts, names = [], []
    at_once = min(ROWS, max(1, SCORES // max(len(ids), 1)))
    for rows in torch.arange(len(items)).split(at_once):
        same = torch.Generator().manual_seed(seed)  # for every part: rows do not depend on one another
        listed = candidates_for(
            ranker, histories.part(rows), query, forbidden=banned, groups=grouped, generator=same
        )
        order = listed.order(ranker.gain_table(listed.items.shape[1]), ranker.blend)
        unobserved = torch.zeros_like(listed.items, dtype=torch.bool)
        named = [[ids[i] for i in row if i >= 0] for row in listed.items.tolist()]
        if grouped is not None:
            none = torch.empty((len(order), 0), dtype=torch.int64)
            numbers = torch.where(listed.items < 0, -1, grouped[listed.items.clamp(min=0)])
            order = diverse_order(order, Lists(listed.items, none, group=numbers), k, query.most)
        parts.append(state(order[:, :k], listed.places, unobserved, query))
        names += named
    answer = Reranking.joined(parts, k, query)
    answer.names = names
    return answer[0] if single else answer


def candidates_for(
    ranker: "Ranker",
    histories: Histories,
    query: Query,
    *,
    forbidden: Sequence[int] = (),
    groups: Tensor | None = None,
    generator: torch.Generator,
) -> Candidates:
    """The candidates of users with these histories: as many for everybody, whoever else is asked for, as a
    list of n holds beside the longest history that the law reads.

    Where items have ``groups (items,)``, -1 for none, no group has more of the candidates than its share of
    the first k, so that they hold enough groups if the catalogue does. If that leaves too few, the best of
    the others come after them.
    """
    first = ranker.first_stage
    if first is None:
        raise FactorankError("this ranker has no first stage, so that it cannot recommend; fit it again")
    if not ranks_any_length(ranker):
        raise FactorankError("recommendations need a ranker of the code 'insertion' and the layout 'aligned'")
    n = ranker.model.n
    kept = histories.spread(n // 2)
    scores = first.scores(histories.items)
    scores[:, list(forbidden)] = -torch.inf
    rows = torch.arange(len(scores))[:, None].expand_as(histories.items)
    mine = histories.items >= 0
    scores[rows[mine], histories.items[mine]] = -torch.inf
    count = min(n - n // 2, scores.shape[1])
    if groups is None:
        best = scores.topk(count, dim=-1)
        items, found = torch.where(best.values.isinf(), -1, best.indices), best.values
    else:
        items, found = grouped_best(scores, groups, max(query.most, count * query.most // query.k), count)
    # Draws of an autoregressive law depend on the other rows of its batch: each row is one of its own.
    parts = torch.arange(len(items)).split(1 if ranker.model.causal else max(len(items), 1))
    seed = int(seeds_of(generator, 1))
    places = [
        candidate_places(ranker, kept.part(part), items[part], query, torch.Generator().manual_seed(seed))
        for part in parts
    ]
    return Candidates(items, found, torch.cat(places))


def ranks_any_length(ranker: "Ranker") -> bool:
    """Whether its model takes lists of up to n items, some of them observed."""
    return ranker.model.code.name == "insertion" and bool(getattr(ranker.model.context, "aligned", False))


def candidate_places(
    ranker: "Ranker", histories: Histories, candidates: Tensor, query: Query, generator: torch.Generator
) -> Tensor:
    """The probabilities ``(rows, c, c)`` of the places of candidates ``(rows, c)`` among themselves."""
    model, device = ranker.model, ranker.device
    h, c = histories.items.shape[1], candidates.shape[1]
    observed = torch.where(histories.items >= 0, torch.arange(h), -1)
    # Candidates stand first: the items of a list come before its padding.
    items = torch.cat([candidates, histories.items], -1)
    ended = (items < 0).long().argsort(dim=-1, stable=True)
    where = torch.zeros_like(ended).scatter_(-1, ended, torch.arange(h + c).expand_as(ended))
    items = items.gather(-1, ended)
    observed = torch.where(observed >= 0, where[:, c:], -1)
    relevance = histories.relevance if ranker.told != "order" else None
    lists = Lists(torch.nn.functional.pad(items, (0, model.n - h - c), value=-1), observed, None, relevance)
    lists = lists.to(device)
    seeds = seeds_of(generator, query.references, device)
    draws = -(-DRAWS // query.references)
    total = torch.zeros(len(candidates), c, c, device=device)
    is_candidate = torch.nn.functional.pad((~lists.is_observed & (lists.items >= 0)), (0, 1))
    index = torch.cumsum(is_candidate, -1) - 1  # the number of a candidate among those of its list
    with torch.no_grad():
        for seed in seeds:
            reference = list_reference(lists, lists.keys(seed[None])[:, 0], kind=ranker.reference)
            law = list_law(model, lists, reference, None if model.causal else 1)
            order = drawn_orders(law, draws, seed)
            order = torch.where(order < 0, model.n, reference.expand_as(order).gather(-1, order.clamp(min=0)))
            ours = is_candidate.expand(draws, *is_candidate.shape).gather(-1, order)
            place = (ours.cumsum(-1) - 1).clamp(min=0)
            number = index.expand(draws, *index.shape).gather(-1, order).clamp(min=0)
            cell = torch.where(ours, number * c + place, c * c).movedim(0, 1).flatten(1)
            hits = torch.zeros(len(candidates), c * c + 1, device=device)
            total += hits.scatter_add_(1, cell, torch.ones_like(cell, dtype=hits.dtype))[:, :-1].view(
                -1, c, c
            )
    return (total / (draws * query.references)).cpu()


def drawn_orders(law: PermutationLaw, draws: int, seed: Tensor) -> Tensor:
    """Orders ``(draws, rows, n)`` of lists; at one evaluation by the same random numbers for every row, so
    that an answer does not depend on who else is asked for."""
    generator = torch.Generator(law.model.device).manual_seed(int(seed))
    if law.model.causal:
        return law.sample((draws,), generator=generator)
    below = law.log_table().exp().cumsum(-1)  # type: ignore[attr-defined]
    n = law.n
    uniform = torch.rand((n, draws), generator=generator, device=below.device).expand(len(below), n, draws)
    values = torch.searchsorted(below, uniform.contiguous(), right=True)
    # Rounding may leave the sum of a row below one, and a value past its last.
    values = torch.minimum(values, torch.arange(n, device=values.device)[:, None])
    return law.conditions.decode(law.model, values.movedim(-1, 0))


BLENDS = (0.0, 0.1, 0.2, 0.4, 0.8)
"""Weights of the law beside the first stage that are tried."""


def choose_blend(
    ranker: "Ranker", validation: Ratings, *, share: float = 0.2, users: int = 300, k: int = 10, seed: int = 0
) -> float:
    """The weight of the law with the highest NDCG@k on validation users, whose last ratings are to be found.

    The last ``share`` of a user's ratings by time, or any where there are no times, are what the
    recommendations from the others should hold. 0 where nobody has ten ratings, and for autoregressive
    rankers, whose draws take too long for the little they add.
    """
    validation = chosen(validation.to("cpu"))
    some = validation.users_with(10)[:users]
    if not len(some) or ranker.model.causal or not ranks_any_length(ranker):
        return 0.0
    histories, targets = held_back(validation.of_users(some), share, seed)
    candidates = candidates_for(ranker, histories, Query(k=k), generator=torch.Generator().manual_seed(seed))
    gains = ranker.gain_table(candidates.items.shape[1])

    def score(blend: float) -> float:
        order = candidates.order(gains, blend)[:, :k]
        top = candidates.items.gather(-1, order.clamp(min=0)).masked_fill(order < 0, -1)
        return float(hit_scores(top, targets)["ndcg"].mean())

    return max(BLENDS, key=score)  # the smallest of those that are equal


def held_back(ratings: Ratings, share: float, seed: int = 0) -> tuple[Histories, list[set[int]]]:
    """The histories of users without the last ``share`` of their ratings, and the items of these."""
    generator = torch.Generator().manual_seed(seed)
    rows, targets = [], []
    for user in range(len(ratings)):
        own = torch.arange(int(ratings.starts[user]), int(ratings.starts[user + 1]))
        by = torch.rand(len(own), generator=generator) if ratings.times is None else ratings.times[own]
        own = own[by.argsort(stable=True)]
        cut = len(own) - max(1, round(share * len(own)))
        rows.append(own[:cut])
        targets.append(set(ratings.items[own[cut:]].tolist()))
    return histories_of(ratings, rows), targets


def histories_of(ratings: Ratings, rows: Sequence[Tensor]) -> Histories:
    """The ratings of some rows for each user, best first."""
    longest = max((len(row) for row in rows), default=0)
    items = torch.full((len(rows), longest), -1, dtype=torch.int64)
    relevance = torch.full((len(rows), longest), torch.nan)
    for user, row in enumerate(rows):
        values = ratings.relevance(ratings.values[row])
        best_first = values.argsort(descending=True, stable=True)
        items[user, : len(row)] = ratings.items[row][best_first].long()
        relevance[user, : len(row)] = values[best_first]
    return Histories(items, relevance)


def hit_scores(top: Tensor, targets: Sequence[set[int]]) -> dict[str, Tensor]:
    """Recall and NDCG ``(rows,)`` of recommended items ``(rows, k)``, best first, -1 pads.

    Recall is the share of the targets, or of the k places if there are more targets, that was recommended.

    >>> hit_scores(torch.tensor([[4, 2, 7]]), [{2, 9}])
    {'recall': tensor([0.5000]), 'ndcg': tensor([0.3869])}
    """
    hits = torch.tensor(
        [[item in wanted for item in row] for row, wanted in zip(top.tolist(), targets, strict=True)]
    )
    discount = 1 / torch.arange(2, top.shape[1] + 2).log2()
    most = torch.tensor([min(len(wanted), top.shape[1]) for wanted in targets])
    ideal = torch.nn.functional.pad(discount.cumsum(0), (1, 0))[most]
    return {
        "recall": hits.sum(-1) / most.clamp(min=1),
        "ndcg": (hits * discount).sum(-1) / ideal.clamp(min=1e-9),
    }


def _standard(scores: Tensor, present: Tensor) -> Tensor:
    """Scores with mean 0 and deviation 1 over the candidates of each row."""
    count = present.sum(-1, keepdim=True).clamp(min=1)
    centred = torch.where(present, scores, 0)
    centred = torch.where(present, centred - centred.sum(-1, keepdim=True) / count, 0)
    return centred / (centred.square().sum(-1, keepdim=True) / count).sqrt().clamp(min=1e-9)
