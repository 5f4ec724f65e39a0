"""Ratings written out, to compare them."""

from factorank.data.ratings import Ratings


def as_rows(ratings: Ratings) -> list[tuple]:
    """User id, item id and rating of every row, sorted."""
    columns = ratings.users.tolist(), ratings.items.tolist(), ratings.values.tolist()
    return sorted((ratings.user_ids[u], ratings.ids[i], v) for u, i, v in zip(*columns, strict=True))
