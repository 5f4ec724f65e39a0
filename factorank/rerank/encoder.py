"""The encoder of a ranker: a token for each item of a list, from its embedding, its features and what is
observed of it."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from factorank.errors import ModelError
from factorank.models.context import ItemContext
from factorank.rerank.taste import Taste

POWERS = 4
"""How many powers, from 0 on, of a relative rank and of a rating a token reads."""


class ItemList(NamedTuple):
    """The context of a ranker's model: lists of items in the reference of their code, observed ones first."""

    ids: Tensor
    """``(*batch, n)``, of 0..items-1, -1 after the end of a shorter list; ``items`` is a new item."""
    features: Tensor | None = None
    """``(*batch, n, features)``, read for new items only; NaN where unknown, read as the mean."""
    observed_count: Tensor | None = None
    """``(*batch,)``: so many of the first items stand in the user's order, best first."""
    ratings: Tensor | None = None
    """``(*batch, n)``: the relevance of observed items, NaN for the others."""


class FeatureContext(ItemContext):
    r"""The items to be ordered, by id, each with an embedding and a linear map of its features.

    .. math:: t_i = e_{id(i)} + W (f_{id(i)} - \mu) / \sigma

    Takes ids ``(*batch, n)`` or an :class:`ItemList`. A new item, which training did not have, has no
    embedding; its features come with it, in the units of :meth:`set_features`. A context with ``ranks`` reads
    the number of observed items, one with ``ratings`` their ratings, one with ``taste`` both.

    Args:
        items: how many items have an embedding.
        width: of the tokens.
        features: how many numbers describe each item; 0 for none.
        item_dropout: in training, the share of the items whose embedding is left out, so that their features
            must do. The network then learns less about rare items by heart, and can rank new items.
        std: of the first embeddings. Small ones keep rare items near to what their features predict.
        ranks: whether tokens of observed items hold their rank, as a cubic of :math:`(2i + 1)/r - 1`.
        ratings: whether tokens of observed items hold their rating, as a cubic in units of
            :meth:`set_rating_scale`.
        taste: rank and levels of a :class:`factorank.rerank.taste.Taste`, whose posterior given the observed
            items the tokens then hold; (0, 0) for none.
        layout: "aligned", a token shared with the code, or "prefix", n tokens before those of the code, as
            in the paper; the token then also holds its place in the list, of ``places`` many.

    >>> context = FeatureContext(items=100, width=8, features=2)
    >>> context.set_features(torch.randn(100, 2))
    >>> tokens, present = context(torch.tensor([[42, 7, -1]]))
    >>> tokens.shape, present.tolist()
    (torch.Size([1, 3, 8]), [[True, True, False]])
    >>> tokens, present = context(ItemList(torch.tensor([[42, 100, -1]]), torch.randn(1, 3, 2)))  # 100 is new
    """

    def __init__(
        self,
        items: int,
        width: int,
        features: int = 0,
        item_dropout: float = 0.0,
        std: float = 0.5,
        ranks: bool = False,
        layout: str = "aligned",
        places: int = 0,
        ratings: bool = False,
        taste: Sequence[int] = (0, 0),
    ) -> None:
        super().__init__(items, width)
        if layout not in ("aligned", "prefix"):
            raise ModelError(f"the layout is 'aligned' or 'prefix', not {layout!r}")
        if not 0 <= item_dropout < 1:
            raise ModelError(f"item_dropout is a share from 0 to below 1, not {item_dropout!r}")
        self.features, self.item_dropout, self.std, self.layout = features, item_dropout, std, layout
        self.aligned, self.exchangeable = layout == "aligned", not ranks
        nn.init.normal_(self.embedding.weight, std=std)
        self.linear = _linear(features, width) if features else None
        self.ranks = _linear(POWERS, width) if ranks else None
        self.ratings = _linear(POWERS, width) if ratings else None
        if ratings:
            self.register_buffer("rating_scale", torch.tensor([0.0, 1.0]))
        self.taste = Taste(items, *taste) if taste[0] else None
        self.expected = nn.Linear(2, width, bias=False) if self.taste is not None else None
        if self.expected is not None:
            nn.init.zeros_(self.expected.weight)
        shape = (places, width)
        self.places = None if self.aligned else nn.Parameter(nn.init.normal_(torch.empty(shape), std=0.5))
        self.register_buffer("table", torch.zeros(items, features))
        self.register_buffer("mean", torch.zeros(features))
        self.register_buffer("scale", torch.ones(features))

    table: Tensor
    mean: Tensor
    scale: Tensor
    rating_scale: Tensor

    def set_rating_scale(self, ratings: Tensor) -> None:
        """Take the mean and the standard deviation of these ratings as the units of ratings."""
        spread = ratings.std(correction=0)
        self.rating_scale.copy_(torch.stack([ratings.mean(), spread if spread > 0 else spread + 1]))

    def set_features(
        self,
        features: Tensor,
        together: Sequence[bool] = (),
        units: tuple[Tensor, Tensor] | None = None,
    ) -> None:
        """Take the features ``(items, features)`` of the items; NaN where unknown.

        Each is brought to mean 0 and standard deviation 1; those that ``together (features,)`` marks are
        divided by the largest of their deviations instead, so that small ones stay small. ``units`` are means
        and deviations to take instead, ``(features,)`` each.
        """
        if (shape := tuple(features.shape)) != (self.items, self.features):
            raise ModelError(f"this context has {self.items} items of {self.features} features, not {shape}")
        present = ~features.isnan()
        count = present.sum(0).clamp(min=1)
        mean = torch.where(present, features, 0).sum(0) / count
        spread = (torch.where(present, features - mean, 0).square().sum(0) / count).sqrt()
        if any(together):
            spread[torch.tensor(together)] = spread[torch.tensor(together)].max()
        mean, scale = (mean, torch.where(spread > 0, spread, 1.0)) if units is None else units
        self.mean.copy_(mean)
        self.scale.copy_(scale)
        self.table.copy_(self._scaled(features.to(self.table.device)))

    def forward(self, items: Tensor | tuple[Any, ...]) -> tuple[Tensor, Tensor]:
        listed = ItemList(*items) if isinstance(items, tuple) else ItemList(items)
        ids, features, observed_count, ratings = listed
        new = torch.zeros_like(ids, dtype=torch.bool) if features is None else ids == self.items
        tokens, present = super().forward(torch.where(new, 0, ids))
        embedded = present & ~new
        if self.training and self.item_dropout:
            embedded = embedded & (torch.rand(ids.shape, device=ids.device) >= self.item_dropout)
        tokens = tokens * embedded[..., None]
        if self.linear is not None:
            tokens = tokens + self.linear(self._features_of(ids, new, features)) * present[..., None]
        elif features is not None:
            raise ModelError("this context has no features, so a new item has none")
        if self.ranks is not None and observed_count is not None:
            place, count = torch.arange(ids.shape[-1], device=ids.device), observed_count[..., None]
            relative = (2 * place + 1) / count.clamp(min=1) - 1
            ranks = self.ranks(_powers(relative).to(tokens.dtype))
            tokens = tokens + ranks * (place < count)[..., None]
        if self.ratings is not None and ratings is not None:
            units = ((ratings - self.rating_scale[0]) / self.rating_scale[1]).clamp(-3, 3)
            basis = torch.where(ratings.isnan()[..., None], 0, _powers(units))
            tokens = tokens + self.ratings(basis.to(tokens.dtype)) * present[..., None]
        if self.taste is not None and self.expected is not None:
            posterior = self.taste(ids, observed_count, ratings).to(self.expected.weight.dtype)
            tokens = tokens + self.expected(posterior) * present[..., None]
        if self.places is not None:
            if ids.shape[-1] > len(self.places):
                raise ModelError(f"the context has {len(self.places)} places, the list {ids.shape[-1]} items")
            tokens = tokens + self.places[: ids.shape[-1]] * present[..., None]
        return tokens, present

    def _features_of(self, ids: Tensor, new: Tensor, features: Tensor | None) -> Tensor:
        """The scaled features ``(*batch, n, features)``: those of the table, and those of new items."""
        listed = self.table[torch.where((ids >= 0) & ~new, ids, 0).long()]
        if features is None:
            return listed
        if (shape := tuple(features.shape)) != (wanted := (*ids.shape, self.features)):
            raise ModelError(f"the features of a list are {wanted} numbers, not {shape}")
        return torch.where(new[..., None], self._scaled(features.to(listed)), listed)

    def _scaled(self, features: Tensor) -> Tensor:
        scaled = (features - self.mean) / self.scale
        return torch.where(scaled.isnan(), 0.0, scaled)

    def config(self) -> dict[str, Any]:
        return {
            **super().config(),
            "features": self.features,
            "item_dropout": self.item_dropout,
            "std": self.std,
            "ranks": self.ranks is not None,
            "layout": self.layout,
            "places": 0 if self.places is None else len(self.places),
            "ratings": self.ratings is not None,
            "taste": (0, 0) if self.taste is None else (self.taste.rank, len(self.taste.levels)),
        }


def _linear(numbers: int, width: int) -> nn.Linear:
    linear = nn.Linear(numbers, width, bias=False)
    nn.init.normal_(linear.weight, std=0.5 * numbers**-0.5)
    return linear


def _powers(values: Tensor) -> Tensor:
    """``(…, POWERS)``"""
    return torch.stack([values**power for power in range(POWERS)], -1)
