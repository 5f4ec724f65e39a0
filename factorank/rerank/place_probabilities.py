"""From a model to the probabilities of every item's place, given the order of some items.

The code is relative to a reference, an order of the list that training draws at random: here, too, the
reference is random, except that the observed items come first, because the first r values of an insertion
code are then their order and say nothing else; they are at random among themselves or sorted, as the model
has learnt it (see :mod:`factorank.rerank.objective`). The model is not exactly the same for every reference,
and at few evaluations it takes positions as independent that are not; the mean over several references is
better than any of them.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice

import torch
from torch import Tensor

from factorank.errors import ModelError
from factorank.models import PermutationLaw, PermutationModel
from factorank.models.conditions import evaluating, last
from factorank.models.unmasking import StratifiedDraw
from factorank.permutations import inverse
from factorank.rerank.objective import reads_ratings, told_ranks

AT_ONCE = {"cpu": 2**14, "cuda": 2**20}
"""How many tokens a network evaluation takes at a time, by device: on a CPU they should fit its caches."""


@dataclass
class Lists:
    """Lists of items, and the order that is known of some of them.

    ``items (rows, n)`` are the context's ids, -1 after the end; ``observed (rows, r)`` places in the list,
    best first, -1 after the end; ``features (rows, n, f)`` of items that have no embedding, or None;
    ``relevance (rows, r)`` of the observed ones, NaN where it is not known, or None.
    """

    items: Tensor
    observed: Tensor
    features: Tensor | None = None
    relevance: Tensor | None = None

    def __len__(self) -> int:
        return len(self.items)

    def part(self, rows: slice) -> "Lists":
        return self._each(lambda tensor: tensor[rows])

    def to(self, device: torch.device) -> "Lists":
        """The same on a device."""
        return self._each(lambda tensor: tensor.to(device))

    def _each(self, change: Callable[[Tensor], Tensor]) -> "Lists":
        return Lists(*(None if part is None else change(part) for part in vars(self).values()))  # type: ignore[arg-type]

    @property
    def telling(self) -> Tensor:
        """Which rows have observations that say something, bool ``(rows, 1)``: the order of two items or
        more, or a rating. One item alone, without its rating, says nothing."""
        several = (self.observed >= 0).sum(-1, keepdim=True) > 1
        if self.relevance is None:
            return several
        return several | ((self.observed >= 0) & ~self.relevance.isnan()).any(-1, keepdim=True)

    @property
    def seen(self) -> Tensor:
        """Which places of the list are observed, bool ``(rows, n)``."""
        rows, n = self.items.shape
        seen = torch.zeros((rows, n + 1), dtype=torch.bool, device=self.items.device)
        return seen.scatter_(-1, torch.where(self.observed < 0, n, self.observed), True)[:, :n]


def reference_of(lists: Lists, keys: Tensor, *, known: str = "random") -> Tensor:
    """References ``(rows, n)``: the observed places, the others, what is past the end, each by ``keys (n,)``.

    With ``known="sorted"`` the observed ones stand in their own order, best first. One observed item without
    its rating says nothing and is treated as none: r = 1 is the same law as r = 0.
    """
    telling = lists.telling
    group = torch.where(lists.items < 0, 2, torch.where(lists.seen & telling, 0, 1))
    sort_keys = group + keys
    if known == "sorted" and lists.observed.shape[-1] > 1:
        n, r = lists.items.shape[-1], lists.observed.shape[-1]
        rank = torch.arange(r, device=keys.device, dtype=keys.dtype) / r
        wide = torch.nn.functional.pad(sort_keys, (0, 1))
        wide = wide.scatter(
            -1, torch.where(lists.observed < 0, n, lists.observed), rank.expand(len(lists), r)
        )
        sort_keys = torch.where(telling, wide[:, :n], sort_keys)
    return sort_keys.argsort(-1)


def law_given(
    model: PermutationModel, lists: Lists, reference: Tensor, nfe: int | None = 1
) -> PermutationLaw:
    """The law of the order of the list in its reference: item 0 of the law is the first of the reference."""
    n, device = model.n, reference.device
    items = lists.items.gather(-1, reference)
    features = None
    if lists.features is not None:
        index = reference[..., None].expand(*reference.shape, lists.features.shape[-1])
        features = lists.features.gather(-2, index)
    counts = (lists.observed >= 0).sum(-1, keepdim=True)
    ranked = getattr(model.context, "ranks", None) is not None
    context = items if features is None and not ranked else (items, features, told_ranks(counts[:, 0]))
    if lists.relevance is not None and reads_ratings(model):
        at = torch.where(lists.observed < 0, n, lists.observed)
        rated = torch.full((len(lists), n + 1), torch.nan, device=device)
        rated = rated.scatter(-1, at, lists.relevance.to(rated.dtype))
        context = (*context, rated[:, :n].gather(-1, reference))
    if model.code.name != "insertion":
        if bool((counts > 1).any()):
            raise ModelError(
                "the order of some items can be given to an insertion model; this one has the code"
                f" {model.code.name}"
            )
        return model.distribution(context, nfe=nfe)
    places = torch.arange(n, device=device)
    counts = torch.where(counts > 1, counts, 1)
    observed = torch.nn.functional.pad(lists.observed, (0, n - lists.observed.shape[-1]), value=-1)
    told = inverse(reference, check=False).gather(-1, observed.clamp(min=0))
    order = torch.where((places < counts) & (counts > 1), told, places)
    code = model.code.encode(order, check=False)
    # The first value is always 0: telling it is right with and without observations.
    fixed = torch.where((places < counts) & (items >= 0), code, -1)
    return model.distribution(context, nfe=nfe, fixed=fixed)


@torch.no_grad()
def law_places(law: PermutationLaw, *, samples: int, generator: torch.Generator | None = None) -> Tensor:
    """Probabilities ``(rows, n, n)`` of the place of each item of a law with one batch dimension.

    Exact for an insertion model at one NFE, whose positions are independent; a share of :func:`draws`
    otherwise.
    """
    model, given, n = law.model, law.given, law.n
    rows = given.rows
    if law.nfe == 1 and not model.causal and model.code.name == "insertion":
        start = given.start(model)
        with evaluating(model):
            probs = model.network.head(model.network.hidden(start, given.known, given.present)).softmax(-1)
        certain = start != model.network.mask_value  # known values, and the padding, which stays where it is
        sure = torch.nn.functional.one_hot(torch.where(certain, start, 0), n).to(probs.dtype)
        return product_places(torch.where(certain[..., None], sure, probs))
    drawn = draws(law, samples, generator)
    if given.present is not None:
        drawn = torch.where(drawn < 0, torch.arange(n, device=drawn.device), drawn)
    places = torch.zeros((rows, n * n), device=drawn.device)
    at = drawn * n + torch.arange(n, device=drawn.device)
    places.scatter_add_(-1, at.movedim(0, 1).reshape(rows, -1), places.new_ones(()).expand(rows, samples * n))
    return places.view(rows, n, n) / samples


@torch.no_grad()
def draws(law: PermutationLaw, samples: int, generator: torch.Generator | None = None) -> Tensor:
    """Orders ``(samples, rows, n)`` of a law with one batch dimension, those of a row stratified.

    Each follows the law, as what ``law.sample`` draws, but together they are spread evenly (see
    :class:`~factorank.models.unmasking.StratifiedDraw`), all samples of a row at once, in whatever chunks
    they are drawn: a share of them has less noise. An autoregressive model is asked for no position past the
    end of the longest list: lists of 10 then take a fifth of the time that lists of 50 do.
    """
    causal, present, device = law.model.causal, law.given.present, law.model.network.places.device
    length = int(present.sum(-1).max()) if causal and present is not None else law.n
    result = torch.empty((samples, law.given.rows, law.n), dtype=torch.int64, device=device)
    with evaluating(law.model):
        for given, rows, some in law._chunks(samples):
            if some.start == 0:
                spread = StratifiedDraw(samples, given.rows, length, generator, device)
            walk = law._walk(given, some.stop - some.start, spread.part(some), generator)
            steps = islice(walk, 1 + length if causal else None)  # the first is the start
            result[some, rows] = law._decode(given, last(steps).code)
    return result


@torch.no_grad()
def product_places(probs: Tensor) -> Tensor:
    """Place probabilities ``(rows, item, place)`` of independent insertion values ``(rows, n, n)``.

    An item moves back one place when a later one is inserted at or before its place. The same recursion as
    :func:`factorank.distributions.factorized.insertion_places`, in place and so without gradients: it is a
    fifth of the time that an answer takes.
    """
    places = torch.zeros_like(probs)
    at_or_before = probs.cumsum(-1)
    for k in range(probs.shape[-1]):
        moves = places[:, :k, :k] * at_or_before[:, k, None, :k]
        places[:, :k, :k] -= moves
        places[:, :k, 1 : k + 1] += moves
        places[:, k, : k + 1] = probs[:, k, : k + 1]
    return places.clamp_(min=0.0)


@torch.no_grad()
def place_probabilities(
    model: PermutationModel,
    lists: Lists,
    *,
    nfe: int | None = 1,
    references: int = 1,
    samples: int = 64,
    known: str = "random",
    generator: torch.Generator,
) -> Iterator[tuple[slice, Tensor]]:
    """Probabilities ``(rows, n, n)`` that the item at each place of the list ends up at each place.

    In parts of the rows, each with its slice. ``samples`` in all are shared out over the ``references``,
    where places are not exact. All rows share the references, so that an answer does not depend on its
    neighbours.
    """
    keys = torch.rand((references, model.n), generator=generator, device=generator.device)
    keys = keys.to(lists.items.device)
    generator = on_device(generator, lists.items.device)
    each = -(-samples // references)
    at_once = max(1, AT_ONCE.get(lists.items.device.type, AT_ONCE["cpu"]) // max(model.n, 1))
    for start in range(0, len(lists), at_once):
        rows = slice(start, min(start + at_once, len(lists)))
        part = lists.part(rows)
        total = torch.zeros((), device=lists.items.device)
        for key in keys:
            reference = reference_of(part, key, known=known)
            law = law_given(model, part, reference, nfe)
            places = law_places(law, samples=each, generator=generator)
            back = inverse(reference, check=False)[..., None].expand_as(places)
            total = total + places.gather(-2, back)
        yield rows, total / references


@torch.no_grad()
def one_order(
    model: PermutationModel,
    lists: Lists,
    *,
    how: str,
    nfe: int | None,
    known: str = "random",
    generator: torch.Generator,
) -> Tensor:
    """The mode of the law of each list, or one sample: orders ``(rows, n)`` of places, -1 after the end."""
    keys = torch.rand(model.n, generator=generator, device=generator.device).to(lists.items.device)
    reference = reference_of(lists, keys, known=known)
    generator = on_device(generator, lists.items.device)
    law = law_given(model, lists, reference, nfe)
    order = law.mode if how == "mode" else law.sample(generator=generator)
    return torch.where(order < 0, -1, reference.gather(-1, order.clamp(min=0)))


def on_device(generator: torch.Generator, device: torch.device) -> torch.Generator:
    """The generator, or one on the device that it seeds: the same seed then draws the same on every device
    as far as the device allows."""
    if generator.device.type == device.type:
        return generator
    seed = int(torch.randint(2**62, (), generator=generator, device=generator.device))
    return torch.Generator(device).manual_seed(seed)
