"""Which setting suits a machine and a table: the preset by the device, what is read by the data."""

import time
from dataclasses import replace

import torch
from torch import Tensor

from factorank.data.ratings import Ratings, order_of
from factorank.metrics import ndcg
from factorank.rerank.objective import SortedPrefix
from factorank.rerank.settings import Setting
from factorank.rerank.taste import LEVELS, Taste, fit_taste
from factorank.rerank.training import RatingLists, new_model

LISTS, OBSERVED, K = 1000, (2, 5, 10), 10
"""How the closed-form predictions are compared: so many lists, with so many observed items each."""
LEAST = 0.002
"""The least gain in NDCG over the mean rating for which a ranker reads ratings and taste."""


def preset_for(device: torch.device | str) -> str:
    """The preset for a device: "small" on a CPU, where the default network takes days.

    >>> preset_for("cpu")
    'small'
    """
    return "small" if torch.device(device).type == "cpu" else "default"


def chosen_setting(train: Ratings, validation: Ratings, setting: Setting) -> Setting:
    """A setting with nothing left open.

    ``told`` and ``features`` that are None are chosen by :func:`taste_gains` on the validation users. If a
    taste that reads ratings predicts their lists better than the mean rating does, and not worse than one
    that reads the order, the network reads ratings and taste. Choices have hardly an order: it reads how
    often items were chosen.
    """
    if setting.told is not None and setting.features is not None:
        return setting
    features: tuple[str, ...] = ("mean", "factors")
    told = "order"
    if setting.sorts_observed:
        gains = taste_gains(train, validation, setting.rank, setting.seed)
        if gains is not None and gains["ratings"] > LEAST and gains["ratings"] >= gains["order"]:
            told, features = "ratings", (*features, "taste")
    if train.implicit and setting.sorts_observed:
        told = "ratings"
    if train.features is not None:
        features = (*features, "given")
    return replace(
        setting,
        told=told if setting.told is None else setting.told,
        features=features if setting.features is None else setting.features,
    )


def training_seconds(setting: Setting, train: Ratings, device: torch.device | str = "cpu") -> float:
    """How long the steps of a setting take, roughly: by the time of two of them."""
    setting = setting.fitted_to(train)
    model, _ = new_model(replace(setting, features=(), told="order"), train)
    trained = SortedPrefix(model) if setting.sorts_observed else model
    trained.to(device)
    lists = RatingLists(train, setting.n, setting.shortest_list)
    generator = torch.Generator(device).manual_seed(0)
    times = []
    for _ in range(3):
        started = time.perf_counter()
        order, items = lists(setting.batch_size, generator)
        trained.loss(order, items, generator=generator).mean().backward()
        if torch.device(device).type == "cuda":
            torch.cuda.synchronize(device)
        times.append(time.perf_counter() - started)
    return min(times) * setting.steps


def taste_gains(train: Ratings, validation: Ratings, rank: int, seed: int = 0) -> dict[str, float] | None:
    """How far the NDCG of the unobserved items on validation lists rises above that of the mean rating, if a
    closed-form taste (see :class:`factorank.rerank.taste.Taste`) reads the "order" or the "ratings" of some.

    None if no validation user has enough ratings.
    """
    train, validation = train.to("cpu"), validation.to("cpu")
    n = min(50, int(validation.lengths.sort().values[len(validation) // 4])) if len(validation) else 0
    counts = [r for r in OBSERVED if r <= n - 5]
    if not counts:
        return None
    generator = torch.Generator().manual_seed(seed)
    taste = Taste(train.item_count, min(rank, train.item_count), LEVELS)
    fit_taste(taste, train, generator)
    items, relevance = validation.draw(n, LISTS, generator)
    gains = {"order": 0.0, "ratings": 0.0}
    for r in counts:
        order = order_of(relevance[:, :r], generator)
        first = torch.arange(n).expand(len(items), n).clone()
        first[:, :r] = order
        listed, rated = items.gather(-1, first), relevance.gather(-1, first)
        count = torch.full((len(items),), r)
        told = torch.where(torch.arange(n) < r, rated, torch.nan)
        mean = taste.items[listed, 0]
        base = _score(mean, rated, r)
        for name, ratings in (("order", None), ("ratings", told)):
            expected = taste(listed, count, ratings)[..., 0] * taste.noise[0].sqrt()
            gains[name] += (_score(mean + expected, rated, r) - base) / len(counts)
    return gains


def _score(scores: Tensor, relevance: Tensor, r: int) -> float:
    order = scores[:, r:].argsort(dim=-1, descending=True, stable=True)
    return float(ndcg(order, relevance[:, r:], K).mean())
