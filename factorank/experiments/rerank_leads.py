"""How far rankers are ahead of baselines, user by user: all are asked about the same lists.

Users differ more than methods do. The difference of two methods for a user does not hold what makes that user
easy or hard, so that its standard error is below that of either mean.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from factorank.rerank.evaluation import standard_error

USERS = "users.safetensors"
"""The file of a run with the NDCG of the unobserved items of each user, by ``seed/n/r/k``."""
KIND = ("data", "method", "label", "code", "objective", "layout", "reads", "on")
"""What runs that differ in their seeds alone have in common."""
MADE = ("command", "commit", "device")
"""What says where a ranker's rows come from: those of its first run in the folder."""


def leads(out: Path) -> list[dict[str, Any]]:
    """A row for each kind of ranker, baseline, n, r and k of the runs in a folder.

    ``lead`` is the mean over the users, and over the seeds that both have, of the difference in NDCG of the
    unobserved items; ``lead_se`` is its standard error over the users.
    """
    from safetensors.torch import load_file

    kinds: dict[tuple[Any, ...], dict[str, Tensor]] = {}
    made: dict[tuple[Any, ...], dict[str, Any]] = {}
    for file in sorted(out.glob(f"*/{USERS}")):
        rows = file.with_name("rows.jsonl")
        if rows.exists() and (text := rows.read_text(encoding="utf-8")):
            first = json.loads(text.partition("\n")[0])
            kind = tuple(first.get(name) for name in KIND)
            kinds.setdefault(kind, {}).update(load_file(file))
            made.setdefault(kind, {name: first.get(name) for name in MADE})
    found = []
    for kind, ours in kinds.items():
        about = {"experiment": "rerank-leads"} | dict(zip(KIND, kind, strict=True))
        for other, theirs in kinds.items():
            against = dict(zip(KIND, other, strict=True))
            same = all(about[name] == against[name] for name in ("data", "on"))
            if same and about["method"] == "factorank" != against["method"]:
                about["baseline"] = against["method"]
                found += [about | row | made[kind] for row in compared(ours, theirs)]
    return found


def compared(ours: dict[str, Tensor], theirs: dict[str, Tensor]) -> Iterator[dict[str, Any]]:
    """The lead of one method over another at each n, r and k: scores ``(users,)`` by ``seed/n/r/k``.

    >>> ours, theirs = torch.tensor([0.9, 0.5]), torch.tensor([0.8, 0.3])
    >>> [row] = compared({"0/20/5/10": ours}, {"0/20/5/10": theirs})
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
