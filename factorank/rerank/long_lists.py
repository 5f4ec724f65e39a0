"""Lists longer than those that a model takes: dealt into chunks, whose places are put together.

A chunk holds some of the observed items, evenly spaced along their order, and a share of the others, dealt at
random by item and seed; the next reference deals anew. A place of a chunk stands for the places of the whole
list at the same relative height. The means over all chunks are brought to rows and columns that sum to one.
These places are estimates: items of different chunks are compared only by what both are compared with.
"""

from collections.abc import Iterator

import torch
from torch import Tensor

from factorank.errors import FactorankError
from factorank.models import PermutationModel
from factorank.rerank.keys import seeds_of
from factorank.rerank.lists import Lists, list_reference
from factorank.rerank.place_probabilities import list_law, place_probabilities
from factorank.rerank.reranking import Query

LONGEST = 500
"""The longest list that can be asked for."""
ROUNDS = 8
"""Of bringing the sums of rows and of columns to one."""


def places_of_any_length(
    model: PermutationModel, lists: Lists, query: Query, *, kind: str, generator: torch.Generator
) -> Iterator[tuple[slice, Tensor]]:
    """Place probabilities in parts of the rows, as :func:`place_probabilities` gives them for short lists.

    Where some are longer, each list is a part by itself.
    """
    width = lists.items.shape[1]
    if width <= model.n:
        yield from place_probabilities(model, lists, query, kind=kind, generator=generator)
        return
    if query.by not in ("gain", "place"):
        fault = f"lists of more than {model.n} items are sorted by 'gain' or 'place', not {query.by!r}"
        raise FactorankError(fault, parameter="by")
    state = generator.get_state()
    for row in range(len(lists)):
        generator.set_state(state)  # a row does not depend on those before it
        own = lists.part(slice(row, row + 1))
        length = int((own.items >= 0).sum())
        if length <= model.n:
            short = place_probabilities(model, own.cut(model.n), query, kind=kind, generator=generator)
            places = next(short)[1]
        else:
            places = long_places(model, own.cut(length), query, kind=kind, generator=generator)
        rest = width - places.shape[-1]
        yield slice(row, row + 1), torch.nn.functional.pad(places, (0, rest, 0, rest))


@torch.no_grad()
def long_places(
    model: PermutationModel, lists: Lists, query: Query, *, kind: str, generator: torch.Generator
) -> Tensor:
    """Place probabilities ``(1, m, m)`` of one list ``(1, m)`` of more items than the model takes."""
    m, n, device = lists.items.shape[1], model.n, lists.items.device
    observed = lists.observed[0][lists.observed[0] >= 0]
    is_free = ~lists.is_observed[0]
    free = is_free.nonzero()[:, 0]
    kept = min(len(observed), n // 2)
    count = -(-len(free) // (n - kept)) if len(free) else 1
    seeds = seeds_of(generator, query.references, device)
    total, seen = torch.zeros(m, m, device=device), torch.zeros(m, device=device)
    if len(free) == 0 or len(observed) > n // 2:
        count = max(count, -(-len(observed) // max(kept, 1)))  # every observed item is in some chunk
    for seed in seeds:
        dealt = free[lists.keys(seed[None])[0, 0, free].argsort()]
        chunks, shown = [], []
        for chunk in range(count):
            at = (torch.arange(kept, device=device) * count + chunk) * len(observed) // max(kept * count, 1)
            anchors = observed[at]
            own = torch.cat([anchors, dealt[chunk::count]])
            chunks.append(own)
            shown.append(torch.arange(len(anchors), device=device))
        part = _rows(lists, chunks, shown, n)
        reference = list_reference(part, part.keys(seed[None])[:, 0], kind=kind)
        law = list_law(model, part, reference, 1 if not model.causal else None)
        places = law.marginals(samples=None if law.nfe == 1 else 64, generator=generator)
        places = places.gather(-2, reference.argsort(-1)[..., None].expand_as(places))
        for row, own in enumerate(chunks):
            size = len(own)
            total.index_add_(0, own, places[row, :size, :size] @ _stretch(size, m, device))
            seen.index_add_(0, own, torch.ones(size, device=device))
    places = total / seen.clamp(min=1)[:, None]
    for _ in range(ROUNDS):
        places = places / places.sum(0, keepdim=True).clamp(min=1e-12)
        places = places / places.sum(1, keepdim=True).clamp(min=1e-12)
    return places[None]


def _rows(lists: Lists, chunks: list[Tensor], shown: list[Tensor], n: int) -> Lists:
    """The chunks of a list as rows of n items, of which the first ones are observed, best first."""

    def padded(rows: list[Tensor], width: int, fill: float) -> Tensor:
        return torch.stack([torch.nn.functional.pad(row, (0, width - len(row)), value=fill) for row in rows])

    items, width = lists.items[0], max(len(row) for row in shown)
    features = identity = relevance = None
    if lists.features is not None:
        features = torch.stack(
            [torch.nn.functional.pad(lists.features[0, own], (0, 0, 0, n - len(own))) for own in chunks]
        )
    if lists.identity is not None:
        identity = padded([lists.identity[0, own] for own in chunks], n, -1)
    if lists.relevance is not None:
        rated = lists.by_place(lists.relevance, torch.nan)[0]
        relevance = padded(
            [rated[own[: len(row)]] for own, row in zip(chunks, shown, strict=True)], width, torch.nan
        )
    return Lists(
        padded([items[own] for own in chunks], n, -1), padded(shown, width, -1), features, relevance, identity
    )


def _stretch(size: int, m: int, device: torch.device) -> Tensor:
    """What share of each of the places of a list of ``size`` falls on each of those of a list of m.

    >>> _stretch(2, 4, torch.device("cpu"))
    tensor([[0.5000, 0.5000, 0.0000, 0.0000],
            [0.0000, 0.0000, 0.5000, 0.5000]])
    """
    low = torch.arange(size, device=device)[:, None] * (m / size)
    high, place = low + m / size, torch.arange(m, device=device)
    overlap = (torch.minimum(high, place + 1) - torch.maximum(low, place)).clamp(min=0)
    return overlap / (m / size)
