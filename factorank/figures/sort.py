"""The figure of sorting handwritten numbers: items in place and lists exact, by the length of the lists."""

from typing import Any

from factorank.errors import FactorankError
from factorank.figures.drawing import BLACK, BLUE, ORANGE, SKY, AnyPath, label_ends, means, panels, save
from factorank.files import read_json_lines

SERIES = {
    ("factorank", 1): ("factorank", BLUE, "o", "-"),
    ("factorank", 3): ("factorank, 3 readers", SKY, "s", "--"),
    ("score-and-sort", 1): ("score and sort", ORANGE, "P", "-"),
}
"""Label, colour, marker and line, by method and the number of models that read together."""
PUBLISHED = {"Soft-Rank Diffusion": (200, 66.1, 1.4), "SymmetricDiffusers": (200, 0.6, 0.0)}
"""What others have published: the length, items in place and lists exact in percent."""


def sort_figure(results: AnyPath, path: AnyPath) -> None:
    """Two panels against the length of the lists: items in place, and lists exact; means over the seeds."""
    rows = [row for row in read_json_lines(results) if row["split"] == "test"]
    if not rows:
        raise FactorankError(f"{results} holds no results on test digits")
    figure, ((*axes,),) = panels(1, 2, 11, 4.2)
    lengths = sorted({row["n"] for row in rows})
    for place, (axis, key, title) in enumerate(
        zip(axes, ("items", "exact"), ("items in place (%)", "lists exact (%)"), strict=True)
    ):
        ends: dict[str, tuple[float, float, str]] = {}
        for (method, models), (label, colour, mark, line) in SERIES.items():
            chosen = [row for row in rows if (row["method"], row["nfe"]) == (method, models)]
            points = means(chosen, "n", key, 100)
            if points:
                axis.plot(*zip(*points, strict=True), color=colour, marker=mark, linestyle=line)
                _spread(axis, chosen, key, colour)
                ends[label] = (*points[-1], colour)
        for name, published in PUBLISHED.items():
            axis.plot(published[0], published[1 + place], "*", color=BLACK, markersize=9)
            ends[f"{name} (published)"] = (published[0], published[1 + place], BLACK)
        axis.set(xscale="log", xlabel="numbers in a list", title=title, ylim=(-3, 103))
        axis.set_xlim(lengths[0] * 0.9, lengths[-1] * 1.15)
        axis.set_xticks(lengths, [str(n) for n in lengths])
        axis.minorticks_off()
        axis.grid(alpha=0.3)
        label_ends(axis, ends)
    save(figure, path)


def _spread(axis: Any, rows: list[dict[str, Any]], key: str, colour: str) -> None:
    """A bar from the worst to the best seed."""
    for n in {row["n"] for row in rows}:
        values = [100 * row[key] for row in rows if row["n"] == n]
        axis.vlines(n, min(values), max(values), color=colour, linewidth=3, alpha=0.4)
