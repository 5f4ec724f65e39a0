"""The ratings of a set of users as compact arrays, grouped by user."""

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Self

import torch
from torch import Tensor

from factorank.data.ratings.lists import random_places
from factorank.errors import RatingsError


@dataclass(frozen=True, eq=False, repr=False)
class Ratings:
    """Who rated what how: the ratings of user u are rows ``starts[u]:starts[u + 1]`` of ``items, values``.

    >>> ratings = Ratings.from_rows(["ann", "ann", "bob"], ["x", "y", "y"], [5.0, 3.0, 4.0])
    >>> ratings
    Ratings(users=2, items=2, ratings=3)
    >>> ratings.starts, ratings.items, ratings.values
    (tensor([0, 2, 3]), tensor([0, 1, 1], dtype=torch.int32), tensor([5., 3., 4.]))
    >>> items, relevance = ratings.draw(2, 1, torch.Generator().manual_seed(0))
    >>> items.shape, relevance.shape  # ann's two ratings, in random order
    (torch.Size([1, 2]), torch.Size([1, 2]))
    """

    starts: Tensor
    """int64 ``(users + 1,)``"""
    items: Tensor
    """int32 ``(rows,)``: index of the item, 0..item_count-1; ascending and different within a user."""
    values: Tensor
    """float32 ``(rows,)``: the rating as given."""
    ids: Sequence[str] | Sequence[int]
    """The id of each item, as the file has it."""
    user_ids: Sequence[str] | Sequence[int]
    """The id of each user, as the file has it."""
    titles: Sequence[str] | None = None
    """The title of each item, if known."""
    features: Tensor | None = None
    """float32 ``(items, f)``: numbers about each item, if known."""
    feature_names: Sequence[str] = ()
    feature_scales: Sequence[tuple[float, float]] = ()
    """Of each feature (centre, width): a column of the item table is kept as (number - centre) / width."""
    shift: float = 0.0
    """Added to a rating, before ``scale``, to make it a relevance."""
    scale: float = 1.0
    """A relevance is ``(rating + shift) * scale``."""
    source: str = ""
    """What the data are called: "ml-1m", "jester", or the name of the file."""
    repeated: int = 0
    """How many rows of the file were left out because the user rates the item again in a later one."""

    @classmethod
    def from_rows(
        cls,
        users: Sequence[str] | Sequence[int],
        items: Sequence[str] | Sequence[int],
        ratings: Sequence[float],
        *,
        missing: str = "refuse",
    ) -> "Ratings":
        """From three columns of equal length, in any order; rules as for :func:`load_ratings`."""
        from factorank.data.ratings.build import from_columns

        return from_columns(users, items, ratings, where="rows", missing=missing)

    def __len__(self) -> int:
        """The number of users."""
        return len(self.starts) - 1

    def __repr__(self) -> str:
        return f"Ratings(users={len(self)}, items={self.item_count}, ratings={len(self.items)})"

    @property
    def item_count(self) -> int:
        return len(self.ids)

    @property
    def device(self) -> torch.device:
        return self.items.device

    @cached_property
    def lengths(self) -> Tensor:
        """The number of ratings of each user, int64 ``(users,)``."""
        return self.starts.diff()

    @cached_property
    def users(self) -> Tensor:
        """The user of each row, int64 ``(rows,)``."""
        return torch.repeat_interleave(torch.arange(len(self), device=self.device), self.lengths)

    def relevance(self, values: Tensor) -> Tensor:
        """Relevances, 0 or more, of ratings: ``(values + shift) * scale``.

        MovieLens: the rating itself, 0.5 to 5. Jester: (rating + 10) / 4, 0 to 5. Other tables: the rating,
        moved up by the lowest rating in the table if that is below 0, and scaled to 0..5 if it goes beyond 5,
        since a gain of 2^relevance makes little sense on 0..100.
        """
        return (values + self.shift) * self.scale

    def to(self, device: str | torch.device) -> "Ratings":
        """The same ratings with their arrays on a device."""
        features = None if self.features is None else self.features.to(device)
        return replace(
            self,
            starts=self.starts.to(device),
            items=self.items.to(device),
            values=self.values.to(device),
            features=features,
        )

    def filter(
        self,
        *,
        min_item_ratings: int = 200,
        item_count: int | None = 1000,
        min_user_ratings: int = 50,
        seed: int = 0,
    ) -> "Ratings":
        """Fewer items and users: of the items with at least ``min_item_ratings`` ratings a random sample of
        ``item_count`` (all, if there are no more or it is None), then the users who rated at least
        ``min_user_ratings`` of those. Items and users keep their order.
        """
        counts = torch.bincount(self.items, minlength=self.item_count).cpu()
        kept = (counts >= min_item_ratings).nonzero()[:, 0]
        if not len(kept):
            raise RatingsError(
                f"no item has {min_item_ratings} ratings: the most rated of {self.item_count} has"
                f" {int(counts.max()) if len(counts) else 0}"
            )
        if item_count is not None and item_count < len(kept):
            generator = torch.Generator().manual_seed(seed)
            kept = kept[torch.randperm(len(kept), generator=generator)[:item_count].sort().values]
        new = torch.full((self.item_count,), -1, dtype=torch.int32)
        new[kept] = torch.arange(len(kept), dtype=torch.int32)
        found = new.to(self.device)[self.items]
        rows = found >= 0
        lengths = torch.bincount(self.users[rows], minlength=len(self))
        chosen = lengths >= min_user_ratings
        if not bool(chosen.any()):
            raise RatingsError(
                f"no user rated {min_user_ratings} of the {len(kept)} items kept: the most active of"
                f" {len(self)} users rated {int(lengths.max()) if len(lengths) else 0}"
            )
        rows &= chosen[self.users]
        index = kept.tolist()
        return replace(
            self,
            starts=torch.nn.functional.pad(lengths[chosen].cumsum(0), (1, 0)),
            items=found[rows],
            values=self.values[rows],
            ids=[self.ids[i] for i in index],
            user_ids=[self.user_ids[u] for u in chosen.nonzero()[:, 0].tolist()],
            titles=None if self.titles is None else [self.titles[i] for i in index],
            features=None if self.features is None else self.features[kept.to(self.device)],
        )

    def of_users(self, users: Tensor) -> "Ratings":
        """The ratings of some users, by index ``(count,)``, in that order; the items stay."""
        users = users.to(self.device)
        lengths = self.lengths[users]
        starts = torch.nn.functional.pad(lengths.cumsum(0), (1, 0))
        shift = torch.repeat_interleave(self.starts[users] - starts[:-1], lengths)
        rows = torch.arange(int(starts[-1]), device=self.device) + shift
        return replace(
            self,
            starts=starts,
            items=self.items[rows],
            values=self.values[rows],
            user_ids=[self.user_ids[u] for u in users.tolist()],
        )

    def split(
        self, *, validation: float = 0.1, test: float = 0.1, seed: int = 0
    ) -> tuple["Ratings", "Ratings", "Ratings"]:
        """Train, validation and test ratings, of different users; shares are rounded to whole users."""
        counts = [round(share * len(self)) for share in (validation, test)]
        if not (validation >= 0 and test >= 0 and sum(counts) < len(self)):
            raise RatingsError(
                f"shares of validation={validation} and test={test} leave none of {len(self)} users to train"
                " on"
            )
        users = torch.randperm(len(self), generator=torch.Generator().manual_seed(seed))
        train, valid, tested = users.split([len(self) - sum(counts), *counts])
        return tuple(self.of_users(part.sort().values) for part in (train, valid, tested))  # type: ignore[return-value]

    def users_with(self, n: int) -> Tensor:
        """The users who have at least n ratings, int64 ``(count,)``."""
        return (self.lengths >= n).nonzero()[:, 0]

    def draw(
        self, n: int, batch: int, generator: torch.Generator | None = None, *, shortest: int | None = None
    ) -> tuple[Tensor, Tensor]:
        """Lists to learn from: items int64 ``(batch, n)`` and their relevance float32 ``(batch, n)``.

        For each list a user is drawn uniformly among those with at least n ratings, and n of their ratings
        without replacement, in random order: the reference of the paper's insertion code. With ``shortest``
        the length of each list is uniform in shortest..n (or to what the most active user has, if less), its
        user uniform among those with that many ratings, and both tensors are -1 after its end. All on the
        device, without a synchronisation: a CUDA graph can capture it, if ``draw`` was called once before.
        """
        least = n if shortest is None else shortest
        if not 0 <= least <= n:
            raise RatingsError(f"lists are of {least}..{n} items: the shortest is at least 0 and at most n")
        if least > self._longest:
            raise RatingsError(
                f"no user has {least} ratings; the most active of {len(self)} has {self._longest}"
            )
        active, more = self._active, min(n, self._longest) - least
        length = torch.full((batch,), least, device=self.device)
        if more:
            uniform = torch.rand(batch, dtype=torch.float64, device=self.device, generator=generator)
            length = length + (uniform * (more + 1)).to(torch.int64).clamp(max=more)
        uniform = torch.rand(batch, dtype=torch.float64, device=self.device, generator=generator)
        among = self._at_least[length]
        users = active[(uniform * among).to(torch.int64).clamp(max=among - 1)]
        items, relevance = self._lists(users, n, generator)
        if least < n:
            past = torch.arange(n, device=self.device) >= length[:, None]
            items, relevance = items.masked_fill(past, -1), relevance.masked_fill(past, -1)
        return items, relevance

    def lists(
        self, n: int, users: Tensor | Sequence[int], generator: torch.Generator | None = None
    ) -> tuple[Tensor, Tensor]:
        """A list for each of the given users, by index ``(batch,)``, drawn as in :meth:`draw`."""
        users = torch.as_tensor(users, device=self.device, dtype=torch.int64)
        unknown = (users < 0) | (users >= len(self))
        if bool(unknown.any()):
            raise RatingsError(f"there is no user {int(users[unknown][0])}; there are {len(self)}, from 0 on")
        few = self.lengths[users] < n
        if bool(few.any()):
            user = int(users[few][0])
            raise RatingsError(
                f"user {self.user_ids[user]!r} has {int(self.lengths[user])} ratings, fewer than the n = {n}"
                " of the list; users_with(n) lists those who have enough"
            )
        return self._lists(users, n, generator)

    def save(self, file: str | os.PathLike[str]) -> None:
        """Write one safetensors file, whole or not at all; :meth:`load` reads it without polars."""
        from factorank.data.ratings.saving import save

        save(self, file)

    @classmethod
    def load(cls, file: str | os.PathLike[str]) -> Self:
        """The ratings that :meth:`save` wrote, on the CPU."""
        from factorank.data.ratings.saving import load

        return cls(**load(file))

    def _lists(self, users: Tensor, n: int, generator: torch.Generator | None) -> tuple[Tensor, Tensor]:
        places = random_places(self.lengths[users], n, generator)
        # Past the end of a short list places mean nothing and may lie past the last row.
        rows = (self.starts[users][:, None] + places).clamp(max=max(len(self.items) - 1, 0))
        return self.items[rows].to(torch.int64), self.relevance(self.values[rows])

    @cached_property
    def _active(self) -> Tensor:
        """All users, the most active first: those with at least m ratings stand in front."""
        return self.lengths.argsort(descending=True, stable=True)

    @cached_property
    def _longest(self) -> int:
        return int(self.lengths.max()) if len(self) else 0

    @cached_property
    def _at_least(self) -> Tensor:
        """How many users have at least m ratings, for m = 0.._longest."""
        counts = torch.bincount(self.lengths, minlength=self._longest + 1)
        return counts.flip(0).cumsum(0).flip(0)
