"""What is wrong with a request, found without evaluating the network: each function raises it or nothing."""

from collections.abc import Sequence
from typing import Any

from factorank.rerank.observations import known_items, read_histories
from factorank.rerank.ranker import Ranker
from factorank.rerank.request import NewItems, read_request


def check_request(
    ranker: Ranker,
    items: Any,
    observed: Any,
    new: NewItems | None = None,
    pinned: Any = None,
    forbidden: Any = (),
) -> None:
    """Refuse what :meth:`Ranker.rerank` would."""
    read_request(
        ranker.catalogue,
        ranker.model.n,
        ranker.longest,
        items,
        observed,
        new or {},
        0,
        ranker.told,
        ranker.rating_range,
        pinned,
        forbidden,
    )


def check_history(ranker: Ranker, observed: Any, k: int, forbidden: Sequence[Any] = ()) -> None:
    """Refuse what :meth:`Ranker.recommend` would."""
    read_histories(ranker.catalogue, observed, 0, ranker.told, ranker.rating_range)
    known_items(ranker.catalogue, forbidden, "forbidden")
    ranker.check_count(k)
