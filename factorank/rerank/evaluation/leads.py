"""How far a method is ahead of another, user by user: both rank the same lists.

Users differ more than methods do. The difference of two methods for a user does not contain what makes that
user easy or hard, so its standard error is below that of either mean.
"""

from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch import Tensor

from factorank.rerank.evaluation.scores import standard_error

KIND = ("data", "method", "label", "code", "objective", "layout", "reads", "on")
"""What runs that differ in their seeds alone have in common."""
SOURCE = ("command", "commit", "device")
"""Where the rows of a run come from."""


def lead_rows(runs: Iterable[tuple[dict[str, Any], dict[str, Tensor]]]) -> list[dict[str, Any]]:
    """A row for each kind of ranker, baseline, n, r and k.

    A run is one of its rows of results and its scores ``(users,)`` by ``seed/n/r/k``. Runs of one kind are
    put together; their rows name the source of the first.
    """
    scores: dict[tuple[Any, ...], dict[str, Tensor]] = {}
    sources: dict[tuple[Any, ...], dict[str, Any]] = {}
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


def leads(ours: dict[str, Tensor], theirs: dict[str, Tensor]) -> Iterator[dict[str, Any]]:
    """The lead of one method over another at each n, r and k: scores ``(users,)`` by ``seed/n/r/k``.

    ``lead`` is the mean over the users, and over the seeds that both have, of the difference in NDCG of the
    unobserved items; ``lead_se`` is its standard error over the users.

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
        n, r, k = map(int, cell.split("/"))
        each = torch.stack(differences).mean(0)
        yield {
            "n": n,
            "r": r,
            "k": k,
            "seeds": len(differences),
            "users": len(each),
            "lead": float(each.mean()),
            "lead_se": standard_error(each),
        }
