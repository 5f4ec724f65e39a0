"""What training ratings say of each item: numbers that stand beside its embedding."""

import torch
from torch import Tensor

from factorank.data.ratings import Ratings
from factorank.errors import FactorankError

PARTS = ("mean", "factors", "taste", "given")
SHRINK = 5.0
"""Ratings of average height that every mean is shrunk by."""
PAIR_SHRINK = 20.0
"""Users, without a preference, that every covariance of two items is shrunk by."""
MOST_ITEMS = 20_000
"""Beyond this many items their covariances do not fit the memory."""


def item_features(ratings: Ratings, parts: tuple[str, ...], rank: int) -> tuple[Tensor | None, list[str]]:
    """Features ``(items, f)`` of the items of training ratings, and their names; None for no parts.

    "mean": the shrunk mean relevance, and the logarithm of the number of ratings. "factors": ``rank``
    principal components of what is left of the ratings without the means of items and users. "given": the
    columns that the ratings came with. "taste" is no number of an item; see
    :mod:`factorank.rerank.taste_fit`.
    """
    for part in parts:
        if part not in PARTS:
            raise FactorankError(f"features are of {', '.join(PARTS)}, not {part!r}")
    columns: list[Tensor] = []
    names: list[str] = []
    relevance = ratings.relevance(ratings.values).double()
    items, users = ratings.items.long(), ratings.users
    mean, rest = residuals(relevance, items, users, ratings.item_count, len(ratings))
    if "mean" in parts:
        counts = torch.bincount(items, minlength=ratings.item_count)
        columns += [mean[:, None], counts.double().log1p()[:, None]]
        names += ["mean rating", "log count"]
    if "factors" in parts and rank:
        rank = min(rank, ratings.item_count)
        columns.append(factors(rest, ratings, rank))
        names += [f"factor {i}" for i in range(rank)]
    if "given" in parts:
        if ratings.features is None:
            raise FactorankError("these ratings came without features of the items; leave out 'given'")
        columns.append(ratings.features.double())
        names += list(ratings.feature_names)
    return (torch.cat(columns, 1).float() if columns else None), names


def residuals(
    relevance: Tensor, items: Tensor, users: Tensor, item_count: int, user_count: int
) -> tuple[Tensor, Tensor]:
    """The shrunk mean of each item, float64 ``(items,)``, freed of who rated it, and the rest ``(rows,)``.

    Item and user effects in turns, as in Koren, "Factorization meets the neighborhood", 2008.
    """
    left = relevance - relevance.mean()
    item_size = torch.bincount(items, minlength=item_count) + SHRINK
    user_size = torch.bincount(users, minlength=user_count) + SHRINK
    of_item, of_user = left.new_zeros(item_count), left.new_zeros(user_count)
    for _ in range(10):
        of_item = left.new_zeros(item_count).index_add_(0, items, left - of_user[users]) / item_size
        of_user = left.new_zeros(user_count).index_add_(0, users, left - of_item[items]) / user_size
    return of_item + relevance.mean(), left - of_item[items] - of_user[users]


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
    found = vectors[:, -rank:].flip(-1) * values[-rank:].flip(0).clamp(min=0).sqrt()
    # The sign of an eigenvector is the library's choice; ours makes the largest entry positive.
    largest = found.gather(0, found.abs().argmax(0, keepdim=True))
    return (found * torch.where(largest < 0, -1.0, 1.0)).to(rest.device)
