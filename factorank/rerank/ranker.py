"""Ranker: learn from ratings how users order items, and re-rank lists for users who have ordered some."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from factorank.data.ratings import Ratings, as_ratings
from factorank.data.ratings.choices import count_ratings, with_unchosen
from factorank.errors import FactorankError
from factorank.models import PermutationModel
from factorank.rerank import saving
from factorank.rerank.answering import reranked
from factorank.rerank.catalogue import Catalogue
from factorank.rerank.choosing import chosen_setting, preset_for
from factorank.rerank.expected_gain import gain_table, stretched
from factorank.rerank.first_stage import FirstStage
from factorank.rerank.graph import export_ranker
from factorank.rerank.keys import seeds_of
from factorank.rerank.long_lists import LONGEST
from factorank.rerank.objective import reads_ratings
from factorank.rerank.recommending import choose_blend, ranks_any_length, recommended
from factorank.rerank.request import NewItems
from factorank.rerank.reranking import REFERENCES, By, Query, Reranking
from factorank.rerank.settings import Setting, preset
from factorank.rerank.training import train_model
from factorank.rerank.users import save_users
from factorank.rerank.warm_start import continued_setting
from factorank.training import TrainResult
from factorank.training.processes import checked_device, is_first_process


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
        first_stage: finds candidates among all items, for :meth:`recommend`.
        blend: the weight of the law beside the first stage's scores.
        implicit: whether it was trained on choices, and is told counts of choices.
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
        first_stage: FirstStage | None = None,
        blend: float = 0.0,
        implicit: bool = False,
    ) -> None:
        self.model, self.catalogue, self.setting, self.result = model, catalogue, setting, result
        self.first_stage, self.blend, self.implicit = first_stage, blend, implicit
        self.gains, self.units, self.rating_range = gains.cpu(), units, rating_range
        self._gain_tables: dict[int, Tensor] = {}

    @classmethod
    def fit(
        cls,
        ratings: Any,
        validation: Ratings | float = 0.1,
        *,
        test: Ratings | float = 0.0,
        setting: Setting | None = None,
        start: "Ranker | None" = None,
        out: str | os.PathLike[str] | None = None,
        **options: Any,
    ) -> "Ranker":
        """Train a ranker on ratings.

        Args:
            ratings: of the users to train on: what :func:`factorank.load_ratings` returns, a frame of pandas
                or polars, or a mapping of columns. Choices (``load_ratings(…, implicit=True)``) are learnt
                with items that were not chosen below them, drawn at random where the table has none. A user
                with fewer ratings than the setting's ``shortest`` (n, if that is None) is left out; those
                with fewer than n serve as shorter lists.
            validation: ratings of other users, or the share of the users to hold out; the weights that give
                their orders the highest likelihood are kept. 0 holds nobody out.
            test: ratings of further users, or their share, which training does not look at;
                ``factorank rerank eval`` measures the run in ``out`` on them.
            setting: the network and its training: the preset "small" on a CPU, "default" on a GPU unless
                given. Where it leaves open what is read of the data, validation users decide.
            start: an earlier ranker to go on from, with the whole table as it is now: items that it knows
                keep what was learnt of them, new ones begin by their features. The setting is its own, with a
                quarter of the steps, unless given.
            out: a folder for the run, which the same call resumes; the ranker and the ratings are saved
                there, too.
            options: of :func:`factorank.train`, such as ``max_seconds`` or ``device``.
        """
        device = checked_device(options.get("device"))
        if start is not None:
            setting = continued_setting(start, setting)
        setting = preset(preset_for(device)) if setting is None else setting
        ratings = with_unchosen(as_ratings(ratings), seed=setting.seed)
        if start is not None:
            ratings = replace(ratings, shift=start.units[0], scale=start.units[1])
        shares = [0.0 if isinstance(part, Ratings) else part for part in (validation, test)]
        ratings, *drawn = ratings.split(validation=shares[0], test=shares[1], seed=setting.seed)
        held, tested = (
            replace(with_unchosen(part, seed=setting.seed), shift=ratings.shift, scale=ratings.scale)
            if isinstance(part, Ratings)
            else own
            for part, own in zip((validation, test), drawn, strict=True)
        )
        setting = chosen_setting(ratings, held, setting.fitted_to(ratings))
        model, features, gains, result = train_model(setting, ratings, held, start, out=out, **options)
        ranker = cls(
            model,
            Catalogue(ratings.ids, ratings.titles, features.names, features.scales),
            gains,
            setting,
            result,
            units=(float(ratings.shift), float(ratings.scale)),
            rating_range=(float(ratings.values.min()), float(ratings.values.max())),
            first_stage=FirstStage.fit(ratings),
            implicit=ratings.implicit,
        )
        ranker.blend = choose_blend(ranker, held)
        if out is not None and is_first_process():
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
        pinned: Any = None,
        forbidden: Any = (),
        groups: Mapping[Any, Any] | None = None,
        most: int = 1,
        generator: torch.Generator | None = None,
    ) -> Reranking:
        """Rank lists of items for users who have ordered some items.

        Args:
            items: ids or titles of the items to rank, a list for one user or a list of lists for many; also
                an integer array or tensor of ids, ``(m,)`` or ``(users, m)``, -1 pads.
            observed: items in the user's order, best first (lists and arrays as for ``items``), or a mapping
                from items to ratings, or a frame with columns of these. Equal ratings are put in random
                order; an item whose rating is NaN is one to rank. Observed items that ``items`` leaves out
                join the list. A ranker that was trained with ``told="ratings"`` reads the ratings of a
                mapping, which must lie in the range of the training ratings. Other rankers read their order;
                the order of one item carries no information. A ranker of choices takes a list of items that
                the user has chosen, in any order, or a mapping from items to counts.
            new: features of items that training did not have, by item: a mapping from names of features to
                numbers, or all the numbers.
            pinned: a mapping from items to their places, from 0 on; the others are ranked given these
                (:mod:`factorank.rerank.constraints`). Items that the list leaves out join it.
            forbidden: items that are not shown. Where they are observed, they still say what the user
                prefers. Pinned and forbidden are one for all lists, or a list with one for each.
            groups: a mapping from items to labels: of the first k at most ``most`` have the same label.
            generator: decides the references and ties, together with the items; without one every call uses
                the seed 0.
            k, by, nfe, references, samples, level: see :class:`factorank.rerank.Query`.

        The answer has observed items in the observed order, exactly. It does not depend on the order of
        ``items``. What has no effect (a single rating for a ranker that reads the order, ``new`` items that
        no list holds) is warned of with :class:`factorank.errors.RankerWarning`. Items that are not in the
        catalogue, items listed or observed twice, and lists of more than 500 items raise a
        :class:`FactorankError`. Places in lists longer than the model's n are estimates
        (:mod:`factorank.rerank.long_lists`). An empty list has an empty answer.
        """
        query = Query(k=k, by=by, nfe=nfe, references=references, samples=samples, level=level, most=most)
        generator = torch.Generator().manual_seed(0) if generator is None else generator
        asked = {"new": new or {}, "pinned": pinned, "forbidden": forbidden, "groups": groups}
        return reranked(self, items, observed, query, **asked, generator=generator)

    def recommend(
        self,
        observed: Any = None,
        k: int = 10,
        *,
        forbidden: Sequence[Any] = (),
        groups: Mapping[Any, Any] | None = None,
        most: int = 1,
        references: int = REFERENCES,
        level: float = 0.8,
        generator: torch.Generator | None = None,
    ) -> Reranking:
        """The k items of the whole catalogue to recommend to users, best first, without those they have.

        A first stage finds candidates (:mod:`factorank.rerank.first_stage`); their order is that of its
        scores and of the expected gain under the law given the user's history, weighed by what found the last
        ratings of validation users best (``blend``). Places and probabilities are among the candidates.

        Args:
            observed: the history of a user, of any length: items in the user's order, best first, or a
                mapping from items to ratings; a list of these for many users. Nobody's, if None.
            k: how many, at most half of the model's n.
            forbidden: items that must not be recommended.
            groups, most, references, level, generator: as for :meth:`rerank`.
        """
        self.check_count(k)
        query = Query(k=k, references=references, level=level, most=most)
        generator = torch.Generator().manual_seed(0) if generator is None else generator
        return recommended(self, observed, query, forbidden, groups, int(seeds_of(generator, 1)))

    def check_count(self, k: int) -> None:
        """Refuse a number of recommendations that :meth:`recommend` does not give."""
        most = self.model.n - self.model.n // 2
        if not 1 <= k <= most:
            raise FactorankError(f"{{parameter}} is 1 to {most}, not {k}", parameter="k")

    def same_items(self, ratings: Ratings) -> Ratings:
        """Ratings with their items numbered, and their relevances in the units, of this ranker's.

        Ratings of items that it does not know are left out.
        """
        shift, scale = self.units
        if list(ratings.ids) != self.catalogue.ids:
            ratings = ratings.with_items(self.catalogue.ids)
        return replace(ratings, shift=shift, scale=scale)

    def gain_table(self, n: int) -> Tensor:
        """Gains by length and place, for lists of up to n items."""
        if n not in self._gain_tables:
            self._gain_tables[n] = gain_table(stretched(self.gains, n))
        return self._gain_tables[n]

    def relevance(self, ratings: Tensor) -> Tensor:
        """The relevances of ratings, or of counts of choices, in the units of the training ratings."""
        shift, scale = self.units
        return ((count_ratings(ratings) if self.implicit else ratings) + shift) * scale

    @property
    def longest(self) -> int:
        """The longest list that it takes: more than the model's n where chunks of it can be ranked."""
        return max(self.model.n, LONGEST) if ranks_any_length(self) else self.model.n

    @property
    def told(self) -> str:
        """What it reads of observed items: their "order", or their "ratings" as well; or "choices"."""
        if not reads_ratings(self.model):
            return "order"
        return "choices" if self.implicit else "ratings"

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
        """Write the model, ``ranker.json`` (items, features, gains, setting, …) and the first stage."""
        saving.save(self, folder)

    def export_onnx(self, path: str | os.PathLike[str]) -> None:
        """Write an ONNX file, for runtimes without torch: :func:`factorank.rerank.graph.export_ranker`."""
        export_ranker(self.model, path)

    @classmethod
    def load(cls, folder: str | os.PathLike[str]) -> "Ranker":
        """The ranker that :meth:`save` wrote, or that ``fit`` left in its run's folder."""
        return cls(**saving.load(folder))

    def __repr__(self) -> str:
        model = self.model
        return f"Ranker(items={len(self.catalogue)}, n={model.n}, objective={model.objective!r})"
