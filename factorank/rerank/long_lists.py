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
from factorank.rerank.place_probabilities import conditioned_places, list_law, place_probabilities
from factorank.rerank.reranking import Query

LONGEST = 500
"""The longest list that can be asked for."""
DRAWS = 64
"""Of an autoregressive law, for the places of a chunk."""
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
    """Place probabilities ``(1, m, m)`` of one list ``(1, m)`` of more items than the model takes.

    As :func:`place_probabilities` gives them: among the items that are shown and not pinned.
    """
    m, n, device = lists.items.shape[1], model.n, lists.items.device
    seeds = seeds_of(generator, query.references, device)
    deals = [dealt_chunks(lists, n, seed) for seed in seeds]
    chunks = [chunk for deal in deals for chunk in deal]
    part = _rows(lists, chunks, n)
    which = torch.arange(len(seeds), device=device).repeat_interleave(len(deals[0]))
    keys = part.keys(seeds)[torch.arange(len(chunks), device=device), which]
    reference = list_reference(part, keys, kind=kind)
    law = list_law(model, part, reference, 1 if not model.causal else None)
    if part.hidden is None:
        places = law.marginals(samples=None if law.nfe == 1 else DRAWS, generator=generator)
    else:
        places = conditioned_places(law, part, reference)
    places = places.gather(-2, reference.argsort(-1)[..., None].expand_as(places))
    ranked = lists.shown[0] if lists.pinned is None else lists.shown[0] & (lists.pinned[0] < 0)
    whole = int(ranked.sum())
    total, seen = torch.zeros(m, whole, device=device), torch.zeros(m, device=device)
    for row, (chunk, _) in enumerate(chunks):
        size = int(part.shown[row].sum())
        total.index_add_(0, chunk, places[row, : len(chunk), :size] @ _stretch(size, whole, device))
        seen.index_add_(0, chunk, torch.ones(len(chunk), device=device))
    own = (total / seen.clamp(min=1)[:, None])[ranked]
    for _ in range(ROUNDS):
        own = own / own.sum(0, keepdim=True).clamp(min=1e-12)
        own = own / own.sum(1, keepdim=True).clamp(min=1e-12)
    result = torch.zeros(1, m, m, device=device)
    result[0, ranked, :whole] = own
    return result


def dealt_chunks(lists: Lists, n: int, seed: Tensor) -> list[tuple[Tensor, int]]:
    """The places of one list dealt into chunks of up to n: observed ones first, best first, and how many."""
    device = lists.items.device
    observed = lists.observed[0][lists.observed[0] >= 0]
    is_free = ~lists.is_observed[0] if lists.pinned is None else ~lists.is_observed[0] & (lists.pinned[0] < 0)
    free = is_free.nonzero()[:, 0]
    kept = min(len(observed), n // 2)
    count = max(1, -(-len(free) // (n - kept)))
    if len(observed) > n // 2:
        count = max(count, -(-len(observed) // kept))  # every observed item is in some chunk
    dealt = free[lists.keys(seed[None])[0, 0, free].argsort()]
    chunks = []
    for chunk in range(count):
        at = (torch.arange(kept, device=device) * count + chunk) * len(observed) // max(kept * count, 1)
        chunks.append((torch.cat([observed[at], dealt[chunk::count]]), kept))
    return chunks


def _rows(lists: Lists, chunks: list[tuple[Tensor, int]], n: int) -> Lists:
    """The chunks of a list as rows of n items, of which the first ones are observed, best first."""

    def padded(values: Tensor, width: int, fill: float) -> Tensor:
        rows = [values[chunk[:width]] for chunk, _ in chunks]
        last = (0, 0) * (values.ndim - 1)
        return torch.stack(
            [torch.nn.functional.pad(row, (*last, 0, width - len(row)), value=fill) for row in rows]
        )

    def own(values: Tensor | None, fill: float) -> Tensor | None:
        return None if values is None else padded(values[0], n, fill)

    kept = chunks[0][1]
    items = padded(lists.items[0], n, -1)
    relevance = None
    if lists.relevance is not None:
        relevance = padded(lists.by_place(lists.relevance, torch.nan)[0], kept, torch.nan)
    observed = torch.arange(kept, device=items.device).expand(len(chunks), kept)
    return Lists(
        items,
        observed,
        own(lists.features, 0),
        relevance,
        own(lists.identity, -1),
        hidden=own(lists.hidden, 0),
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
