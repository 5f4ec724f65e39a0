"""Ranker: learn from ratings how users order items, and re-rank lists for users who have ordered some."""

import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from factorank.data.ratings import Ratings
from factorank.errors import FactorankError, ModelError
from factorank.files import write_json
from factorank.models import PermutationModel
from factorank.rerank import expected_gain as choose
from factorank.rerank import request as asked
from factorank.rerank.catalogue import Catalogue
from factorank.rerank.new_model import build, fitted, sorts, takes_shorter, training_options
from factorank.rerank.objective import SortedPrefix, reads_ratings
from factorank.rerank.place_probabilities import Lists, one_order, place_probabilities
from factorank.rerank.reranking import Reranking
from factorank.rerank.settings import Setting
from factorank.rerank.training_lists import RatingLists, held_out_lists, mean_gains
from factorank.training import TrainResult, train

FILE = "ranker.json"
BY = ("gain", "place", "mode", "sample")


class Ranker:
    """A law of the order of any list of items, given the order of some of them, learnt from ratings.

    >>> import factorank as fr
    >>> from factorank.data.ratings import Ratings
    >>> columns = zip(*[(user, item, (item + user) % 3) for user in range(40) for item in range(6)])
    >>> ratings = Ratings.from_rows(*map(list, columns))
    >>> setting = fr.rerank.preset("small", n=6, shortest=2, width=16, heads=2, rank=2, steps=5)
    >>> ranker = Ranker.fit(ratings, setting=setting, device="cpu")
    >>> answer = ranker.rerank(items=[0, 1, 2, 3], observed=[5, 4], k=2)
    >>> sorted(answer.items), answer.items.index(5) < answer.items.index(4)
    ([0, 1, 2, 3, 4, 5], True)
    """

    def __init__(
        self,
        model: PermutationModel,
        catalogue: Catalogue,
        gains: Tensor,
        setting: Setting | None = None,
        result: TrainResult | None = None,
        units: tuple[float, float] = (0.0, 1.0),
        rated: tuple[float, float] | None = None,
    ) -> None:
        self.model, self.catalogue, self.setting, self.result = model, catalogue, setting, result
        self.units, self.rated = units, rated
        """Shift and scale that make relevances of ratings, as :meth:`Ratings.relevance`; the lowest and the
        highest rating, if known."""
        self.gains = gains.cpu()
        """The mean gain of each place of a training list of n, ``(n,)``."""

    @property
    def known(self) -> str:
        """How observed items stand in the reference: "sorted" or "random"; see the setting."""
        return "random" if self.setting is None else self.setting.known

    @property
    def told(self) -> str:
        """What it is told of observed items: their "order", or their "ratings" as well."""
        return "ratings" if reads_ratings(self.model) else "order"

    @property
    def device(self) -> torch.device:
        return self.model.network.places.device

    @property
    def lengths(self) -> range:
        """The lengths of the lists that it was trained on."""
        n, setting = self.model.n, self.setting
        shortest = n if setting is None or setting.shortest is None else setting.shortest
        return range(shortest, n + 1)

    @classmethod
    def fit(
        cls,
        ratings: Ratings,
        validation: Ratings | float = 0.1,
        *,
        setting: Setting | None = None,
        out: str | os.PathLike[str] | None = None,
        **options: Any,
    ) -> "Ranker":
        """Train a ranker on ratings.

        Args:
            ratings: of the users to train on. A user with fewer ratings than the setting's ``shortest`` (n,
                if that is None) is left out; those with fewer than n serve as shorter lists.
            validation: ratings of other users, or the share of the users to hold out; the weights that give
                their orders the highest likelihood are kept. 0 holds nobody out.
            setting: the network and its training.
            out: a folder for the run, which the same call resumes; the ranker is saved there, too.
            options: of :func:`factorank.train`, such as ``max_seconds`` or ``device``.
        """
        setting = Setting() if setting is None else setting
        if not isinstance(validation, Ratings):
            ratings, held, _ = ratings.split(validation=validation, test=0.0, seed=setting.seed)
        else:
            held = replace(validation, shift=ratings.shift, scale=ratings.scale)
        setting = fitted(setting, ratings)
        model, names = build(setting, ratings)
        generator = torch.Generator().manual_seed(setting.seed)
        gains = mean_gains(ratings, setting.n, generator)
        told = reads_ratings(model)
        lists = RatingLists(ratings, setting.n, setting.shortest, told)
        shortest = setting.n if setting.shortest is None else setting.shortest
        kept = None
        if len(held):
            kept = held_out_lists(held, setting.n, setting.shortest, setting.held_out, generator, told)
        was_padded, model.padded = model.padded, model.padded and shortest < setting.n
        chosen = {"patience": setting.patience if kept is not None else None} | options
        result = train(
            SortedPrefix(model) if sorts(setting) else model,
            lists,
            held_out=kept,
            out=None if out is None else Path(out),
            **training_options(setting) | chosen,
        )
        model.padded = was_padded
        units = float(ratings.shift), float(ratings.scale)
        rated = float(ratings.values.min()), float(ratings.values.max())
        catalogue = Catalogue(ratings.ids, ratings.titles, names)
        ranker = cls(model, catalogue, gains, setting, result, units, rated)
        if out is not None:
            ranker.save(out)
        return ranker

    def rerank(
        self,
        items: Any,
        observed: Any = None,
        *,
        k: int = 10,
        by: str = "gain",
        nfe: int | None = None,
        references: int = 1,
        samples: int = 64,
        level: float = 0.8,
        new: asked.NewItems | None = None,
        generator: torch.Generator | None = None,
    ) -> Reranking:
        """Rank lists of items for users who have ordered some items.

        Args:
            items: ids or titles of the items to rank, a list for one user or a list of lists for many; also
                an integer array or tensor of ids, ``(m,)`` or ``(users, m)``, -1 pads.
            observed: items in the user's order, best first (lists and arrays as for ``items``), or a mapping
                from items to ratings: equal ratings are put in random order, an item whose rating is NaN is
                one to rank. Observed items that ``items`` leaves out join the list. A ranker that was trained
                with ``told="ratings"`` reads the ratings of a mapping, which are then in the range of those
                trained on; others read their order, of which one item says the same as none.
            k: for the probability of being among the first k.
            by: what sorts the answer: "gain", the expected gain (see
                :mod:`factorank.rerank.expected_gain`), "place", the mean place, or it is the "mode"
                of the law, or a "sample" of it.
            nfe: network evaluations for a draw; 1 unless given, n for autoregressive models.
            references: random references to average over; more is better and slower.
            samples: draws that the probabilities of an answer are estimated by where they are not exact;
                they are exact at one evaluation.
            level: of the interval for the place.
            new: features of items that training has not seen, by item: a mapping from names of features to
                numbers, or all the numbers.
            generator: of the references and of ties; without one every call uses the same.

        The answer has observed items in the order of observation, exactly. Unknown items, items listed or
        observed twice, and lists longer than the model's n raise a :class:`FactorankError`; an empty list has
        an empty answer.
        """
        self._check(by, k, references, samples, level)
        generator = torch.Generator().manual_seed(0) if generator is None else generator
        single = asked.one_user(items, observed)
        lists = None
        names: Sequence[Any]
        if not single and not new:
            lists = asked.resolve_arrays(
                self.catalogue,
                self.model.n,
                items,
                self._none_observed(items) if observed is None else observed,
            )
        if lists is None:
            users = [items] if single else list(items)
            told = [observed] if single else ([None] * len(users) if observed is None else list(observed))
            allowed = self.rated if self.told == "ratings" else None
            lists, names = asked.resolve(
                self.catalogue, self.model.n, users, told, new or {}, generator, allowed
            )
            if lists.relevance is not None:  # ratings, as they were given
                lists.relevance = (lists.relevance + self.units[0]) * self.units[1]
        else:
            names = _NamesOf(self.catalogue.ids, lists.items)
        answer = self.rank(
            lists,
            k=k,
            by=by,
            nfe=nfe,
            references=references,
            samples=samples,
            level=level,
            generator=generator,
        )
        answer.names = names
        return answer[0] if single else answer

    def rank(
        self,
        lists: Lists,
        *,
        k: int = 10,
        by: str = "gain",
        nfe: int | None = None,
        references: int = 1,
        samples: int = 64,
        level: float = 0.8,
        generator: torch.Generator,
    ) -> Reranking:
        """:meth:`rerank` for lists that are tensors already; nothing is checked."""
        lists = lists.to(self.device)
        longest = int((lists.items >= 0).sum(-1).max()) if len(lists) else 0
        parts: list[tuple[Tensor, ...]] = []
        answers = self.answers(
            lists, by=by, nfe=nfe, references=references, samples=samples, generator=generator
        )
        for rows, order, places in answers:
            part = lists.part(rows)
            low, high = choose.interval(places, level)
            mean, top = choose.mean_place(places), places[..., :k].sum(-1).clamp(max=1.0)
            index = order.clamp(min=0)
            columns = (mean, low, high, top, part.seen)
            parts.append((order, *(column.gather(-1, index) for column in columns)))
        if not parts:
            n = self.model.n
            empty = torch.zeros((0, n), dtype=torch.int64)
            parts = [(empty, empty.float(), empty, empty, empty.float(), empty.bool())]
        order, mean, low, high, top, seen = (
            torch.cat(column)[:, :longest].cpu() for column in zip(*parts, strict=True)
        )
        ended = order < 0
        return Reranking(
            order,
            mean.masked_fill(ended, torch.nan),
            low.masked_fill(ended, -1),
            high.masked_fill(ended, -1),
            top.masked_fill(ended, 0.0),
            seen & ~ended,
            k,
            level,
        )

    def answers(
        self,
        lists: Lists,
        *,
        by: str = "gain",
        nfe: int | None = None,
        references: int = 1,
        samples: int = 64,
        generator: torch.Generator,
    ) -> Iterator[tuple[slice, Tensor, Tensor]]:
        """Orders ``(rows, n)`` of the places of lists, -1 past the end, and place probabilities
        ``(rows, n, n)``, in parts of the rows; the lists are on the model's device."""
        model = self.model
        if not reads_ratings(model):
            lists = replace(lists, relevance=None)
        nfe = (None if model.causal else 1) if nfe is None else nfe
        if bool((lists.items < 0).any()) and not takes_shorter(model):
            raise ModelError(
                f"this ranker takes lists of exactly {model.n} items: shorter ones need an aligned"
                " layout and an insertion code"
            )
        if self.known == "sorted" and not model.causal and nfe != 1:
            raise ModelError(
                f"this ranker has learnt one evaluation, given the observed items; {nfe=} needs a setting"
                " with known='random'"
            )
        table = choose.gain_table(self.gains).to(self.device)
        probabilities = place_probabilities(
            model,
            lists,
            nfe=nfe,
            references=references,
            samples=samples,
            known=self.known,
            generator=generator,
        )
        for rows, places in probabilities:
            part = lists.part(rows)
            present = part.items >= 0
            if by in ("mode", "sample"):
                order = one_order(model, part, how=by, nfe=nfe, known=self.known, generator=generator)
            elif by == "gain":
                score = choose.expected_gain(places, present.sum(-1), table)
                order = choose.sorted_by(score, part.observed, present)
            else:
                order = choose.sorted_by(-choose.mean_place(places), part.observed, present)
            yield rows, order, places

    # Saving.

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Write the model and ``ranker.json`` (items, titles, features, gains, setting) into a folder."""
        folder = Path(folder)
        self.model.save_pretrained(folder)
        write_json(
            folder / FILE,
            {
                "format": "factorank-ranker",
                "version": 1,
                "setting": None if self.setting is None else asdict(self.setting),
                "features": list(self.catalogue.features),
                "gains": self.gains.tolist(),
                "units": list(self.units),
                "rated": None if self.rated is None else list(self.rated),
                "ids": list(self.catalogue.ids),
                "titles": self.catalogue.titles,
            },
        )

    @classmethod
    def load(cls, folder: str | os.PathLike[str]) -> "Ranker":
        """The ranker that :meth:`save` wrote, or that ``fit`` left in its run's folder."""
        path = Path(folder) / FILE
        if not path.is_file():
            raise ModelError(f"there is no ranker in {folder}: {FILE} is missing")
        try:
            facts = json.loads(path.read_bytes())
        except ValueError as error:
            raise ModelError(f"{path} is not JSON: {error}") from None
        if not isinstance(facts, dict) or facts.get("format") != "factorank-ranker":
            raise ModelError(f"{path} does not describe a ranker")
        if facts.get("version") != 1:
            raise ModelError(f"{path} is of format version {facts.get('version')!r}; this factorank reads 1")
        setting = facts["setting"]
        if setting is not None:
            setting = Setting(**setting | {"features": tuple(setting["features"])})
        return cls(
            PermutationModel.from_pretrained(folder),
            Catalogue(facts["ids"], facts["titles"], facts["features"]),
            torch.tensor(facts["gains"]),
            setting,
            units=tuple(facts.get("units", (0.0, 1.0))),
            rated=tuple(facts["rated"]) if facts.get("rated") else None,
        )

    def to(self, device: torch.device | str) -> "Ranker":
        """Move the model to a device."""
        self.model.to(device)
        return self

    def __repr__(self) -> str:
        model = self.model
        return f"Ranker(items={len(self.catalogue)}, n={model.n}, objective={model.objective!r})"

    def _none_observed(self, items: Any) -> Tensor:
        return torch.zeros((len(items), 0), dtype=torch.int64)

    def _check(self, by: str, k: int, references: int, samples: int, level: float) -> None:
        if by not in BY:
            raise FactorankError(f"an answer is by {', '.join(BY)}, not {by!r}")
        for name, value in (("k", k), ("references", references), ("samples", samples)):
            if value < 1:
                raise FactorankError(f"{name} is at least 1, not {value}")
        if not 0 < level < 1:
            raise FactorankError(f"the level of an interval is between 0 and 1, not {level}")


class _NamesOf(Sequence[list[Any]]):
    """The names of lists of ids, made when they are asked for."""

    def __init__(self, ids: Sequence[Any], items: Tensor) -> None:
        self._ids, self._items = ids, items

    def __len__(self) -> int:
        return len(self._items)

    def __getitem__(self, index: Any) -> Any:
        return [self._ids[i] for i in self._items[index].tolist() if i >= 0]
