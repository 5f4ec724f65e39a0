"""NDCG of rankers and baselines, against the number of observed items, and leads of one over another."""

import math
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from factorank.data.ratings import Ratings, as_ratings
from factorank.metrics import ndcg
from factorank.rerank.answering import answers
from factorank.rerank.evaluation.calibration import bits, calibration
from factorank.rerank.evaluation.protocol import KS, Evaluation, EvaluationLists
from factorank.rerank.expected_gain import with_observed_order
from factorank.rerank.ranker import Ranker
from factorank.rerank.reranking import Query
from factorank.training.random_streams import stream_seed

if TYPE_CHECKING:
    from factorank.baselines.rankers import BaselineRanker

Row = dict[str, Any]
KIND = ("data", "method", "label", "code", "objective", "layout", "reads", "on")
"""What runs that differ in their seeds alone have in common."""
MOST_ITEMS = 10_000
"""Of a table that EASE is fitted to."""
SOURCE = ("command", "commit", "device")
"""Where the rows of a run come from."""


@dataclass
class Scores:
    """What :func:`evaluate` measured."""

    rows: list[Row]
    """A row for each method, share of fillers, n, r and k."""
    calibration: list[Row]
    """A row for each bin of the ranker's stated probabilities."""
    by_user: dict[str, dict[str, Tensor]]
    """The NDCG of the unobserved items of each user, by method and by ``seed/n/r/k`` (see :func:`leads`)."""

    def leads(self) -> list[Row]:
        """How far the ranker is ahead of each baseline at each n, r and k, with standard errors."""
        ours = self.by_user["factorank"]
        others = {name: theirs for name, theirs in self.by_user.items() if name != "factorank"}
        return [{"baseline": name} | row for name, theirs in others.items() for row in leads(ours, theirs)]


def evaluate(
    ranker: Ranker,
    table: Any,
    evaluation: Evaluation | None = None,
    *,
    baselines: "Sequence[BaselineRanker]" = (),
) -> Scores:
    """Measure a ranker, and fitted baselines beside it, on lists of users that were not trained on.

    A row holds the method, n, r, k, the share of fillers, and the NDCG of the whole list and of the
    unobserved items, each with its standard error over the users; those of the ranker also the code length in
    bits, unless the list is longer than those of its model. Sizes n that the ranker does not take, or that
    nobody has ratings for, are left out, and so are shares of fillers for which nobody has left enough items
    unrated.

    Args:
        table: ratings: what :func:`factorank.load_ratings` returns, a frame, or a mapping of columns.
        evaluation: what is measured.
        baselines: of :mod:`factorank.baselines.rankers`, fitted to the ratings that the ranker was.
    """
    evaluation = Evaluation() if evaluation is None else evaluation
    ratings = ranker.same_items(as_ratings(table))
    names = ("factorank", *(baseline.name for baseline in baselines))
    scores = Scores([], [], {name: {} for name in names})
    for n in evaluation.sizes(ratings, ranker):
        for share in evaluation.shares(ratings, n):
            lists = evaluation.draw(ratings, n, share)
            rs = evaluation.observed_counts(n, share)
            _measure_ranker(ranker, lists, rs, evaluation, scores)
            for baseline in baselines:
                own = scores.by_user[baseline.name]
                rows = _baseline_rows(baseline, lists, rs, evaluation.ks, own)
                scores.rows += [{"method": baseline.name} | row for row in rows]
    return scores


def _measure_ranker(
    ranker: Ranker, lists: EvaluationLists, rs: list[int], evaluation: Evaluation, scores: Scores
) -> None:
    """Add the rows of a ranker on lists, and of its calibration where they hold rated items alone."""
    query, causal, n = evaluation.query, ranker.model.causal, lists.n
    if ranker.model.code.name != "insertion":  # no other code takes an observed order
        rs = [r for r in rs if r <= 1]
    calibrated = {0, rs[len(rs) // 2], rs[-1]} if evaluation.calibrate and not lists.fillers else set()
    started, about = time.perf_counter(), {"method": "factorank", "nfe": n if causal else query.nfe or 1}
    rows: list[Row] = []
    for r in rs:
        shown = lists.showing(r) if lists.fillers else lists
        with training_precision(ranker):
            order, places = ranked(ranker, shown, r, query, evaluation.seed)
            length = bits(ranker, shown, r, nfe=query.nfe, seed=evaluation.seed)
        samples = query.draws(n, r) if causal or query.nfe not in (None, 1) else None
        own = {"bits": None if math.isnan(length) else length, "samples": samples}
        measured = score_order(shown, order, r, evaluation.ks, scores.by_user["factorank"])
        rows += [about | row | own for row in measured]
        if r in calibrated:
            scores.calibration += [about | row for row in calibration(places, shown, r, evaluation.ks)]
    seconds = round(time.perf_counter() - started, 2)
    scores.rows += [row | {"seconds": seconds} for row in rows]


def fitted_baselines(
    train: Ratings,
    validation: Ratings,
    n: int,
    names: Sequence[str] = ("mean-rating", "ease", "matrix-factorisation"),
) -> "list[BaselineRanker]":
    """Baselines fitted to training users, with the settings that are best on lists of n of validation users.

    EASE is left out beyond :data:`MOST_ITEMS` items: its time grows with their cube.
    """
    from factorank.baselines.rankers import ranker

    return [ranker(name).fit(train, validation, n=n) for name in affordable(names, train)]


def affordable(names: Sequence[str], train: Ratings) -> list[str]:
    """Names of baselines without EASE, if the ratings have more than :data:`MOST_ITEMS` items."""
    return [name for name in names if name != "ease" or train.item_count <= MOST_ITEMS]


def leads_over_baselines(ranker: Ranker, users: dict[str, Ratings]) -> list[Row]:
    """The leads in NDCG@10 over the usual baselines on "validation" users, with none, 5 and 10 observed of
    lists of 20 and of the longest, in that of the whole list where all are shorter than 10; none where these
    users have too few ratings."""
    validation = users["validation"]
    longest = int(validation.lengths.max()) if len(validation) else 0
    wanted = (20, ranker.model.n)
    sizes = tuple(dict.fromkeys(n for n in wanted if n in ranker.lengths and n <= longest))
    if not sizes:
        return []
    evaluation = Evaluation(sizes, (0, 5, 10), (min(10, sizes[0]),), lists=500, calibrate=False)
    baselines = fitted_baselines(users["train"], validation, sizes[-1])
    return evaluate(ranker, validation, evaluation, baselines=baselines).leads()


def evaluate_baseline(
    baseline: "BaselineRanker",
    ratings: Ratings,
    n: int,
    evaluation: Evaluation | None = None,
    *,
    user_scores: dict[str, Tensor] | None = None,
) -> list[Row]:
    """Rows of a fitted baseline on the same lists of n as :func:`evaluate` draws for rankers."""
    evaluation = Evaluation() if evaluation is None else evaluation
    rows: list[Row] = []
    for share in evaluation.shares(ratings, n):
        lists, rs = evaluation.draw(ratings, n, share), evaluation.observed_counts(n, share)
        rows += _baseline_rows(baseline, lists, rs, evaluation.ks, user_scores)
    return rows


def _baseline_rows(
    baseline: "BaselineRanker",
    lists: EvaluationLists,
    rs: list[int],
    ks: Sequence[int],
    user_scores: dict[str, Tensor] | None,
) -> list[Row]:
    started = time.perf_counter()
    rows: list[Row] = []
    for r in rs:
        generator = torch.Generator().manual_seed(stream_seed(0, "baseline", r))
        shown = lists.showing(r) if lists.fillers else lists
        observed = shown.observed(r) if baseline.reads == "order" else shown.relevance[:, :r]
        scores = baseline.scores(shown.items, r, observed, generator=generator).cpu()
        order = scores.argsort(dim=-1, descending=True, stable=True)  # the list itself is in random order
        # Over the whole list, observed items keep the observed order.
        order = with_observed_order(order, shown.observed(r))
        rows += score_order(shown, order, r, ks, user_scores)
    seconds = round(time.perf_counter() - started, 2)
    return [row | {"bits": None, "seconds": seconds} for row in rows]


def training_precision(ranker: Ranker) -> torch.autocast:
    """The precision that the ranker was trained in, as a context."""
    in_bf16 = ranker.setting is not None and ranker.setting.precision == "bf16"
    return torch.autocast(ranker.device.type, torch.bfloat16, enabled=in_bf16)


def ranked(
    ranker: Ranker, lists: EvaluationLists, r: int, query: Query, seed: int = 0
) -> tuple[Tensor, Tensor]:
    """Orders ``(lists, n)`` of the ranker and the place probabilities ``(lists, n, n)``, on the CPU."""
    generator = torch.Generator().manual_seed(stream_seed(seed, "references"))
    own, n = lists.for_ranker(ranker, r).to(ranker.device), lists.n
    ranked = answers(ranker, own, query, generator=generator)
    parts = [(order[:, :n].cpu(), places[:, :n, :n].cpu()) for _, order, places in ranked]
    return torch.cat([order for order, _ in parts]), torch.cat([places for _, places in parts])


def score_order(
    lists: EvaluationLists,
    order: Tensor,
    r: int,
    ks: Sequence[int] = KS,
    user_scores: dict[str, Tensor] | None = None,
) -> Iterator[Row]:
    """NDCG of orders ``(lists, n)`` over the whole list and over the unobserved items, for each k.

    Means over users (a user's lists are averaged first) with the standard error of the mean.
    """
    n = lists.n
    relevance = lists.relevance
    rest = order[order >= r].view(len(order), n - r) - r
    for k in ks:
        if k > n:
            continue
        row: Row = {"n": n, "r": r, "k": k, "fillers": lists.fillers}
        unobserved = ndcg(rest, relevance[:, r:], k)
        for name, value in (("ndcg", ndcg(order, relevance, k)), ("ndcg_unobserved", unobserved)):
            row[name], row[f"{name}_se"] = over_users(value, lists.users)
        if user_scores is not None:
            share = f"/{lists.fillers:g}" if lists.fillers else ""
            user_scores[f"{lists.seed}/{n}/{r}/{k}{share}"] = by_user(unobserved, lists.users).float()
        yield row | {"users": int(lists.users.unique().numel()), "lists": len(order)}


def over_users(values: Tensor, users: Tensor) -> tuple[float, float]:
    """The mean over users of the mean of each user's values ``(lists,)``, and its standard error."""
    means = by_user(values, users)
    return float(means.mean()), standard_error(means)


def by_user(values: Tensor, users: Tensor) -> Tensor:
    """The mean of each user's values ``(lists,)``, float64 ``(users,)``, by the number of the user."""
    _, index, count = users.unique(return_inverse=True, return_counts=True)
    return values.new_zeros(len(count), dtype=torch.float64).index_add_(0, index, values.double()) / count


def standard_error(means: Tensor) -> float:
    """The standard error of the mean of independent values ``(users,)``; 0 for one alone."""
    return float(means.std() / math.sqrt(len(means))) if len(means) > 1 else 0.0


def lead_rows(runs: Iterable[tuple[Row, dict[str, Tensor]]]) -> list[Row]:
    """A row for each kind of ranker, baseline, n, r and k.

    A run is one of its rows of results and its scores ``(users,)`` by ``seed/n/r/k``. Runs of one kind are
    put together; their rows name the source of the first.
    """
    scores: dict[tuple[Any, ...], dict[str, Tensor]] = {}
    sources: dict[tuple[Any, ...], Row] = {}
    for row, user_scores in runs:
        kind = tuple(row.get(name) for name in KIND)
        scores.setdefault(kind, {}).update(user_scores)
        sources.setdefault(kind, {name: row.get(name) for name in SOURCE})
    rows = []
    for kind, ours in scores.items():
        about = dict(zip(KIND, kind, strict=True))
        for other, theirs in scores.items():
            against = dict(zip(KIND, other, strict=True))
            same = all(about[name] == against[name] for name in ("data", "on"))
            if same and about["method"] == "factorank" != against["method"]:
                common = {"experiment": "rerank-leads", **about, "baseline": against["method"]}
                rows += [common | row | sources[kind] for row in leads(ours, theirs)]
    return rows


def leads(ours: dict[str, Tensor], theirs: dict[str, Tensor]) -> Iterator[Row]:
    """The lead of one method over another at each n, r and k: scores ``(users,)`` by ``seed/n/r/k``, and by
    ``seed/n/r/k/fillers`` where a share of the list is fillers.

    ``lead`` is the mean over the users, and over the seeds that both have, of the difference in NDCG of the
    unobserved items; ``lead_se`` is its standard error over the users. Users differ more than methods do, so
    it is below the standard error of either mean.

    >>> ours, theirs = torch.tensor([0.9, 0.5]), torch.tensor([0.8, 0.3])
    >>> [row] = leads({"0/20/5/10": ours}, {"0/20/5/10": theirs})
    >>> row["n"], row["r"], row["k"], row["seeds"], round(row["lead"], 6), round(row["lead_se"], 6)
    (20, 5, 10, 1, 0.15, 0.05)
    """
    cells: dict[str, list[Tensor]] = {}
    for name, scores in ours.items():
        if name in theirs and theirs[name].shape == scores.shape:
            cells.setdefault(name.partition("/")[2], []).append(scores.double() - theirs[name].double())
    for cell, differences in cells.items():
        n, r, k, *fillers = cell.split("/")
        each = torch.stack(differences).mean(0)
        row: Row = {"n": int(n), "r": int(r), "k": int(k), "seeds": len(differences), "users": len(each)}
        row["fillers"] = float(fillers[0]) if fillers else 0.0
        yield row | {"lead": float(each.mean()), "lead_se": standard_error(each)}
