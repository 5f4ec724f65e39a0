"""The training objective of a ranker: the order of the first r items is observed, that of the rest is not.

The reference of an insertion code is any order of the list. Where the observed items stand in it at random,
as in the paper, a network must first work out their order from values that are each relative to those before.
Here the observed items come first *in their observed order*, best first. The place of a token is then its
rank among them, its value is only a sign that it is observed, and the context adds the rank relative to their
number. There is one reference for the observed items, so the law cannot depend on how they were listed. The
rest stays in random order.
"""

from typing import Any

import torch
from torch import Tensor, nn

from factorank.models import PermutationModel, autoregressive, masked, orders
from factorank.models.context import encode_context
from factorank.rerank.encoder import ItemList
from factorank.rerank.lists import sorted_reference

WITHHELD = 0.2
"""The share of the lists that a ranker which reads ratings learns from their order alone."""


class SortedPrefix(nn.Module):
    """A model with the loss of its order given the sorted first r items, r uniform on 1..n-1; for ``train``.

    The same as ``model.loss`` of a masked model with masks of a suffix, and as that of an autoregressive one
    over the last n - r positions, times n / (n - r), in the reference of
    :func:`factorank.rerank.lists.sorted_reference`.
    """

    def __init__(self, model: PermutationModel) -> None:
        super().__init__()
        self.model, self.n = model, model.n

    def noise(
        self, batch: torch.Size, *, device: torch.device | str, generator: torch.Generator | None = None
    ) -> tuple[Tensor, ...]:
        """The random numbers of :meth:`loss`, as :meth:`PermutationModel.noise`."""
        drawn: tuple[Tensor, ...] | None = self.model.noise(batch, device=device, generator=generator)
        options: dict[str, Any] = {"device": device} | ({} if generator is None else {"generator": generator})
        if drawn is None:  # an autoregressive model: the strata alone
            drawn = masked.noise(batch, 0, device, generator)[:1]
        # Whether ratings are withheld must not depend on how many are observed, whose grid has an order.
        return (*drawn, torch.rand(batch, **options)) if reads_ratings(self.model) else drawn

    def loss(
        self,
        order: Tensor,
        context: Tensor | tuple[Tensor, Tensor],
        *,
        generator: torch.Generator | None = None,
        noise: tuple[Tensor, ...] | None = None,
    ) -> Tensor:
        """The loss in nats of each order ``(batch, n)`` of items ``(batch, n)``: ``(batch,)``.

        The context is the items, or a pair of them and their relevances ``(batch, n)``; a model that reads
        ratings reads those of the first r.
        """
        model = self.model
        items, relevance = context if isinstance(context, tuple) else (context, None)
        if noise is None:
            noise = self.noise(order.shape[:-1], device=order.device, generator=generator)
        length = (order >= 0).sum(-1)
        # The first value is always 0, observed or not: r = 0 is taken as r = 1.
        free = (noise[0] * (length - 1)).long().clamp(max=length - 2).clamp(min=0) + 1
        observed = length - free
        reference, order = sorted_reference(order, observed)
        place = torch.arange(model.n, device=order.device)
        ratings = None
        if relevance is not None:
            shown = (place < observed[..., None]) & (noise[-1] >= WITHHELD)[..., None]
            ratings = torch.where(shown, relevance.gather(-1, reference), torch.nan)
        listed = ItemList(items.gather(-1, reference), None, rank_count(observed), ratings)
        if not model.causal:
            strata = (free - 0.5) / length.clamp(min=1)
            return model.loss(order, listed, noise=(strata, noise[1]))
        code, present, fault = orders.encoded(model, order)
        encoded = encode_context(model.context, listed, model.n, model.width)
        fault = orders.disagreeing(encoded, present, fault)
        counted = (place >= observed[..., None]) & (place < length[..., None])
        losses = autoregressive.loss(model, code, present, encoded, counted) * length / free
        return orders.without(fault, losses)

    def config(self) -> dict[str, Any]:
        return self.model.config() | {"objective_of_training": "sorted-prefix"}

    def save_pretrained(self, folder: Any) -> None:
        self.model.save_pretrained(folder)


def rank_count(observed: Tensor) -> Tensor:
    """How many tokens hold a rank if so many items are observed: all of them, but one alone has none."""
    return torch.where(observed > 1, observed, 0)


def reads_ratings(model: PermutationModel) -> bool:
    """Whether the model's encoder reads the ratings of observed items."""
    return getattr(model.context, "ratings", None) is not None
