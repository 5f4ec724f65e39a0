"""The answers of a ranker: from lists of names to places, orders and what is stated of them."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from factorank.errors import ModelError
from factorank.rerank.catalogue import Item
from factorank.rerank.constraints import around_pins, diverse_order, group_numbers, shown_order
from factorank.rerank.expected_gain import expected_gain, sort_by
from factorank.rerank.keys import seeds_of
from factorank.rerank.lists import Lists
from factorank.rerank.long_lists import places_of_any_length
from factorank.rerank.objective import reads_ratings
from factorank.rerank.place_probabilities import mode_or_sample
from factorank.rerank.request import NewItems, read_request
from factorank.rerank.reranking import Query, Reranking, mean_place, state

if TYPE_CHECKING:
    from factorank.rerank.ranker import Ranker


def reranked(
    ranker: "Ranker",
    items: Any,
    observed: Any,
    query: Query,
    *,
    new: NewItems,
    pinned: Any,
    forbidden: Any,
    groups: Mapping[Item, Any] | None,
    generator: torch.Generator,
) -> Reranking:
    """The answer of :meth:`factorank.Ranker.rerank`."""
    seed = int(seeds_of(generator, 1))
    n, longest = ranker.model.n, ranker.longest
    reads = (ranker.told, ranker.rating_range)
    lists, names, single = read_request(
        ranker.catalogue, n, longest, items, observed, new, seed, *reads, pinned=pinned, forbidden=forbidden
    )
    if groups is not None:
        lists.group = group_numbers(ranker.catalogue, names, groups, lists.items.shape[1])
    lists = lists.to(ranker.device)
    if lists.relevance is not None:
        lists.relevance = ranker.relevance(lists.relevance)
    parts = [
        state(order, places, lists.part(rows).is_observed, query)
        for rows, order, places in answers(ranker, lists, query, generator=generator)
    ]
    answer = Reranking.joined(parts, int(lists.shown.sum(-1).max()) if len(lists) else 0, query)
    answer.names = names
    return answer[0] if single else answer


def answers(
    ranker: "Ranker", lists: Lists, query: Query, *, generator: torch.Generator
) -> Iterator[tuple[slice, Tensor, Tensor]]:
    """Orders ``(rows, n)`` of the places of lists, -1 past the end, and place probabilities ``(rows, n, n)``,
    in parts of the rows; the lists are on the model's device."""
    model = ranker.model
    if not reads_ratings(model):
        lists = replace(lists, relevance=None)
    if query.nfe is None and not model.causal:
        query = replace(query, nfe=1)
    aligned = getattr(model.context, "aligned", False)
    if bool((lists.items < 0).any()) and not (aligned and not model.code.domains_depend_on_n):
        raise ModelError(
            f"this ranker takes lists of exactly {model.n} items: shorter ones need an aligned"
            " layout and an insertion code"
        )
    if ranker.reference == "sorted" and not model.causal and query.nfe != 1:
        raise ModelError(
            f"{{parameter={query.nfe}}} needs a ranker with reference='random', as the preset 'paper'"
            " has; this one has learnt one evaluation, given the observed items",
            parameter="nfe",
        )
    table = ranker.gain_table(lists.items.shape[1]).to(ranker.device)
    ties = seeds_of(generator, 1, ranker.device)
    probabilities = places_of_any_length(model, lists, query, kind=ranker.reference, generator=generator)
    for rows, free_places in probabilities:
        part = lists.part(rows)
        places, shown = around_pins(free_places, part), part.shown
        if query.by in ("gain", "place"):
            gain = query.by == "gain"
            score = expected_gain(places, shown.sum(-1), table) if gain else -mean_place(places)
            order = sort_by(score, part.observed, part.items >= 0, part.keys(ties)[:, 0])
        else:
            order = mode_or_sample(model, part, query, kind=ranker.reference, generator=generator)
        order = shown_order(order, part)
        if part.group is not None:
            order = diverse_order(order, part, query.k, query.most)
        yield rows, order, places
