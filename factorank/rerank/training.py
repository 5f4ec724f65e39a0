"""Training of a ranker's model: lists of rated items, in a random order, with the order of preference."""

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_map

from factorank.data.ratings import Ratings, order_of
from factorank.data.ratings.saving import fingerprint
from factorank.errors import FactorankError
from factorank.models import PermutationModel
from factorank.rerank.encoder import FeatureContext
from factorank.rerank.expected_gain import mean_gains
from factorank.rerank.item_features import ItemFeatures, item_features
from factorank.rerank.objective import SortedPrefix
from factorank.rerank.settings import Setting
from factorank.rerank.taste import LEVELS, fit_taste
from factorank.rerank.warm_start import take_over
from factorank.training import TrainResult, train

if TYPE_CHECKING:
    from factorank.rerank.ranker import Ranker


def train_model(
    setting: Setting, ratings: Ratings, validation: Ratings, start: "Ranker | None" = None, **options: Any
) -> tuple[PermutationModel, ItemFeatures, Tensor, TrainResult]:
    """Train a new model on lists of ratings; the weights are those that are best on validation users. They
    begin as those of ``start``.

    ``setting`` is fitted to the ratings. ``options`` go to :func:`factorank.train`. The result is the model,
    the features of its items, the mean gain of each place, and the training's result.
    """
    model, features = new_model(setting, ratings)
    if start is not None:
        take_over(model, features, ratings.ids, start)
    generator = torch.Generator().manual_seed(setting.seed)
    gains = mean_gains(ratings, setting.n, generator)
    lists = RatingLists(ratings, setting.n, setting.shortest_list, setting.reads_ratings)
    held_out = held_out_lists(setting, validation, generator) if len(validation) else None
    was_padded, model.padded = model.padded, model.padded and setting.shortest_list < setting.n
    settings = replace(setting.train_settings, export=False)  # an earlier ranker vouches for its own model
    if held_out is None:
        settings = replace(settings, patience=None)
    trained = SortedPrefix(model) if setting.sorts_observed else model
    result = train(trained, lists, settings, held_out=held_out, **options)
    model.padded = was_padded
    return model, features, gains, result


def new_model(setting: Setting, ratings: Ratings) -> tuple[PermutationModel, ItemFeatures]:
    """An untrained model for the items of training ratings, and their features."""
    kinds = setting.features or ()
    features = item_features(ratings, kinds, setting.rank)
    torch.manual_seed(setting.seed)
    options: dict[str, Any] = {"item_dropout": setting.item_dropout, "std": setting.embedding_std}
    options |= {"ranks": setting.sorts_observed, "ratings": setting.reads_ratings}
    options |= {"layout": setting.layout, "places": setting.n}
    if "taste" in kinds:
        options["taste"] = (min(setting.rank, ratings.item_count), LEVELS)
    context = FeatureContext(ratings.item_count, setting.width, len(features.names), **options)
    if context.taste is not None:
        fit_taste(context.taste, ratings.to("cpu"), torch.Generator().manual_seed(setting.seed))
    if context.ratings is not None:
        context.set_rating_scale(ratings.relevance(ratings.values).cpu())
    if features.table is not None:
        together = [name.startswith("factor ") for name in features.names]
        context.set_features(features.table.cpu(), together)
    size = (setting.width, setting.depth, setting.heads, setting.dropout)
    masks = setting.masks if setting.objective == "masked" else "any"
    options = {"context": context, "masks": masks, "target": "order"}
    model = PermutationModel(setting.n, setting.code, setting.objective, *size, **options)
    return model, features


class RatingLists:
    """Makes batches from ratings: orders ``(batch, n)`` of preference and items ``(batch, n)``, -1 pads.

    With ``relevances`` the items come with their relevances ``(batch, n)``, as a pair. The ratings of a user
    that make a list, their order in the list (the reference of the code) and the order of equal ratings are
    drawn anew each time, by tensor operations alone, on the generator's device.
    """

    capturable = True

    def __init__(self, ratings: Ratings, n: int, shortest: int, relevances: bool = False) -> None:
        self.ratings, self.n, self.shortest, self.relevances = ratings, n, shortest, relevances
        if not len(ratings.users_with(shortest)):
            raise FactorankError(f"no user has the {shortest} ratings that the shortest list takes")

    def fingerprint(self) -> str:
        """A checksum of all ratings: a run is not resumed with others."""
        return fingerprint(self.ratings)

    def __call__(
        self, batch_size: int, generator: torch.Generator
    ) -> tuple[Tensor, Tensor | tuple[Tensor, Tensor]]:
        if self.ratings.device != generator.device:
            self.ratings = self.ratings.to(generator.device)
        items, relevance = self.ratings.draw(self.n, batch_size, generator, shortest=self.shortest)
        return preference_order(items, relevance, generator), (items, relevance) if self.relevances else items


def preference_order(items: Tensor, relevance: Tensor, generator: torch.Generator | None = None) -> Tensor:
    """The order ``(*batch, n)`` of a list's places, best first, ties at random, -1 after the list's end."""
    return torch.where(items < 0, -1, order_of(relevance, generator))


def held_out_lists(
    setting: Setting, validation: Ratings, generator: torch.Generator
) -> tuple[Tensor, Tensor | tuple[Tensor, Tensor]]:
    """Lists of validation users, as :class:`RatingLists` makes them.

    Where nobody has n ratings, and shorter lists are trained on, the longest are as long as there are.
    """
    longest = min(setting.n, int(validation.lengths.max()))
    least = setting.shortest_list
    if longest < least:
        raise FactorankError(
            f"validation users have up to {longest} ratings, but a list takes {least}; lower shortest or n,"
            " or hold out more users"
        )
    lists = RatingLists(validation, longest, least, setting.reads_ratings)
    batch = lists(setting.held_out, generator)
    return tree_map(lambda part: torch.nn.functional.pad(part, (0, setting.n - longest), value=-1), batch)
