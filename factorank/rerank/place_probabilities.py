"""The law of the order of a list given the observed items, and the probability of each place for each item.

The code is relative to a random reference with the observed items first; see
:mod:`factorank.rerank.reference`. A trained model is not exactly the same law for every reference, and at few
evaluations it takes positions as independent that are not. The mean over several references is better than
any of them.
"""

from collections.abc import Iterator

import torch
from torch import Tensor

from factorank.errors import ModelError
from factorank.models import PermutationLaw, PermutationModel
from factorank.permutations import inverse
from factorank.rerank.encoder import ItemList
from factorank.rerank.lists import Lists
from factorank.rerank.objective import rank_count, reads_ratings
from factorank.rerank.query import Query
from factorank.rerank.reference import list_reference

AT_ONCE = {"cpu": 2**14, "cuda": 2**20}
"""How many tokens a network evaluation takes at a time, by device: on a CPU they should fit its caches."""


@torch.no_grad()
def place_probabilities(
    model: PermutationModel, lists: Lists, query: Query, *, kind: str = "random", generator: torch.Generator
) -> Iterator[tuple[slice, Tensor]]:
    """Probabilities ``(rows, n, n)`` that the item at each place of the list ends up at each place.

    In parts of the rows, each with its slice. The draws of the query are shared out over its references,
    where places are not exact. All rows share the references, so that an answer does not depend on its
    neighbours. ``kind`` is that of the references; see :func:`factorank.rerank.reference.list_reference`.
    """
    device = lists.items.device
    keys = torch.rand((query.references, model.n), generator=generator, device=generator.device).to(device)
    generator = on_device(generator, device)
    at_once = max(1, AT_ONCE.get(device.type, AT_ONCE["cpu"]) // max(model.n, 1))
    samples = -(-_draws(query, lists) // query.references)
    for start in range(0, len(lists), at_once):
        rows = slice(start, min(start + at_once, len(lists)))
        part = lists.part(rows)
        total = torch.zeros((), device=device)
        for key in keys:
            reference = list_reference(part, key, kind=kind)
            law = list_law(model, part, reference, query.nfe)
            places = law_places(law, samples=samples, generator=generator)
            place_of = inverse(reference, check=False)[..., None].expand_as(places)
            total = total + places.gather(-2, place_of)
        yield rows, total / query.references


@torch.no_grad()
def mode_or_sample(
    model: PermutationModel, lists: Lists, query: Query, *, kind: str = "random", generator: torch.Generator
) -> Tensor:
    """The mode of the law of each list, or a sample of it, in one reference: orders ``(rows, n)`` of places,
    -1 after the end."""
    device = lists.items.device
    keys = torch.rand(model.n, generator=generator, device=generator.device).to(device)
    reference = list_reference(lists, keys, kind=kind)
    generator = on_device(generator, device)
    law = list_law(model, lists, reference, query.nfe)
    order = law.mode if query.by == "mode" else law.sample(generator=generator)
    return torch.where(order < 0, -1, reference.gather(-1, order.clamp(min=0)))


def list_law(model: PermutationModel, lists: Lists, reference: Tensor, nfe: int | None = 1) -> PermutationLaw:
    """The law of the order of the list in its reference: item 0 of the law is the first of the reference."""
    items = lists.items.gather(-1, reference)
    count = (lists.observed >= 0).sum(-1, keepdim=True)
    context = _context(model, lists, reference, items, count[:, 0])
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


def _context(
    model: PermutationModel, lists: Lists, reference: Tensor, items: Tensor, count: Tensor
) -> Tensor | ItemList:
    """What the encoder reads of lists in their reference."""
    features = None
    if lists.features is not None:
        index = reference[..., None].expand(*reference.shape, lists.features.shape[-1])
        features = lists.features.gather(-2, index)
    if features is None and getattr(model.context, "ranks", None) is None:
        return items
    ratings = None
    if lists.relevance is not None and reads_ratings(model):
        n = model.n
        at = torch.where(lists.observed < 0, n, lists.observed)
        ratings = torch.full((len(lists), n + 1), torch.nan, device=items.device)
        ratings = ratings.scatter(-1, at, lists.relevance.to(ratings.dtype))[:, :n].gather(-1, reference)
    return ItemList(items, features, rank_count(count), ratings)


def law_places(law: PermutationLaw, *, samples: int, generator: torch.Generator | None = None) -> Tensor:
    """Probabilities ``(*batch, n, n)`` of each item's place: exact at one evaluation, a share of stratified
    draws otherwise."""
    return law.marginals(samples=None if law.nfe == 1 else samples, generator=generator)


def mean_place(places: Tensor) -> Tensor:
    """The mean place ``(rows, n)``, from 0 on."""
    # Not a matrix product, which autocast would take to bfloat16: places would come in steps.
    return (places * torch.arange(places.shape[-1], device=places.device, dtype=places.dtype)).sum(-1)


def interval(places: Tensor, level: float) -> tuple[Tensor, Tensor]:
    """The lowest and highest place, ``(rows, n)`` each, of the middle ``level`` of the probability.

    >>> interval(torch.tensor([[0.02, 0.9, 0.04, 0.04]]), 0.9)
    (tensor([1]), tensor([2]))
    """
    below = places.cumsum(-1)
    tail, rounding = (1 - level) / 2, 1e-5
    low = (below <= tail + rounding).sum(-1)
    high = (below < 1 - tail - rounding).sum(-1)
    return low, high.clamp(max=places.shape[-1] - 1)


def on_device(generator: torch.Generator, device: torch.device) -> torch.Generator:
    """The generator, or one on the device that it seeds: the same seed then draws the same on every device
    as far as the device allows."""
    if generator.device.type == device.type:
        return generator
    seed = int(torch.randint(2**62, (), generator=generator, device=generator.device))
    return torch.Generator(device).manual_seed(seed)


def _draws(query: Query, lists: Lists) -> int:
    """How many orders to draw of the lists, over all references."""
    if query.samples is not None or not len(lists):
        return query.samples or 1
    longest, fewest = (lists.items >= 0).sum(-1).max(), (lists.observed >= 0).sum(-1).min()
    return query.draws(int(longest), int(fewest))
