"""Choices in place of ratings: clicks, plays or purchases, whose counts become ratings, and items not chosen.

The rating of an item that a user has chosen c times is log2(1 + c), at most 5: a relevance whose gain
:math:`2^{rel} - 1` is the count. An item that was shown and not chosen has the rating 0. A table that says
nothing of these gets some for each user, drawn at random: the law of orders that is learnt from it has items
that were not chosen below those that were.
"""

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from factorank.errors import RatingsError

if TYPE_CHECKING:
    from factorank.data.ratings.ratings import Ratings

MOST = 5.0
"""The highest rating, of 31 choices or more."""


def count_ratings(counts: Tensor) -> Tensor:
    """The ratings of items that were chosen so many times.

    >>> count_ratings(torch.tensor([0.0, 1.0, 3.0, 1000.0]))
    tensor([0., 1., 2., 5.])
    """
    return (1 + counts).log2().clamp(max=MOST)


def summed_counts(keys: np.ndarray, counts: np.ndarray, order: np.ndarray, where: str) -> np.ndarray:
    """The sum of the counts of each key, ascending; ``order`` sorts the keys."""
    if len(counts) and counts.min() < 0:
        raise RatingsError(f"{where}: counts are 0 or more, not {counts.min():g}")
    keys = keys[order]
    starts = np.flatnonzero(np.append(True, keys[1:] != keys[:-1]))
    return np.add.reduceat(counts[order].astype(np.float64), starts).astype(np.float32)


def chosen(ratings: "Ratings") -> "Ratings":
    """The rows of items that were chosen; explicit ratings as they are."""
    return ratings.of_rows(ratings.values > 0) if ratings.implicit else ratings


def with_unchosen(ratings: "Ratings", share: float = 1.0, seed: int = 0) -> "Ratings":
    """Choices with items that were not chosen, ``share`` times as many for each user who has none.

    They are drawn without replacement from the items that the user has not chosen, with probabilities in
    proportion to the square root of how often an item was chosen, and take the times of choices of the same
    user. Explicit ratings stay as they are.
    """
    without = torch.zeros(len(ratings), dtype=torch.bool)
    if ratings.implicit:
        shown = torch.bincount(ratings.users[ratings.values == 0], minlength=len(ratings)).cpu()
        without = (shown == 0) & (ratings.lengths.cpu() > 0)
    if not bool(without.any()):
        return ratings
    device, count = ratings.device, ratings.item_count
    ratings = ratings.to("cpu")
    generator = torch.Generator().manual_seed(seed)
    popular = torch.bincount(ratings.items, minlength=count).double().sqrt()
    items, values, times, lengths = [], [], [], []
    for users in torch.arange(len(ratings)).split(4096):
        part = ratings.of_users(users)
        # The largest of u^(1/w) are a sample without replacement with weights w (Efraimidis and Spirakis).
        drawn = torch.rand((len(part), count), generator=generator, dtype=torch.float64).log() / popular
        drawn[part.users, part.items.long()] = -torch.inf
        wanted = (part.lengths * share).round().long().clamp(min=1)
        wanted = torch.minimum(wanted, count - part.lengths) * without[users]
        best = drawn.topk(int(wanted.max()), dim=-1).indices if len(part) else drawn.long()
        kept = torch.arange(best.shape[1]) < wanted[:, None]
        user, place = kept.nonzero().T
        owners = torch.cat([part.users, user])
        every = torch.cat([part.items.long(), best[kept]])
        order = (owners * count + every).argsort()
        items.append(every[order].int())
        values.append(torch.cat([part.values, torch.zeros(len(user))])[order])
        if part.times is not None:
            of_choice = part.starts[user] + place % part.lengths[user].clamp(min=1)
            times.append(torch.cat([part.times, part.times[of_choice]])[order])
        lengths.append(part.lengths + wanted)
    starts = torch.nn.functional.pad(torch.cat(lengths).cumsum(0), (1, 0))
    when = torch.cat(times) if times else None
    return replace(ratings, starts=starts, items=torch.cat(items), values=torch.cat(values), times=when).to(
        device
    )
