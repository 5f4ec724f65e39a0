"""Numbers that training ratings give for each item; they stand beside its embedding."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from factorank.data.ratings import Ratings
from factorank.errors import FactorankError

KINDS = ("mean", "factors", "taste", "given")
SHRINK = 5.0
"""Ratings of average height that every mean is shrunk by."""
PAIR_SHRINK = 20.0
"""Users, without a preference, that every covariance of two items is shrunk by."""
MOST_ITEMS = 6_000
"""So many items, the most rated ones, have their covariances taken; memory and time grow with their square
and cube. The factors of the others are regressions on the points of the users."""
POINT_SHRINK = 10.0
"""Ratings, at the expected value, that every regression of an item on the users' points is shrunk by."""


class ItemFeatures(NamedTuple):
    """Numbers about the items."""

    table: Tensor | None
    """``(items, f)``, None if there are none."""
    names: list[str]
    scales: list[tuple[float, float]]
    """Centre and width of each: the table holds (number - centre) / width for a number in the units of the
    ratings' and the items' tables."""


def item_features(ratings: Ratings, kinds: tuple[str, ...], rank: int) -> ItemFeatures:
    """The features of the items of training ratings.

    :attr:`factorank.rerank.Setting.features` says what the kinds are; "factors" are ``rank`` many, and
    "taste" is no number of an item.
    """
    if unknown := [kind for kind in kinds if kind not in KINDS]:
        raise FactorankError(f"features are of {', '.join(KINDS)}, not {unknown[0]!r}")
    columns: list[Tensor] = []
    names: list[str] = []
    scales: list[tuple[float, float]] = []
    mean, rest = residuals(ratings)
    if "mean" in kinds:
        counts = torch.bincount(ratings.items, minlength=ratings.item_count)
        columns += [mean[:, None], counts.double().log1p()[:, None]]
        names += ["mean rating", "log count"]
        scales += [(-float(ratings.shift), 1 / float(ratings.scale)), (0.0, 1.0)]
    if "factors" in kinds and rank:
        rank = min(rank, ratings.item_count)
        columns.append(factors(rest, ratings, rank))
        names += [f"factor {i}" for i in range(rank)]
        scales += [(0.0, 1.0)] * rank
    if "given" in kinds:
        if ratings.features is None:
            raise FactorankError("these ratings came without features of the items; leave out 'given'")
        columns.append(ratings.features.double())
        names += list(ratings.feature_names)
        units: Sequence[tuple[float, float]] = ratings.feature_scales or [(0.0, 1.0)] * len(
            ratings.feature_names
        )
        scales += [(float(centre), float(width)) for centre, width in units]
    return ItemFeatures(torch.cat(columns, 1).float() if columns else None, names, scales)


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


def factors(rest: Tensor, ratings: Ratings, rank: int) -> Tensor:
    r"""Factors float64 ``(items, rank)`` with :math:`q_i \cdot q_j` near the covariance of two items.

    If the rest of a rating is :math:`p_u \cdot q_i` with :math:`p_u` of unit covariance, then the covariance
    over the users who rated both is :math:`q_i \cdot q_j`: its largest eigenvectors give the factors. Of more
    than ``MOST_ITEMS`` items those with the most ratings are taken; the factors of each of the others are a
    ridge regression of its ratings on the users' points :math:`p_u`.
    """
    count = ratings.item_count
    if count <= MOST_ITEMS:
        return _of_covariance(rest, ratings.users, ratings.items.long(), (len(ratings), count), rank)
    sizes = torch.bincount(ratings.items, minlength=count)
    most = sizes.argsort(descending=True, stable=True)[:MOST_ITEMS].sort().values
    new = torch.full((count,), -1, device=rest.device).index_copy_(
        0, most, torch.arange(len(most), device=rest.device)
    )
    items = new[ratings.items.long()]
    kept = items >= 0
    shape = (len(ratings), len(most))
    of_most = _of_covariance(rest[kept], ratings.users[kept], items[kept], shape, rank)
    noise = (rest[kept].square().mean() - of_most.square().sum(1)[items[kept]].mean()).clamp(min=1e-3)
    points = _regressions(of_most, noise, rest[kept], ratings.users[kept], items[kept], len(ratings))
    every = _regressions(
        points, rest.new_tensor(POINT_SHRINK), rest, ratings.items.long(), ratings.users, count
    )
    every[most] = of_most
    return every


def _of_covariance(
    rest: Tensor, users: Tensor, items: Tensor, shape: tuple[int, int], rank: int, users_at_once: int = 1024
) -> Tensor:
    """The factors ``(items, rank)`` of ratings by users and items, sorted by user."""
    products = torch.zeros(shape[1], shape[1], device=rest.device)
    together = torch.zeros_like(products)
    for first in range(0, shape[0], users_at_once):
        last = min(first + users_at_once, shape[0])
        begin, end = torch.searchsorted(users, torch.tensor([first, last], device=users.device)).tolist()
        index = (users[begin:end] - first, items[begin:end])
        table = torch.zeros(last - first, shape[1], device=rest.device)
        table[index] = rest[begin:end].float()
        products += table.T @ table
        table[index] = 1.0
        together += table.T @ table
    shrunk = products / (together + PAIR_SHRINK)
    values, vectors = torch.linalg.eigh(shrunk.double().cpu())
    scaled = vectors[:, -rank:].flip(-1) * values[-rank:].flip(0).clamp(min=0).sqrt()
    # The sign of an eigenvector is the library's choice; ours makes the largest entry positive.
    largest = scaled.gather(0, scaled.abs().argmax(0, keepdim=True))
    return (scaled * torch.where(largest < 0, -1.0, 1.0)).to(rest.device)


def _regressions(
    design: Tensor, ridge: Tensor, values: Tensor, rows: Tensor, columns: Tensor, count: int
) -> Tensor:
    """Ridge regressions ``(count, rank)`` of the values of each row on ``design[columns]``."""
    rank = design.shape[1]
    gram = torch.zeros(count, rank * rank, dtype=design.dtype, device=design.device)
    right = torch.zeros(count, rank, dtype=design.dtype, device=design.device)
    for part in torch.arange(len(values), device=values.device).split(1 << 18):
        listed = design[columns[part]]
        gram.index_add_(0, rows[part], (listed[:, :, None] * listed[:, None, :]).flatten(1))
        right.index_add_(0, rows[part], listed * values[part, None].to(design.dtype))
    unit = torch.eye(rank, dtype=design.dtype, device=design.device)
    return torch.linalg.solve(gram.view(-1, rank, rank) + ridge * unit, right)
