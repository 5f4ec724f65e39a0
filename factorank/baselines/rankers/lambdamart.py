"""LambdaMART: boosted trees that learn to order lists, on top of the scores of simpler rankers."""

from collections.abc import Sequence
from typing import Any, ClassVar, Self

import numpy as np
import torch
from torch import Tensor

from factorank.baselines.rankers.baseline import BaselineRanker, Grid, RatedLists, usual_counts
from factorank.baselines.rankers.ease import EASE
from factorank.baselines.rankers.factorisation import MatrixFactorisation
from factorank.baselines.rankers.unpersonalised import MeanRating, Popularity
from factorank.data.ratings import Ratings
from factorank.errors import RankerError

STEPS = 4
"""Labels are whole numbers: relevance in quarters."""
MOST_LISTS = 20_000
"""Lists that the trees learn from, at most."""
FEATURES = (
    *("mean", "log count", "factorisation", "ease", "factorisation beside mean", "ease beside mean"),
    *("mean beside list", "factorisation beside list", "ease beside list"),
    *("observed", "observed relevance", "observed beside mean", "items"),
)


class LambdaMART(BaselineRanker):
    """Gradient-boosted trees under the LambdaRank gradient of NDCG@k, by LightGBM (the extra ``ltr``).

    The features of an item of a list are its mean relevance, its number of ratings, the predictions of matrix
    factorisation and of EASE from the observed ratings, each of them also relative to the mean of the list,
    and how many items are observed with what ratings (:data:`FEATURES`). The rankers that give these features
    learn from half of the training users, the trees from lists of the other half: features that were learnt
    from the same ratings would give the answer away. Then the rankers learn from all users. The number of
    trees is chosen on validation users.

    Burges, "From RankNet to LambdaRank to LambdaMART: An overview", 2010.
    """

    name = "lambdamart"
    reads = "ratings"
    learned: ClassVar[Grid] = {"leaves": (7, 31)}

    def __init__(
        self, *, trees: int = 300, rate: float = 0.05, lists_per_user: int = 8, threads: int = 0
    ) -> None:
        self.trees, self.rate, self.lists_per_user, self.threads = trees, rate, lists_per_user, threads

    def fit(
        self, train: Ratings, validation: Ratings, *, n: int = 50, k: int = 10, seed: int = 0, **options: Any
    ) -> Self:
        _lightgbm()
        options = {"observed": usual_counts(n)} | options | {"n": n, "k": k, "seed": seed}
        half, other, _ = train.split(validation=0.5, test=0.0, seed=seed)
        self._below: list[BaselineRanker] = [MeanRating(), Popularity(), MatrixFactorisation(), EASE()]
        for below in self._below:  # all in relevances, so that their scores can be compared
            below.learned = {name: tried for name, tried in below.learned.items() if name != "target"}  # type: ignore[misc]
            below.fit(half, validation, **options)
        self._k = k
        self._data = [
            self._table(RatedLists.of(ratings, n, times, seed + 1).some(MOST_LISTS), options["observed"])
            for ratings, times in ((other, self.lists_per_user), (validation, 3))
        ]
        super().fit(train, validation, **options)
        for below in self._below:
            below.learn(train, **{name: below.settings[name] for name in below.learned})
        del self._data
        return self

    def learn(self, train: Ratings, leaves: int = 15) -> None:
        lightgbm = _lightgbm()
        (features, labels, groups), (other_features, other_labels, other_groups) = self._data
        most = int(max(labels.max(), other_labels.max()))
        settings = {
            "objective": "lambdarank",
            "metric": "ndcg",
            "ndcg_eval_at": [self._k],
            "lambdarank_truncation_level": self._k + 5,
            "label_gain": [2 ** (label / STEPS) - 1 for label in range(most + 1)],
            "num_leaves": leaves,
            "learning_rate": self.rate,
            "min_data_in_leaf": 50,
            "num_threads": self.threads,
            "deterministic": True,
            "force_row_wise": True,
            "verbose": -1,
            "seed": 0,
        }
        names = [name.replace(" ", "_") for name in FEATURES]
        data = lightgbm.Dataset(features, labels, group=groups, feature_name=names)
        held_out = lightgbm.Dataset(other_features, other_labels, group=other_groups, reference=data)
        stop = lightgbm.early_stopping(50, verbose=False)
        self.booster = lightgbm.train(settings, data, self.trees, valid_sets=[held_out], callbacks=[stop])

    def _scores(self, items: Tensor, r: int, observed: Tensor, generator: torch.Generator | None) -> Tensor:
        batch, n = items.shape
        features = self._features(items, r, observed).reshape(batch * n, len(FEATURES))
        if not batch * n:
            return torch.zeros((batch, n), device=items.device)
        scores = self.booster.predict(features, num_iteration=self.booster.best_iteration)
        return torch.as_tensor(np.asarray(scores), dtype=torch.float32, device=items.device).view(batch, n)

    def _features(self, items: Tensor, r: int, relevance: Tensor) -> np.ndarray:
        """``(batch, n, features)``"""
        mean, count, factorisation, ease = (
            ranker.scores(items, r, relevance if ranker.reads == "ratings" else None)
            for ranker in self._below
        )
        relative = [each - each[:, r:].mean(1, keepdim=True) for each in (mean, factorisation, ease)]
        observed = relevance.mean(1) if r else torch.zeros(len(items), device=items.device)
        above_mean = (relevance - mean[:, :r]).mean(1) if r else torch.zeros_like(observed)
        columns = [
            *(mean, count.log1p(), factorisation, ease, factorisation - mean, ease - mean, *relative),
            *(torch.full_like(mean, r), observed[:, None], above_mean[:, None]),
            torch.full_like(mean, mean.shape[1]),
        ]
        return torch.stack([column.expand_as(mean) for column in columns], -1).cpu().numpy()

    def _table(self, lists: RatedLists, observed: Sequence[int]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Features and labels of the unobserved items of lists, and the number of them in each list."""
        features, labels, groups = [], [], []
        for part, r in enumerate(observed):  # the lists are shared out among the numbers observed
            items, relevance = lists.items[part :: len(observed)], lists.relevance[part :: len(observed)]
            features.append(self._features(items, r, relevance[:, :r])[:, r:].reshape(-1, len(FEATURES)))
            labels.append((relevance[:, r:] * STEPS).round().long().cpu().numpy().reshape(-1))
            groups.append(np.full(len(items), items.shape[1] - r))
        return np.concatenate(features), np.concatenate(labels), np.concatenate(groups)


def _lightgbm() -> Any:
    try:
        import lightgbm
    except ImportError:
        raise RankerError("lambdamart needs LightGBM: pip install 'factorank[ltr]'") from None
    return lightgbm
