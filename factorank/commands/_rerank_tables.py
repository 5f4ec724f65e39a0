"""The tables of ``factorank rerank``: the answer for a user, and scores by method."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from factorank.commands._text import shorten, table
from factorank.files import write_json, write_whole

if TYPE_CHECKING:
    from factorank.rerank import Reranking

COLUMNS = 80
"""Tables are not wider."""


def answer_table(answer: "Reranking", names: list[str], by: str) -> str:
    """The ranked items of one user; places count from 1 for people."""
    lines = [
        [
            place,
            ("" if not ranked.observed else "* ") + shorten(name, 34),
            f"{ranked.place + 1:.1f}",
            f"{ranked.low + 1}–{ranked.high + 1}",
            f"{100 * ranked.top:.0f}%",
        ]
        for place, (name, ranked) in enumerate(zip(names, answer, strict=True), start=1)
    ]
    header = ["", "item", "expected place", f"{100 * answer.level:.0f}% interval", f"top {answer.k}"]
    sorting = {
        "gain": "sorted by expected gain, in which the first places count most (--by)",
        "place": "sorted by expected place (--by)",
        "mode": "the likeliest order (--by)",
        "sample": "one sample of the order (--by)",
    }
    return table(header, lines, "rl") + f"\n\n  * ordered or rated by the user\n  {sorting[by]}"


def write_answer(path: Path, answer: "Reranking", names: list[str]) -> None:
    """The same rows as the table, for programs; places count from 1."""
    from factorank.data.rankings.tables import csv_text

    rows = [
        {
            "place": place,
            "item": ranked.item,
            "name": name,
            "expected_place": ranked.place + 1,
            "low": ranked.low + 1,
            "high": ranked.high + 1,
            f"top_{answer.k}": ranked.top,
            "given": ranked.observed,
        }
        for place, (name, ranked) in enumerate(zip(names, answer, strict=True), start=1)
    ]
    if path.suffix == ".json":
        write_json(path, rows)
    else:
        header = list(rows[0]) if rows else ["place", "item"]
        write_whole(path, csv_text(header, [list(row.values()) for row in rows]))


def some_of(rs: list[int], most: int) -> list[int]:
    """At most so many of the numbers, the first and the last among them, the early ones denser."""
    kept = rs if len(rs) <= most + 3 else [r for r in rs if r in {0, 1, 3, 5, 10, 20, 30, 40, rs[-1]}]
    while len(kept) > max(most, 2):
        gaps = [(kept[i + 1] - kept[i - 1]) / kept[i] for i in range(1, len(kept) - 1)]
        least = 1 + gaps.index(min(gaps))
        kept = kept[:least] + kept[least + 1 :]
    return kept


def scores_table(rows: list[dict[str, Any]]) -> str:
    """NDCG of the unobserved items by method and r, a block for each n; means over the seeds."""
    blocks = []
    for n in sorted({row["n"] for row in rows}):
        k = 10 if n > 10 else 5
        here = [row for row in rows if (row["n"], row["k"]) == (n, k)]
        rs = sorted({row["r"] for row in here})
        methods = list(dict.fromkeys((row["method"], row["objective"]) for row in here))
        longest = max(len(", ".join(filter(None, method))) for method in methods)
        shown = some_of(rs, (COLUMNS - 2 - longest) // len("  0.000"))
        lines = []
        for method, objective in methods:
            own = [row for row in here if (row["method"], row["objective"]) == (method, objective)]
            cells = []
            for r in shown:
                values = [row["ndcg_unobserved"] for row in own if row["r"] == r]
                cells.append(f"{sum(values) / len(values):.3f}" if values else "")
            lines.append([method if objective is None else f"{method}, {objective}", *cells])
        title = f"n = {n}: NDCG@{k} of the unobserved items, by the number r of observed ones"
        blocks.append(title + "\n\n" + table(["method", *(f"r {r}" for r in shown)], lines, "l"))
    return "\n\n".join(blocks)
