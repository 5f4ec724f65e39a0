"""Ranker: learn from ratings how users order items, and re-rank lists for users who have ordered some."""

import os
from collections.abc import Iterator
from dataclasses import asdict, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from factorank.data.ratings import Ratings, as_ratings
from factorank.errors import ModelError
from factorank.files import write_json
from factorank.models import PermutationModel
from factorank.models.saving import read_config
from factorank.rerank.catalogue import Catalogue
from factorank.rerank.choosing import chosen_setting, preset_for
from factorank.rerank.expected_gain import expected_gain, gain_table, sort_by
from factorank.rerank.keys import seeds_of
from factorank.rerank.lists import Lists
from factorank.rerank.objective import reads_ratings
from factorank.rerank.place_probabilities import mode_or_sample, place_probabilities
from factorank.rerank.request import NewItems, read_request
from factorank.rerank.reranking import REFERENCES, By, Query, Reranking, mean_place, state
from factorank.rerank.settings import Setting, preset
from factorank.rerank.training import train_model
from factorank.rerank.users import save_users
from factorank.training import TrainResult
from factorank.training.processes import checked_device

FILE, FORMAT, VERSION = "ranker.json", "factorank-ranker", 3


class Ranker:
    """A law of the order of any list of items, given the order of some of them, learnt from ratings.

    :mod:`factorank.rerank` has an example.

    Args:
        model: a model whose context encoder is a :class:`factorank.rerank.encoder.FeatureContext`.
        catalogue: the items of the encoder, by name.
        gains: the mean gain of each place of a training list of n, ``(n,)``.
        setting: the setting that the model was trained with.
        result: of the training.
        units: shift and scale that turn ratings into relevances, as :meth:`Ratings.relevance` does.
        rating_range: the lowest and the highest rating of the training ratings.
    """

    def __init__(
        self,
        model: PermutationModel,
        catalogue: Catalogue,
        gains: Tensor,
        setting: Setting | None = None,
        result: TrainResult | None = None,
        units: tuple[float, float] = (0.0, 1.0),
        rating_range: tuple[float, float] | None = None,
    ) -> None:
        self.model, self.catalogue, self.setting, self.result = model, catalogue, setting, result
        self.gains, self.units, self.rating_range = gains.cpu(), units, rating_range

    @classmethod
    def fit(
        cls,
        ratings: Any,
        validation: Ratings | float = 0.1,
        *,
        test: Ratings | float = 0.0,
        setting: Setting | None = None,
        out: str | os.PathLike[str] | None = None,
        **options: Any,
    ) -> "Ranker":
        """Train a ranker on ratings.

        Args:
            ratings: of the users to train on: what :func:`factorank.load_ratings` returns, a frame of pandas
                or polars, or a mapping of columns. A user with fewer ratings than the setting's ``shortest``
                (n, if that is None) is left out; those with fewer than n serve as shorter lists.
            validation: ratings of other users, or the share of the users to hold out; the weights that give
                their orders the highest likelihood are kept. 0 holds nobody out.
            test: ratings of further users, or their share, which training does not look at;
                ``factorank rerank eval`` measures the run in ``out`` on them.
            setting: the network and its training: the preset "small" on a CPU, "default" on a GPU unless
                given. Where it leaves open what is read of the data, validation users decide.
            out: a folder for the run, which the same call resumes; the ranker and the ratings are saved
                there, too.
            options: of :func:`factorank.train`, such as ``max_seconds`` or ``device``.
        """
        device = checked_device(options.get("device"))
        setting = preset(preset_for(device)) if setting is None else setting
        ratings = as_ratings(ratings)
        shares = [0.0 if isinstance(part, Ratings) else part for part in (validation, test)]
        ratings, *drawn = ratings.split(validation=shares[0], test=shares[1], seed=setting.seed)
        held, tested = (
            replace(part, shift=ratings.shift, scale=ratings.scale) if isinstance(part, Ratings) else own
            for part, own in zip((validation, test), drawn, strict=True)
        )
        setting = chosen_setting(ratings, held, setting.fitted_to(ratings))
        model, features, gains, result = train_model(setting, ratings, held, out=out, **options)
        ranker = cls(
            model,
            Catalogue(ratings.ids, ratings.titles, features.names, features.scales),
            gains,
            setting,
            result,
            units=(float(ratings.shift), float(ratings.scale)),
            rating_range=(float(ratings.values.min()), float(ratings.values.max())),
        )
        if out is not None:
            ranker.save(out)
            save_users(out, {"train": ratings, "validation": held, "test": tested})
        return ranker

    def rerank(
        self,
        items: Any,
        observed: Any = None,
        *,
        k: int = 10,
        by: By = "gain",
        nfe: int | None = None,
        references: int = REFERENCES,
        samples: int | None = 64,
        level: float = 0.8,
        new: NewItems | None = None,
        generator: torch.Generator | None = None,
    ) -> Reranking:
        """Rank lists of items for users who have ordered some items.

        Args:
            items: ids or titles of the items to rank, a list for one user or a list of lists for many; also
                an integer array or tensor of ids, ``(m,)`` or ``(users, m)``, -1 pads.
            observed: items in the user's order, best first (lists and arrays as for ``items``), or a mapping
                from items to ratings. Equal ratings are put in random order; an item whose rating is NaN is
                one to rank. Observed items that ``items`` leaves out join the list. A ranker that was trained
                with ``told="ratings"`` reads the ratings of a mapping, which must lie in the range of the
                training ratings. Other rankers read their order; the order of one item carries no
                information.
            new: features of items that training did not have, by item: a mapping from names of features to
                numbers, or all the numbers.
            generator: decides the references and ties, together with the items; without one every call uses
                the same seed.
            k, by, nfe, references, samples, level: see :class:`factorank.rerank.Query`.

        The answer has observed items in the observed order, exactly. It does not depend on the order of
        ``items``. What has no effect (a single rating for a ranker that reads the order, ``new`` items that
        no list holds) is warned of with :class:`factorank.errors.RankerWarning`. Items that are not in the
        catalogue, items listed or observed twice, and lists longer than the model's n raise a
        :class:`FactorankError`; an empty list has an empty answer.
        """
        query = Query(k=k, by=by, nfe=nfe, references=references, samples=samples, level=level)
        generator = torch.Generator().manual_seed(0) if generator is None else generator
        seed = int(seeds_of(generator, 1))
        lists, names, single = read_request(
            self.catalogue, self.model.n, items, observed, new or {}, seed, self.told, self.rating_range
        )
        lists = lists.to(self.device)
        if lists.relevance is not None:
            shift, scale = self.units
            lists.relevance = (lists.relevance + shift) * scale
        longest = int((lists.items >= 0).sum(-1).max()) if len(lists) else 0
        parts = [
            state(order, places, lists.part(rows).is_observed, query)
            for rows, order, places in self.answers(lists, query, generator=generator)
        ]
        answer = Reranking.joined(parts, longest, query)
        answer.names = names
        return answer[0] if single else answer

    def answers(
        self, lists: Lists, query: Query, *, generator: torch.Generator
    ) -> Iterator[tuple[slice, Tensor, Tensor]]:
        """Orders ``(rows, n)`` of the places of lists, -1 past the end, and place probabilities
        ``(rows, n, n)``, in parts of the rows; the lists are on the model's device."""
        model = self.model
        if not reads_ratings(model):
            lists = replace(lists, relevance=None)
        if query.nfe is None and not model.causal:
            query = replace(query, nfe=1)
        aligned = getattr(model.context, "aligned", False)
        if bool((lists.items < 0).any()) and not (aligned and not model.code.domains_depend_on_n):
            raise ModelError(
                f"this ranker takes lists of exactly {model.n} items: shorter ones need an aligned"
                " layout and an insertion code"
            )
        if self.reference == "sorted" and not model.causal and query.nfe != 1:
            raise ModelError(
                f"{{parameter={query.nfe}}} needs a ranker with reference='random', as the preset 'paper'"
                " has; this one has learnt one evaluation, given the observed items",
                parameter="nfe",
            )
        table, ties = self._gain_table.to(self.device), seeds_of(generator, 1, self.device)
        probabilities = place_probabilities(model, lists, query, kind=self.reference, generator=generator)
        for rows, places in probabilities:
            part = lists.part(rows)
            present = part.items >= 0
            if query.by in ("gain", "place"):
                gain = query.by == "gain"
                score = expected_gain(places, present.sum(-1), table) if gain else -mean_place(places)
                order = sort_by(score, part.observed, present, part.keys(ties)[:, 0])
            else:
                order = mode_or_sample(model, part, query, kind=self.reference, generator=generator)
            yield rows, order, places

    def same_items(self, ratings: Ratings) -> Ratings:
        """Ratings with their items numbered, and their relevances in the units, of this ranker's.

        Ratings of items that it does not know are left out.
        """
        shift, scale = self.units
        if list(ratings.ids) != self.catalogue.ids:
            ratings = ratings.with_items(self.catalogue.ids)
        return replace(ratings, shift=shift, scale=scale)

    @cached_property
    def _gain_table(self) -> Tensor:
        return gain_table(self.gains)

    @property
    def told(self) -> str:
        """What it reads of observed items: their "order", or their "ratings" as well."""
        return "ratings" if reads_ratings(self.model) else "order"

    @property
    def reference(self) -> str:
        """How observed items stand in the reference: "sorted" or "random"; see the setting."""
        return "random" if self.setting is None else self.setting.reference

    @property
    def lengths(self) -> range:
        """The lengths of the lists that it was trained on."""
        n = self.model.n
        return range(n if self.setting is None else self.setting.shortest_list, n + 1)

    @property
    def device(self) -> torch.device:
        return self.model.device

    def to(self, device: torch.device | str) -> "Ranker":
        """Move the model to a device."""
        self.model.to(device)
        return self

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Write the model and ``ranker.json`` (items, titles, features, gains, setting) into a folder."""
        self.model.save_pretrained(folder)
        facts = {
            "format": FORMAT,
            "version": VERSION,
            "setting": None if self.setting is None else asdict(self.setting),
            "features": list(self.catalogue.features),
            "scales": list(self.catalogue.scales),
            "gains": self.gains.tolist(),
            "units": list(self.units),
            "rating_range": None if self.rating_range is None else list(self.rating_range),
            "ids": list(self.catalogue.ids),
            "titles": self.catalogue.titles,
        }
        write_json(Path(folder) / FILE, facts)

    @classmethod
    def load(cls, folder: str | os.PathLike[str]) -> "Ranker":
        """The ranker that :meth:`save` wrote, or that ``fit`` left in its run's folder."""
        wanted = ("setting", "features", "scales", "gains", "units", "rating_range", "ids", "titles")
        facts = read_config(Path(folder), FORMAT, VERSION, wanted, "a ranker", FILE)
        setting, rating_range = facts["setting"], facts["rating_range"]
        return cls(
            PermutationModel.from_pretrained(folder),
            Catalogue(facts["ids"], facts["titles"], facts["features"], list(map(tuple, facts["scales"]))),
            torch.tensor(facts["gains"]),
            setting and Setting(**setting | {"features": tuple(setting["features"] or ())}),
            units=tuple(facts["units"]),
            rating_range=rating_range and tuple(rating_range),
        )

    def __repr__(self) -> str:
        model = self.model
        return f"Ranker(items={len(self.catalogue)}, n={model.n}, objective={model.objective!r})"
