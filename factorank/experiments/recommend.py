"""Recommendation from the whole catalogue, split by time: the ratings of the past, and those that came after.

All methods learn from the ratings before a moment. Each user who has some on both sides is recommended items
from those of the past; the targets are the items rated later. Recall@20 and NDCG@10, means over the users.
"""

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from factorank.baselines.recommenders import ImplicitFactors, ItemWeights, MostRated, Recommender
from factorank.data.ratings import Ratings
from factorank.data.ratings.choices import chosen
from factorank.experiments import record
from factorank.rerank import PRESETS, Query, Ranker, Setting
from factorank.rerank.evaluation.scores import standard_error
from factorank.rerank.recommending import Histories, candidates_for, histories_of, hit_scores

LEAST, AT_ONCE, LONGEST = 5, 256, 20
PENALTIES = (100.0, 200.0, 400.0, 800.0)


def run(
    ratings: Ratings,
    out: str | Path,
    *,
    share: float = 0.1,
    setting: Setting | None = None,
    ranker: Ranker | None = None,
    **options: Any,
) -> list[dict[str, Any]]:
    """Rows of a ranker and of the baselines on the latest ``share`` of ratings, written to ``out``.

    EASE's penalty is the one that is best on the latest tenth of the training ratings. ``ranker`` is one
    that was fitted to the earlier ratings; without it one is trained, with ``options`` of
    :func:`factorank.train`.
    """
    source = record.provenance(call_of(setting, share))
    train, later = chosen(ratings).split_by_time(share)
    learned = train.of_users(train.users_with(LEAST))
    if ranker is None:
        ranker = Ranker.fit(learned, setting=setting, out=Path(out).with_suffix(""), **options)
    rows = []
    for name, score in methods(ranker, train).items():
        started = time.perf_counter()
        measured = measure(score, train, later)
        about = {"experiment": "recommend", "data": ratings.source, "method": name, "share": share}
        rows.append(about | measured | {"seconds": round(time.perf_counter() - started, 1)} | source)
    record.write_results(out, rows)
    return rows


def call_of(setting: Setting | None, share: float) -> str:
    """The call that makes the rows.

    >>> from factorank.rerank import preset
    >>> call_of(preset("small", steps=100), 0.1)
    "factorank.experiments.recommend.run(data, out, share=0.1, setting=preset('small', steps=100))"
    """
    words = f"data, out, share={share}"
    if setting is not None:
        differing = ", ".join(["'small'", *record.keywords(record.changes(setting, PRESETS["small"]))])
        words += f", setting=preset({differing})"
    return f"factorank.experiments.recommend.run({words})"


def methods(ranker: Ranker, train: Ratings) -> dict[str, Callable[[Histories], Tensor]]:
    """What recommends the best items ``(rows, 20)`` from histories, by name."""
    earlier, last = train.split_by_time(0.1)
    best = max(
        PENALTIES, key=lambda p: measure(by_scores(ItemWeights(p).fit(earlier)), earlier, last)["ndcg"]
    )
    baselines: Sequence[Recommender] = (MostRated(), ImplicitFactors(), ItemWeights(best))
    return {"factorank": by_ranker(ranker)} | {b.name: by_scores(b.fit(train)) for b in baselines}


def by_ranker(ranker: Ranker) -> Callable[[Histories], Tensor]:
    """The recommendations of a ranker."""

    def best(histories: Histories) -> Tensor:
        generator = torch.Generator().manual_seed(0)
        listed = candidates_for(ranker, histories, Query(), generator=generator)
        order = listed.order(ranker.gain_table(listed.items.shape[1]), ranker.blend)[:, :LONGEST]
        return listed.items.gather(-1, order.clamp(min=0)).masked_fill(order < 0, -1)

    return best


def by_scores(recommender: Recommender) -> Callable[[Histories], Tensor]:
    """The items with the highest scores that are not in the history."""

    def best(histories: Histories) -> Tensor:
        scores = recommender.scores(histories.items)
        rows = torch.arange(len(scores))[:, None].expand_as(histories.items)
        mine = histories.items >= 0
        scores[rows[mine], histories.items[mine]] = -torch.inf
        return scores.topk(LONGEST, dim=-1).indices

    return best


def measure(best: Callable[[Histories], Tensor], train: Ratings, later: Ratings) -> dict[str, Any]:
    """Recall@20 and NDCG@10 with standard errors, over users with ratings on both sides."""
    users = ((train.lengths >= LEAST) & (later.lengths >= 1)).nonzero()[:, 0]
    recall, ndcg = [], []
    for part in users.split(AT_ONCE):
        rows = [torch.arange(int(train.starts[user]), int(train.starts[user + 1])) for user in part.tolist()]
        targets = [
            set(later.items[int(later.starts[user]) : int(later.starts[user + 1])].tolist())
            for user in part.tolist()
        ]
        top = best(histories_of(train, rows))
        recall.append(hit_scores(top, targets)["recall"])
        ndcg.append(hit_scores(top[:, :10], targets)["ndcg"])
    scores = {"recall": torch.cat(recall).double(), "ndcg": torch.cat(ndcg).double()}
    measured: dict[str, Any] = {"users": len(users), "recall_k": LONGEST, "ndcg_k": 10}
    for name, values in scores.items():
        measured |= {name: float(values.mean()), f"{name}_se": standard_error(values)}
    return measured
