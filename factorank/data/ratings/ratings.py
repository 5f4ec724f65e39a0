"""The ratings of a set of users as compact arrays, grouped by user."""

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Self

import numpy as np
import torch
from torch import Tensor

from factorank.data.ratings import saving
from factorank.data.ratings.columns import Ids, compact, relevance_scale
from factorank.data.ratings.random_lists import UsersByActivity, random_places
from factorank.errors import RatingsError


@dataclass(frozen=True, eq=False, repr=False)
class Ratings:
    """Ratings of items by users: those of user u are rows ``starts[u]:starts[u + 1]`` of ``items, values``.

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
    """float32 ``(rows,)``: the rating as the file has it."""
    ids: Sequence[str] | Sequence[int]
    """The id of each item, as the file has it."""
    user_ids: Sequence[str] | Sequence[int]
    """The id of each user, as the file has it."""
    titles: Sequence[str] | None = None
    """The title of each item, if there is an item table."""
    features: Tensor | None = None
    """float32 ``(items, f)``: numbers about each item, if there is an item table."""
    feature_names: Sequence[str] = ()
    feature_scales: Sequence[tuple[float, float]] = ()
    """(centre, width) of each feature: a column of the item table is kept as (number - centre) / width."""
    shift: float = 0.0
    """Added to a rating, before ``scale``, to make it a relevance."""
    scale: float = 1.0
    """A relevance is ``(rating + shift) * scale``."""
    source: str = ""
    """The name of the data: "ml-1m", "jester", or the name of the file."""
    repeated: int = 0
    """The number of rows left out because the same user rates the same item later."""
    times: Tensor | None = None
    """int64 ``(rows,)``: when each rating was given, if the file says so; only their order matters."""
    implicit: bool = False
    """Whether the ratings are of choices (:mod:`factorank.data.ratings.choices`), 0 for items not chosen."""

    @classmethod
    def from_rows(
        cls,
        users: Ids,
        items: Ids,
        ratings: Sequence[float] | np.ndarray | None,
        times: Sequence[int] | np.ndarray | None = None,
        *,
        implicit: bool = False,
        missing: str = "refuse",
        where: str = "rows",
        first_row: int = 1,
        scale: tuple[float, float] | None = None,
        source: str = "table",
    ) -> "Ratings":
        """Ratings from columns of equal length, in any order; rules as for :func:`load_ratings`.

        Args:
            ratings: None for rows that are choices, which count one each.
            times: numbers or dates, the greater the later.
            implicit: rows are choices, and ``ratings`` counts, which are added up.
            where: the beginning of error messages, such as the name of the file.
            first_row: the number of the first row in error messages.
            scale: ``shift`` and ``scale`` of the relevance; by default those of :meth:`relevance`.
        """
        options = {"where": where, "missing": missing, "first_row": first_row, "implicit": implicit}
        arrays = compact(users, items, ratings, times, **options)  # type: ignore[arg-type]
        shift, factor = relevance_scale(arrays["values"]) if scale is None else scale
        return cls(**arrays, shift=shift, scale=factor, source=source, implicit=implicit)

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
        """The relevances, 0 or more, of ratings: ``(values + shift) * scale``.

        MovieLens: the rating itself, 0.5 to 5. Jester: (rating + 10) / 4, 0 to 5. Other tables: the rating.
        It is moved up if the lowest rating in the table is below 0, and scaled to 0..5 if the highest is
        above 5, since a gain of 2^relevance makes little sense on 0..100.
        """
        return (values + self.shift) * self.scale

    def to(self, device: str | torch.device) -> "Ratings":
        """The same ratings with their arrays on a device."""
        features = None if self.features is None else self.features.to(device)
        starts, items, values = (array.to(device) for array in (self.starts, self.items, self.values))
        times = None if self.times is None else self.times.to(device)
        return replace(self, starts=starts, items=items, values=values, features=features, times=times)

    def filter(
        self,
        *,
        min_item_ratings: int = 200,
        item_count: int | None = 1000,
        min_user_ratings: int = 50,
        seed: int = 0,
    ) -> "Ratings":
        """The ratings of fewer items by fewer users; items and users keep their order.

        The items are a random sample of ``item_count`` of those with at least ``min_item_ratings`` ratings
        (all of them if there are no more or it is None). The users are those who rated at least
        ``min_user_ratings`` of these items.
        """
        counts = torch.bincount(self.items, minlength=self.item_count).cpu()
        kept = (counts >= min_item_ratings).nonzero()[:, 0]
        if not len(kept):
            most = f"the most rated of {self.item_count} has {int(counts.max()) if len(counts) else 0}"
            fault = f"no item has {min_item_ratings} ratings: {most}; lower {{parameter}}"
            raise RatingsError(fault, parameter="min_item_ratings")
        if item_count is not None and item_count < len(kept):
            generator = torch.Generator().manual_seed(seed)
            kept = kept[torch.randperm(len(kept), generator=generator)[:item_count].sort().values]
        new = torch.full((self.item_count,), -1, dtype=torch.int32)
        new[kept] = torch.arange(len(kept), dtype=torch.int32)
        items = new.to(self.device)[self.items]
        rows = items >= 0
        lengths = torch.bincount(self.users[rows], minlength=len(self))
        chosen = lengths >= min_user_ratings
        if not bool(chosen.any()):
            most = f"the most active of {len(self)} users rated {int(lengths.max()) if len(lengths) else 0}"
            fault = f"no user rated {min_user_ratings} of the {len(kept)} items kept: {most}"
            raise RatingsError(f"{fault}; lower {{parameter}}", parameter="min_user_ratings")
        index = kept.tolist()
        every = replace(
            self,
            starts=torch.nn.functional.pad(lengths.cumsum(0), (1, 0)),
            items=items[rows],
            values=self.values[rows],
            times=None if self.times is None else self.times[rows],
            ids=[self.ids[i] for i in index],
            titles=None if self.titles is None else [self.titles[i] for i in index],
            features=None if self.features is None else self.features[kept.to(self.device)],
        )
        return every.of_users(chosen.nonzero()[:, 0])

    def with_items(self, ids: Sequence[str] | Sequence[int]) -> "Ratings":
        """The ratings of these items, by id, which take their numbers from the list; the others are left out.

        Titles and features go.
        """
        index = {name: number for number, name in enumerate(ids)}
        new = torch.tensor([index.get(name, -1) for name in self.ids], dtype=torch.int32, device=self.device)
        items = new[self.items.long()]
        rows = (items >= 0).nonzero()[:, 0]
        users = self.users[rows]
        rows = rows[(users * max(len(ids), 1) + items[rows]).argsort()]
        lengths = torch.bincount(users, minlength=len(self))
        return Ratings(
            torch.nn.functional.pad(lengths.cumsum(0), (1, 0)),
            items[rows],
            self.values[rows],
            ids,
            self.user_ids,
            shift=self.shift,
            scale=self.scale,
            source=self.source,
            times=None if self.times is None else self.times[rows],
            implicit=self.implicit,
        )

    def of_users(self, users: Tensor) -> "Ratings":
        """The ratings of some users, by index ``(count,)``, in that order; the items stay."""
        users = users.to(self.device)
        lengths = self.lengths[users]
        starts = torch.nn.functional.pad(lengths.cumsum(0), (1, 0))
        shift = torch.repeat_interleave(self.starts[users] - starts[:-1], lengths)
        rows = torch.arange(int(starts[-1]), device=self.device) + shift
        user_ids = [self.user_ids[u] for u in users.tolist()]
        times = None if self.times is None else self.times[rows]
        items, values = self.items[rows], self.values[rows]
        return replace(self, starts=starts, items=items, values=values, times=times, user_ids=user_ids)

    def split(
        self, *, validation: float = 0.1, test: float = 0.1, seed: int = 0
    ) -> tuple["Ratings", "Ratings", "Ratings"]:
        """Train, validation and test ratings, of different users; shares are rounded to whole users."""
        counts = [round(share * len(self)) for share in (validation, test)]
        if not (validation >= 0 and test >= 0 and sum(counts) < len(self)):
            shares = f"validation={validation} and test={test}"
            raise RatingsError(f"shares of {shares} leave none of {len(self)} users to train on")
        users = torch.randperm(len(self), generator=torch.Generator().manual_seed(seed))
        parts = users.split([len(self) - sum(counts), *counts])
        return tuple(self.of_users(part.sort().values) for part in parts)  # type: ignore[return-value]

    def split_by_time(self, share: float = 0.1) -> tuple["Ratings", "Ratings"]:
        """The earlier ratings and the latest ``share`` of them, of the same users and items.

        Users may have none on one side.
        """
        if self.times is None:
            raise RatingsError("these ratings have no times, so that none are earlier")
        if not 0 < share < 1:
            raise RatingsError(f"{{parameter}} is between 0 and 1, not {share}", parameter="share")
        cut = self.times.sort().values[int((1 - share) * len(self.times))]
        return self.of_rows(self.times < cut), self.of_rows(self.times >= cut)

    def users_with(self, n: int) -> Tensor:
        """The users who have at least n ratings, int64 ``(count,)``."""
        return (self.lengths >= n).nonzero()[:, 0]

    def draw(
        self, n: int, batch: int, generator: torch.Generator | None = None, *, shortest: int | None = None
    ) -> tuple[Tensor, Tensor]:
        """Random lists: items int64 ``(batch, n)`` and their relevance float32 ``(batch, n)``.

        The user of a list is drawn uniformly from those with at least n ratings. Its items are n of the
        user's, without replacement and in random order: the reference of the paper's insertion code.

        With ``shortest`` the length of each list is uniform in shortest..n (at most the number of ratings of
        the most active user), its user is uniform among those with that many ratings, and both tensors are -1
        after its end. Everything happens on the device and nothing synchronises: a CUDA graph can capture
        ``draw`` after one call outside of the graph.
        """
        least = n if shortest is None else shortest
        if not 0 <= least <= n:
            raise RatingsError(f"lists are of {least}..{n} items: the shortest is at least 0 and at most n")
        longest = self._by_activity.longest
        if least > longest:
            raise RatingsError(f"no user has {least} ratings; the most active of {len(self)} has {longest}")
        users, length = self._by_activity.draw(least, min(n, longest), batch, generator)
        rows = self._rows(users, n, generator)
        items, relevance = self.items[rows].to(torch.int64), self.relevance(self.values[rows])
        if least < n:
            past = torch.arange(n, device=self.device) >= length[:, None]
            items, relevance = items.masked_fill(past, -1), relevance.masked_fill(past, -1)
        return items, relevance

    def lists(
        self, n: int, users: Tensor | Sequence[int], generator: torch.Generator | None = None
    ) -> tuple[Tensor, Tensor]:
        """A random list for each user, by index ``(batch,)``, drawn as in :meth:`draw`."""
        rows = self.list_rows(n, users, generator)
        return self.items[rows].to(torch.int64), self.relevance(self.values[rows])

    def list_rows(
        self, n: int, users: Tensor | Sequence[int], generator: torch.Generator | None = None
    ) -> Tensor:
        """The rows ``(batch, n)`` of :meth:`lists`."""
        users = torch.as_tensor(users, device=self.device, dtype=torch.int64)
        outside = (users < 0) | (users >= len(self))
        if bool(outside.any()):
            raise RatingsError(f"there is no user {int(users[outside][0])}; there are {len(self)}, from 0 on")
        few = self.lengths[users] < n
        if bool(few.any()):
            user = int(users[few][0])
            has = f"user {self.user_ids[user]!r} has {int(self.lengths[user])} ratings"
            raise RatingsError(f"{has}, fewer than the n = {n}; users_with(n) lists those who have enough")
        return self._rows(users, n, generator)

    def save(self, file: str | os.PathLike[str]) -> None:
        """Write one safetensors file, whole or not at all; :meth:`load` reads it without polars."""
        saving.save(self, file)

    @classmethod
    def load(cls, file: str | os.PathLike[str]) -> Self:
        """The ratings that :meth:`save` wrote, on the CPU."""
        return cls(**saving.load(file))

    def of_rows(self, kept: Tensor) -> "Ratings":
        """The ratings of some rows, bool ``(rows,)``; users and items stay."""
        lengths = torch.bincount(self.users[kept], minlength=len(self))
        names = ("items", "values") if self.times is None else ("items", "values", "times")
        rows = {name: getattr(self, name)[kept] for name in names}
        return replace(self, starts=torch.nn.functional.pad(lengths.cumsum(0), (1, 0)), **rows)

    def _rows(self, users: Tensor, n: int, generator: torch.Generator | None) -> Tensor:
        places = random_places(self.lengths[users], n, generator)
        # Places past the end of a short list mean nothing and may lie past the last row.
        return (self.starts[users][:, None] + places).clamp(max=max(len(self.items) - 1, 0))

    @cached_property
    def _by_activity(self) -> UsersByActivity:
        return UsersByActivity(self.lengths)
