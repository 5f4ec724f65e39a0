"""From a setting and training ratings to a new model."""

from dataclasses import replace
from typing import Any

import torch

from factorank.data.ratings import Ratings
from factorank.errors import FactorankError
from factorank.models import PermutationModel
from factorank.rerank.encoder import FeatureContext
from factorank.rerank.item_features import item_features
from factorank.rerank.settings import Setting
from factorank.rerank.taste_fit import LEVELS, set_taste


def fitted(setting: Setting, ratings: Ratings) -> Setting:
    """The setting with lists no longer than the most active user's, and checked."""
    longest = int(ratings.lengths.max()) if len(ratings) else 0
    if longest < 2:
        raise FactorankError("there is nothing to learn from: no user has rated two items")
    n = min(setting.n, longest)
    shortest = None if setting.shortest is None else min(setting.shortest, n)
    if shortest not in (None, n) and (setting.layout != "aligned" or setting.code != "insertion"):
        raise FactorankError(
            "lists of different lengths need layout 'aligned' and the code 'insertion', not"
            f" {setting.layout!r} and {setting.code!r}; set shortest=None"
        )
    return replace(setting, n=n, shortest=shortest)


def build(setting: Setting, ratings: Ratings) -> tuple[PermutationModel, list[str]]:
    """A new model for the items of training ratings, and the names of their features."""
    features, names = item_features(ratings, setting.features, setting.rank)
    torch.manual_seed(setting.seed)
    context = FeatureContext(
        ratings.item_count,
        setting.width,
        len(names),
        setting.item_dropout,
        setting.embedding_std,
        sorts(setting),
        setting.layout,
        0 if setting.layout == "aligned" else setting.n,
        tells_ratings(setting),
        (min(setting.rank, ratings.item_count), LEVELS) if has_taste(setting) else (0, 0),
    )
    if context.taste is not None:
        set_taste(context.taste, ratings.to("cpu"), torch.Generator().manual_seed(setting.seed))
    if context.ratings is not None:
        context.set_rating_scale(ratings.relevance(ratings.values).cpu())
    if features is not None:
        factors = [column for column, name in enumerate(names) if name.startswith("factor ")]
        together = [slice(factors[0], factors[-1] + 1)] if factors else []
        context.set_features(features.cpu(), together)
    model = PermutationModel(
        setting.n,
        setting.code,
        setting.objective,
        setting.width,
        setting.depth,
        setting.heads,
        setting.dropout,
        context=context,
        masks=setting.masks if setting.objective == "masked" else "any",
    )
    return model, names


def sorts(setting: Setting) -> bool:
    """Whether known items stand sorted in the reference, and their tokens say their ranks."""
    if setting.known not in ("sorted", "random"):
        raise FactorankError(f"known items stand 'sorted' or 'random', not {setting.known!r}")
    return setting.known == "sorted" and setting.code == "insertion"


def tells_ratings(setting: Setting) -> bool:
    """Whether the network is told the ratings of observed items."""
    if setting.told not in ("order", "ratings"):
        raise FactorankError(f"a ranker is told the 'order' or the 'ratings', not {setting.told!r}")
    if setting.told == "ratings" and not sorts(setting):
        raise FactorankError(
            "ratings are told to rankers with the code 'insertion' and known='sorted', not"
            f" {setting.code!r} and {setting.known!r}"
        )
    return setting.told == "ratings"


def has_taste(setting: Setting) -> bool:
    """Whether tokens say what the observed items tell of the others."""
    if "taste" in setting.features and not sorts(setting):
        raise FactorankError(
            "the feature 'taste' is for rankers with the code 'insertion' and known='sorted', not"
            f" {setting.code!r} and {setting.known!r}"
        )
    return "taste" in setting.features


def takes_shorter(model: PermutationModel) -> bool:
    return bool(getattr(model.context, "aligned", False)) and not model.code.domains_depend_on_n


def training_options(setting: Setting) -> dict[str, Any]:
    """What ``train`` takes of a setting."""
    names = ("batch_size", "lr", "weight_decay", "ema", "steps", "schedule", "precision", "seed")
    return {name: getattr(setting, name) for name in names}
