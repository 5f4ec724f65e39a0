"""The law of the order of a list given the observed items, and the probability of each place for each item.

The code is relative to a random reference with the observed items first; see
:mod:`factorank.rerank.lists`. A trained model is not exactly the same law for every reference, and at few
evaluations it takes positions as independent that are not. The mean over several references is better than
any of them.
"""

from collections.abc import Iterator

import torch
from torch import Tensor

from factorank.distributions.places import code_places
from factorank.errors import ModelError
from factorank.models import PermutationLaw, PermutationModel
from factorank.permutations import inverse
from factorank.rerank.constraints import shown_places
from factorank.rerank.encoder import ItemList
from factorank.rerank.keys import seeds_of
from factorank.rerank.lists import Lists, list_reference
from factorank.rerank.objective import rank_count, reads_ratings
from factorank.rerank.reranking import Query

AT_ONCE = {"cpu": 2**13, "cuda": 2**20}
"""How many tokens a network evaluation takes at a time, by device: on a CPU they should fit its caches."""


@torch.no_grad()
def place_probabilities(
    model: PermutationModel, lists: Lists, query: Query, *, kind: str = "random", generator: torch.Generator
) -> Iterator[tuple[slice, Tensor]]:
    """Probabilities ``(rows, n, n)`` that the item at each place of the list ends up at each place.

    In parts of the rows, each with its slice. All references of a part are evaluated together. They are
    keyed by item and seed: an answer depends neither on the order of its list nor on its neighbours. The
    draws of the query are shared out over its references, where places are not exact. ``kind`` is that of
    the references; see :func:`factorank.rerank.lists.list_reference`.
    """
    device, count = lists.items.device, query.references
    seeds = seeds_of(generator, count, device)
    generator = on_device(generator, device)
    at_once = max(1, AT_ONCE.get(device.type, AT_ONCE["cpu"]) // max(model.n * count, 1))
    if not len(lists):
        return
    longest, fewest = (lists.items >= 0).sum(-1).max(), (lists.observed >= 0).sum(-1).min()
    samples = -(-query.draws(int(longest), int(fewest)) // count)
    for start in range(0, len(lists), at_once):
        rows = slice(start, min(start + at_once, len(lists)))
        part = lists.part(rows)
        repeated = part.repeated(count)
        reference = list_reference(repeated, part.keys(seeds).flatten(0, 1), kind=kind)
        law = list_law(model, repeated, reference, query.nfe)
        if part.pinned is None and part.hidden is None:
            places = law.marginals(samples=None if law.nfe == 1 else samples, generator=generator)
        else:
            places = conditioned_places(law, repeated, reference)
        place_of = inverse(reference, check=False)[..., None].expand_as(places)
        places = places.gather(-2, place_of)
        yield rows, places if count == 1 else places.unflatten(0, (len(part), count)).mean(1)


def conditioned_places(law: PermutationLaw, lists: Lists, reference: Tensor) -> Tensor:
    """Places ``(rows, n, n)`` of the reference's items among those that are shown and not pinned; pinned and
    hidden ones come last."""
    if law.nfe != 1 or law.model.causal:
        raise ModelError("pinned and hidden items need a masked ranker at one evaluation")
    values = law.log_table().exp()  # type: ignore[attr-defined]
    if lists.pinned is not None:  # the last slot, behind the others
        last = torch.eye(values.shape[-1], device=values.device, dtype=values.dtype)
        pinned = lists.pinned.gather(-1, reference) >= 0
        values = torch.where(pinned[..., None], last, values)
    if lists.hidden is None:
        return code_places("insertion", values)
    return shown_places(values, lists.hidden.gather(-1, reference))


@torch.no_grad()
def mode_or_sample(
    model: PermutationModel, lists: Lists, query: Query, *, kind: str = "random", generator: torch.Generator
) -> Tensor:
    """The mode of the law of each list, or a sample of it, in one reference: orders ``(rows, n)`` of places,
    -1 after the end."""
    device = lists.items.device
    keys = lists.keys(seeds_of(generator, 1, device))[:, 0]
    reference = list_reference(lists, keys, kind=kind)
    generator = on_device(generator, device)
    law = list_law(model, lists, reference, query.nfe)
    order = law.mode if query.by == "mode" else law.sample(generator=generator)
    return torch.where(order < 0, -1, reference.gather(-1, order.clamp(min=0)))


def list_law(model: PermutationModel, lists: Lists, reference: Tensor, nfe: int | None = 1) -> PermutationLaw:
    """The law of the order of the list in its reference: item 0 of the law is the first of the reference."""
    items = lists.items.gather(-1, reference)
    count = (lists.observed >= 0).sum(-1, keepdim=True)
    features, ratings = lists.features, None
    if features is not None:
        features = features.gather(-2, reference[..., None].expand(*reference.shape, features.shape[-1]))
    if lists.relevance is not None and reads_ratings(model):
        ratings = lists.by_place(lists.relevance, torch.nan).gather(-1, reference)
    context: Tensor | ItemList = ItemList(items, features, rank_count(count[:, 0]), ratings)
    if features is None and getattr(model.context, "ranks", None) is None:
        context = items
    if model.code.name != "insertion":
        if bool((count > 1).any()):
            raise ModelError(
                "an observed order of items needs an insertion model; this one has the code"
                f" {model.code.name}"
            )
        return model.distribution(context, nfe=nfe)
    observed = torch.nn.functional.pad(lists.observed, (0, 1 - min(1, lists.observed.shape[-1])), value=-1)
    place_of = inverse(reference, check=False).gather(-1, observed.clamp(min=0))
    # The first value of an insertion code is always 0. Training fixes it, with and without observations.
    first = torch.full_like(observed, -1)
    first[:, 0] = torch.where(items[:, 0] >= 0, 0, -1)
    observed = torch.where(count > 1, torch.where(observed < 0, -1, place_of), first)
    return model.distribution(context, nfe=nfe, observed=observed)


def on_device(generator: torch.Generator, device: torch.device) -> torch.Generator:
    """The generator, or one on the device that it seeds: the same seed then draws the same on every device
    as far as the device allows."""
    if generator.device.type == device.type:
        return generator
    seed = int(torch.randint(2**62, (), generator=generator, device=generator.device))
    return torch.Generator(device).manual_seed(seed)
