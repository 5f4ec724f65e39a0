"""A new model for a setting and the items of training ratings."""

import torch

from factorank.data.ratings import Ratings
from factorank.models import PermutationModel
from factorank.rerank.encoder import FeatureContext
from factorank.rerank.item_features import item_features
from factorank.rerank.settings import Setting
from factorank.rerank.taste import LEVELS, fit_taste


def new_model(setting: Setting, ratings: Ratings) -> tuple[PermutationModel, list[str]]:
    """An untrained model for the items of training ratings, and the names of their features."""
    features, names = item_features(ratings, setting.features, setting.rank)
    torch.manual_seed(setting.seed)
    context = FeatureContext(
        ratings.item_count,
        setting.width,
        len(names),
        setting.item_dropout,
        setting.embedding_std,
        setting.sorts_observed,
        setting.layout,
        0 if setting.layout == "aligned" else setting.n,
        setting.reads_ratings,
        (min(setting.rank, ratings.item_count), LEVELS) if setting.has_taste else (0, 0),
    )
    if context.taste is not None:
        fit_taste(context.taste, ratings.to("cpu"), torch.Generator().manual_seed(setting.seed))
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
