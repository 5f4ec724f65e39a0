"""A table of items: their titles, and numbers that describe them."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch

from factorank.data.ratings.ratings import Ratings


@dataclass
class ItemTable:
    """Items by id, with titles and features ``(items, f)``."""

    ids: Sequence[str] | Sequence[int]
    titles: Sequence[str] | None
    features: np.ndarray
    feature_names: Sequence[str]
    feature_scales: Sequence[tuple[float, float]]


def with_items(ratings: Ratings, table: ItemTable) -> Ratings:
    """The ratings with titles and features of their items.

    The title of an item that the table lacks is its id, and its features are 0.
    """
    row_of = {key: row for row, key in enumerate(table.ids)}
    rows = [row_of.get(key, -1) for key in ratings.ids]
    listed = np.array(rows) >= 0
    features = np.zeros((len(rows), len(table.feature_names)), dtype=np.float32)
    features[listed] = table.features[[row for row in rows if row >= 0]]
    titles = None
    if table.titles is not None:
        titles = [
            table.titles[row] if row >= 0 else str(key) for row, key in zip(rows, ratings.ids, strict=True)
        ]
    return replace(
        ratings,
        titles=titles,
        features=torch.from_numpy(features) if table.feature_names else None,
        feature_names=list(table.feature_names),
        feature_scales=list(table.feature_scales),
    )
