"""Numbers that training ratings give for each item; they stand beside its embedding."""

import torch
from torch import Tensor

from factorank.data.ratings import Ratings
from factorank.errors import FactorankError

KINDS = ("mean", "factors", "taste", "given")
SHRINK = 5.0
"""Ratings of average height that every mean is shrunk by."""
PAIR_SHRINK = 20.0
"""Users, without a preference, that every covariance of two items is shrunk by."""
MOST_ITEMS = 20_000
"""Beyond this many items their covariances do not fit the memory."""


def item_features(ratings: Ratings, kinds: tuple[str, ...], rank: int) -> tuple[Tensor | None, list[str]]:
    """Features ``(items, f)`` of the items of training ratings, and their names; None if there are none.

    :attr:`factorank.rerank.Setting.features` says what the kinds are; "factors" are ``rank`` many, and
    "taste" is no number of an item.
    """
    if unknown := [kind for kind in kinds if kind not in KINDS]:
        raise FactorankError(f"features are of {', '.join(KINDS)}, not {unknown[0]!r}")
    columns: list[Tensor] = []
    names: list[str] = []
    mean, rest = residuals(ratings)
    if "mean" in kinds:
        counts = torch.bincount(ratings.items, minlength=ratings.item_count)
        columns += [mean[:, None], counts.double().log1p()[:, None]]
        names += ["mean rating", "log count"]
    if "factors" in kinds and rank:
        rank = min(rank, ratings.item_count)
        columns.append(factors(rest, ratings, rank))
        names += [f"factor {i}" for i in range(rank)]
    if "given" in kinds:
        if ratings.features is None:
            raise FactorankError("these ratings came without features of the items; leave out 'given'")
        columns.append(ratings.features.double())
        names += list(ratings.feature_names)
    return (torch.cat(columns, 1).float() if columns else None), names


def residuals(ratings: Ratings) -> tuple[Tensor, Tensor]:
    """The shrunk mean of each item, float64 ``(items,)``, freed of who rated it, and the rest ``(rows,)``.

    Item and user effects in turns, as in Koren, "Factorization meets the neighborhood", 2008.
    """
    relevance = ratings.relevance(ratings.values).double()
    items, users = ratings.items.long(), ratings.users
    mean = relevance.mean()
    item_effect, user_effect = relevance.new_zeros(ratings.item_count), relevance.new_zeros(len(ratings))
    item_size = torch.bincount(items, minlength=len(item_effect)) + SHRINK
    user_size = torch.bincount(users, minlength=len(user_effect)) + SHRINK
    centred = relevance - mean
    for _ in range(10):
        sums = torch.zeros_like(item_effect).index_add_(0, items, centred - user_effect[users])
        item_effect = sums / item_size
        sums = torch.zeros_like(user_effect).index_add_(0, users, centred - item_effect[items])
        user_effect = sums / user_size
    return item_effect + mean, centred - item_effect[items] - user_effect[users]


def factors(rest: Tensor, ratings: Ratings, rank: int, users_at_once: int = 1024) -> Tensor:
    r"""Factors float64 ``(items, rank)`` with :math:`q_i \cdot q_j` near the covariance of two items.

    If the rest of a rating is :math:`p_u \cdot q_i` with :math:`p_u` of unit covariance, then the covariance
    over the users who rated both is :math:`q_i \cdot q_j`: its largest eigenvectors give the factors.
    """
    count = ratings.item_count
    if count > MOST_ITEMS:
        raise FactorankError(
            f"factors are found from the covariances of up to {MOST_ITEMS} items, not {count}; filter the"
            " items, or leave out 'factors' and 'taste'"
        )
    products = torch.zeros(count, count, device=rest.device)
    together = torch.zeros_like(products)
    starts = ratings.starts.tolist()
    for first in range(0, len(ratings), users_at_once):
        last = min(first + users_at_once, len(ratings))
        rows = slice(starts[first], starts[last])
        index = (ratings.users[rows] - first, ratings.items[rows].long())
        table = torch.zeros(last - first, count, device=rest.device)
        table[index] = rest[rows].float()
        products += table.T @ table
        table[index] = 1.0
        together += table.T @ table
    shrunk = products / (together + PAIR_SHRINK)
    values, vectors = torch.linalg.eigh(shrunk.double().cpu())
    scaled = vectors[:, -rank:].flip(-1) * values[-rank:].flip(0).clamp(min=0).sqrt()
    # The sign of an eigenvector is the library's choice; ours makes the largest entry positive.
    largest = scaled.gather(0, scaled.abs().argmax(0, keepdim=True))
    return (scaled * torch.where(largest < 0, -1.0, 1.0)).to(rest.device)
