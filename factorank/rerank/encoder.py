"""Items with numeric features: an embedding for each known item beside a linear map of its features."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from factorank.errors import ModelError
from factorank.models.context import ItemContext
from factorank.rerank.taste import Taste

POWERS = 4
"""Of the relative rank of a known item, and of its rating, from 0 on, that its token is told."""
Items = Tensor | tuple[Tensor | None, ...]


class FeatureContext(ItemContext):
    r"""The items to be ordered, by id, each with an embedding and a linear map of its features.

    .. math:: t_i = e_{id(i)} + W (f_{id(i)} - \mu) / \sigma

    Takes ids ``(*batch, n)`` of 0..items-1, -1 after the end of a shorter list. An item that training has not
    seen has the id ``items`` and no embedding; its features come with it, as a pair of ids and features
    ``(*batch, n, features)`` in the units of :meth:`set_features` (NaN where unknown, read as the mean).
    A third part, ``(*batch,)``, says how many of the first items are known to stand in the user's order, best
    first, to a context with ``ranks``. A fourth, ``(*batch, n)``, is what the user's ratings are, NaN where
    they are not known, to a context with ``ratings`` or ``taste``.

    Args:
        items: how many items have an embedding.
        width: of the tokens.
        features: how many numbers are known of each item; 0 for none.
        item_dropout: in training, the share of the items whose embedding is left out, so that their features
            must do. What is learnt of rare items by heart is less, and new items can be ranked.
        std: of the first embeddings. Small ones keep rare items near to what their features say.
        ranks: whether tokens of known items say their rank among them, as a cubic of :math:`(2i + 1)/r - 1`.
        ratings: whether tokens of items with a known rating say it, as a cubic of the rating in units of
            :meth:`set_rating_scale`.
        taste: rank and levels of a :class:`factorank.rerank.taste.Taste`, whose posterior given what is known
            tokens then say; (0, 0) for none.
        layout: "aligned", a token shared with the code, or "prefix", n tokens before those of the code, as
            in the paper; the token then also says its place in the list, of ``places`` many.

    >>> context = FeatureContext(items=100, width=8, features=2)
    >>> context.set_features(torch.randn(100, 2))
    >>> tokens, present = context(torch.tensor([[42, 7, -1]]))
    >>> tokens.shape, present.tolist()
    (torch.Size([1, 3, 8]), [[True, True, False]])
    >>> tokens, present = context((torch.tensor([[42, 100, -1]]), torch.randn(1, 3, 2)))  # 100: a new item
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
        self.linear = nn.Linear(features, width, bias=False) if features else None
        if self.linear is not None:
            nn.init.normal_(self.linear.weight, std=0.5 * features**-0.5)
        self.ranks = nn.Linear(POWERS, width, bias=False) if ranks else None
        if self.ranks is not None:
            nn.init.normal_(self.ranks.weight, std=0.5 * POWERS**-0.5)
        self.ratings = nn.Linear(POWERS, width, bias=False) if ratings else None
        if self.ratings is not None:
            nn.init.normal_(self.ratings.weight, std=0.5 * POWERS**-0.5)
            self.register_buffer("rating_scale", torch.tensor([0.0, 1.0]))
        self.taste = Taste(items, *taste) if taste[0] else None
        self.expected = nn.Linear(2, width, bias=False) if self.taste is not None else None
        if self.expected is not None:
            nn.init.zeros_(self.expected.weight)
        self.places = None
        if not self.aligned:
            self.places = nn.Parameter(torch.empty(places, width))
            nn.init.normal_(self.places, std=0.5)
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

    def set_features(self, features: Tensor, together: Sequence[slice] = ()) -> None:
        """Take the features ``(items, features)`` of the items; NaN where unknown.

        Each is brought to mean 0 and standard deviation 1; those of a slice in ``together`` are divided by
        the largest of their deviations instead, so that small ones stay small.
        """
        if tuple(features.shape) != (self.items, self.features):
            raise ModelError(
                f"this context has {self.items} items of {self.features} features, not"
                f" {tuple(features.shape)}"
            )
        known = ~features.isnan()
        count = known.sum(0).clamp(min=1)
        mean = torch.where(known, features, 0).sum(0) / count
        spread = (torch.where(known, features - mean, 0).square().sum(0) / count).sqrt()
        for columns in together:
            spread[columns] = spread[columns].max()
        self.mean.copy_(mean)
        self.scale.copy_(torch.where(spread > 0, spread, 1.0))
        self.table.copy_(self._scaled(features.to(self.table.device)))

    def forward(self, items: Items) -> tuple[Tensor, Tensor]:
        parts = items if isinstance(items, tuple) else (items,)
        ids, given, known_first, rated = (*parts, None, None, None)[:4]
        assert ids is not None
        new = torch.zeros_like(ids, dtype=torch.bool) if given is None else ids == self.items
        tokens, present = super().forward(torch.where(new, 0, ids))
        known = present & ~new
        if self.training and self.item_dropout:
            known = known & (torch.rand(ids.shape, device=ids.device) >= self.item_dropout)
        tokens = tokens * known[..., None]
        if self.linear is not None:
            listed = self.table[torch.where(present & ~new, ids, 0).long()]
            if given is not None:
                self._check(ids, given)
                listed = torch.where(new[..., None], self._scaled(given.to(listed)), listed)
            tokens = tokens + self.linear(listed) * present[..., None]
        elif given is not None:
            raise ModelError("this context has no features, so an item that training has not seen has none")
        if self.ranks is not None and known_first is not None:
            place, count = torch.arange(ids.shape[-1], device=ids.device), known_first[..., None]
            relative = (2 * place + 1) / count.clamp(min=1) - 1
            basis = torch.stack([relative**power for power in range(POWERS)], -1)
            tokens = tokens + self.ranks(basis.to(tokens.dtype)) * (place < count)[..., None]
        if self.ratings is not None and rated is not None:
            units = ((rated - self.rating_scale[0]) / self.rating_scale[1]).clamp(-3, 3)
            basis = torch.stack([units**power for power in range(POWERS)], -1)
            told = self.ratings(torch.where(rated.isnan()[..., None], 0, basis).to(tokens.dtype))
            tokens = tokens + told * present[..., None]
        if self.taste is not None and self.expected is not None:
            told = self.taste(ids, known_first, rated).to(self.expected.weight.dtype)
            tokens = tokens + self.expected(told) * present[..., None]
        if self.places is not None:
            if ids.shape[-1] > len(self.places):
                raise ModelError(f"the context has {len(self.places)} places, the list {ids.shape[-1]} items")
            tokens = tokens + self.places[: ids.shape[-1]] * present[..., None]
        return tokens, present

    def _scaled(self, features: Tensor) -> Tensor:
        scaled = (features - self.mean) / self.scale
        return torch.where(scaled.isnan(), 0.0, scaled)

    def _check(self, ids: Tensor, given: Tensor) -> None:
        if given.shape != (*ids.shape, self.features):
            raise ModelError(
                f"the features of a list are {(*ids.shape, self.features)} numbers, not {tuple(given.shape)}"
            )

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
