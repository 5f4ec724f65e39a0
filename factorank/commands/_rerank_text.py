"""What ``factorank rerank`` prints: tables of answers and scores, what is trained, how far it is ahead."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from factorank.commands._text import counted, duration, percent, shorten, table
from factorank.files import write_json, write_whole

if TYPE_CHECKING:
    import torch

    from factorank.rerank import Reranking, Setting


def training_line(preset: str | None, setting: "Setting", seconds: float, device: "torch.device") -> str:
    """What will be trained, how long it takes, and what to change; without a preset the earlier ranker."""
    change = "--steps or --max-seconds make it shorter"
    if preset in ("default", "paper") and device.type == "cpu":
        change = "--preset small is for CPUs"
    elif preset == "small":
        change += ", --preset default is a larger network for a GPU"
    shortest = "" if setting.shortest_list == setting.n else f"{setting.shortest_list} to "
    reads = ", ".join([f"{setting.told} of observed items", *(setting.features or ())])
    what = "the earlier ranker" if preset is None else f"the preset {preset}"
    return (
        f"training {what} on lists of {shortest}{setting.n} ({reads}): {setting.steps:,} steps,"
        f" about {duration(seconds)} on this {device.type.upper()}; {change}"
    )


def lead_text(leads: list[dict[str, Any]]) -> str:
    """How far a ranker is ahead of the best baseline in each cell, and in a last line over all of them.

    >>> row = {"baseline": "mean-rating", "n": 20, "r": 5, "k": 10, "lead": 0.0123, "lead_se": 0.002}
    >>> print(lead_text([row]))
       n  r  best baseline  lead in NDCG@10    s.e.
      20  5  mean-rating            +0.0123  0.0020
    <BLANKLINE>
    on validation users, against mean-rating: ahead in all of 1 cell, by 0.0123 to 0.0123
    """
    if not leads:
        return "not compared with baselines: validation users have too few ratings"
    cells: dict[tuple[int, int], list[tuple[float, float, str]]] = {}
    for row in leads:
        cells.setdefault((row["n"], row["r"]), []).append((row["lead"], row["lead_se"], row["baseline"]))
    least = {cell: min(rows) for cell, rows in cells.items()}
    lines = [[n, r, name, f"{lead:+.4f}", f"{error:.4f}"] for (n, r), (lead, error, name) in least.items()]
    header = ["n", "r", "best baseline", f"lead in NDCG@{leads[0]['k']}", "s.e."]
    names = list(dict.fromkeys(row["baseline"] for row in leads))
    values = [lead for lead, *_ in least.values()]
    words = f"on validation users, against {', '.join(names)}: "
    if all(value > 0 for value in values):
        words += f"ahead in all of {counted(len(values), 'cell')}, by {min(values):.4f} to {max(values):.4f}"
    else:
        ahead = sum(value > 0 for value in values)
        words += (
            f"ahead in {ahead} of {counted(len(values), 'cell')}, by {min(values):+.4f} to {max(values):+.4f}"
        )
    means = [row for row in leads if row["baseline"] == "mean-rating"]
    if sum(row["lead"] for row in means) <= 0:
        words = "NOT BETTER THAN THE MEAN RATING OF EACH ITEM; train longer, or sort by that\n" + words
    elif behind := [f"n = {row['n']}, r = {row['r']}" for row in means if row["lead"] < -row["lead_se"]]:
        where = "; ".join(behind)
        words = (
            f"BEHIND THE MEAN RATING OF EACH ITEM at {where}: train longer, or sort by that there\n" + words
        )
    return table(header, lines, "rrl") + f"\n\n{words}"


def answer_table(answer: "Reranking", names: list[str], by: str) -> str:
    """The ranked items of one user; places count from 1 for people."""
    lines = []
    for place, (name, item) in enumerate(zip(names, answer, strict=True), start=1):
        mark, interval = "* " if item.observed else "", f"{item.low + 1}–{item.high + 1}"
        shown = [place, mark + shorten(name, 34), f"{item.place + 1:.1f}", interval]
        lines.append([*shown, f"{percent(item.top, 0)}%"])
    header = ["", "item", "expected place", f"{percent(answer.level, 0)}% interval", f"top {answer.k}"]
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

    header = ["place", "item", "name", "expected_place", "low", "high", f"top_{answer.k}", "given"]
    rows = [
        [place, item.item, name, item.place + 1, item.low + 1, item.high + 1, item.top, item.observed]
        for place, (name, item) in enumerate(zip(names, answer, strict=True), start=1)
    ]
    if path.suffix == ".json":
        write_json(path, [dict(zip(header, row, strict=True)) for row in rows])
    else:
        write_whole(path, csv_text(header, rows))


def some_of(rs: list[int], most: int) -> list[int]:
    """At most so many of the numbers, the first and the last among them, the early ones denser."""
    kept = rs if len(rs) <= most + 3 else [r for r in rs if r in {0, 1, 3, 5, 10, 20, 30, 40, rs[-1]}]
    while len(kept) > max(most, 2):
        gaps = [(kept[i + 1] - kept[i - 1]) / kept[i] for i in range(1, len(kept) - 1)]
        least = 1 + gaps.index(min(gaps))
        kept = kept[:least] + kept[least + 1 :]
    return kept


def scores_table(rows: list[dict[str, Any]]) -> str:
    """NDCG of the unobserved items by method and r, a block for each n and share of fillers; means over the
    seeds, and the largest standard error of each line."""
    blocks = []
    for n, fillers in sorted({(row["n"], row["fillers"]) for row in rows}):
        k = 10 if n > 10 else 5
        here = [row for row in rows if (row["n"], row["fillers"], row["k"]) == (n, fillers, k)]
        rs = sorted({row["r"] for row in here})
        methods = list(dict.fromkeys((row["method"], row["objective"]) for row in here))
        longest = max(len(", ".join(filter(None, method))) for method in methods)
        shown = some_of(rs, (78 - longest) // len("  0.000") - 1)
        lines = []
        for method, objective in methods:
            own = [row for row in here if (row["method"], row["objective"]) == (method, objective)]
            cells = []
            for r in shown:
                values = [row["ndcg_unobserved"] for row in own if row["r"] == r]
                cells.append(f"{sum(values) / len(values):.3f}" if values else "")
            error = max(row["ndcg_unobserved_se"] for row in own)
            lines.append([method if objective is None else f"{method}, {objective}", *cells, f"{error:.3f}"])
        lists = f", {percent(fillers, 0)}% of them not rated" if fillers else ", all rated"
        title = f"{n} items{lists}: NDCG@{k} of the others, by the number r of observed ones"
        header = ["method", *(f"r {r}" for r in shown), "s.e."]
        blocks.append(title + "\n\n" + table(header, lines, "l"))
    return "\n\n".join(blocks)
