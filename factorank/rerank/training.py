"""Training of a ranker's model: lists of rated items, in a random order, with the order of preference."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_map

from factorank.data.ratings import Ratings, order_of
from factorank.errors import FactorankError
from factorank.models import PermutationModel
from factorank.rerank.expected_gain import mean_gains
from factorank.rerank.new_model import new_model
from factorank.rerank.objective import SortedPrefix
from factorank.rerank.settings import Setting
from factorank.training import TrainResult, train


@dataclass
class Trained:
    """A trained model, the names of its items' features, the mean gain of each place, and the training."""

    model: PermutationModel
    feature_names: list[str]
    gains: Tensor
    result: TrainResult


def train_model(
    setting: Setting, ratings: Ratings, validation: Ratings, out: Path | None, **options: Any
) -> Trained:
    """Train a new model on lists of ratings; the weights are those that are best on validation users.

    ``setting`` is fitted to the ratings. ``options`` go to :func:`factorank.train`.
    """
    model, names = new_model(setting, ratings)
    generator = torch.Generator().manual_seed(setting.seed)
    gains = mean_gains(ratings, setting.n, generator)
    lists = RatingLists(ratings, setting.n, setting.shortest, setting.reads_ratings)
    held_out = held_out_lists(setting, validation, generator) if len(validation) else None
    shortest = setting.n if setting.shortest is None else setting.shortest
    was_padded, model.padded = model.padded, model.padded and shortest < setting.n
    settings = setting.train_settings
    if held_out is None:
        settings = replace(settings, patience=None)
    trained = SortedPrefix(model) if setting.sorts_observed else model
    result = train(trained, lists, settings, held_out=held_out, out=out, **options)
    model.padded = was_padded
    return Trained(model, names, gains, result)


class RatingLists:
    """Makes batches from ratings: orders ``(batch, n)`` of preference and items ``(batch, n)``, -1 pads.

    With ``relevances`` the items come with their relevances ``(batch, n)``, as a pair. The ratings of a user
    that make a list, their order in the list (the reference of the code) and the order of equal ratings are
    drawn anew each time, by tensor operations alone, on the generator's device.
    """

    capturable = True

    def __init__(
        self, ratings: Ratings, n: int, shortest: int | None = None, relevances: bool = False
    ) -> None:
        self.ratings, self.n, self.shortest, self.relevances = ratings, n, shortest, relevances
        least = n if shortest is None else shortest
        if not len(ratings.users_with(least)):
            raise FactorankError(f"no user has the {least} ratings that the shortest list takes")

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
    least = setting.n if setting.shortest is None else setting.shortest
    if longest < least:
        raise FactorankError(
            f"validation users have up to {longest} ratings, but a list takes {least}; lower shortest or n,"
            " or hold out more users"
        )
    lists = RatingLists(validation, longest, setting.shortest, setting.reads_ratings)
    batch = lists(setting.held_out, generator)
    return tree_map(lambda part: torch.nn.functional.pad(part, (0, setting.n - longest), value=-1), batch)
