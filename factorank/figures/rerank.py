"""The figures of the re-ranking experiment: NDCG against what is observed, and calibration."""

from itertools import product, zip_longest
from typing import Any

from factorank.errors import FactorankError
from factorank.figures.drawing import (
    BLUE,
    GREEN,
    GREY,
    ORANGE,
    PURPLE,
    SKY,
    VERMILION,
    AnyPath,
    label_ends,
    legend_below,
    means,
    of_results,
    panels,
    save,
)
from factorank.files import read_json_lines

OBJECTIVES = {"masked": ("o", 0), "autoregressive": ("s", 1)}
"""The marker of each objective, and which line style of a layout it takes."""
LAYOUTS: dict[str, tuple[str, str, tuple[str, str], float]] = {
    "aligned": ("", BLUE, ("-", "--"), 2.2),
    "ratings": (", told ratings", BLUE, ("-", "--"), 2.2),
    "prefix": (", 2n tokens (paper)", SKY, (":", ":"), 1.2),
}
"""The end of the label, colour, line styles and width of each layout, and of rankers that read ratings."""
STYLES: dict[Any, tuple[str, str, str, str, float]] = {
    ("factorank", objective, layout): (f"{objective}{label}", colour, mark, lines[which], width)
    for layout, (label, colour, lines, width) in LAYOUTS.items()
    for objective, (mark, which) in OBJECTIVES.items()
} | {
    "matrix-factorisation": ("matrix factorisation", VERMILION, "^", "-", 1.0),
    "ease": ("EASE", ORANGE, "v", "-", 1.0),
    "lambdamart": ("LambdaMART", GREEN, "D", "-", 1.0),
    "score-and-sort": ("score and sort", PURPLE, "P", "-", 1.0),
    "mallows-mixture": ("Mallows mixture", GREY, "X", "-", 1.0),
}
"""Label, colour, marker, line and its width of each method; popularity and uniform RIM are far below."""
BASE = "mean-rating"
"""The method that others are compared with: they lie on top of each other otherwise."""
FEWEST = 30
"""The fewest items of a bin of the calibration: the share of a few is noise."""


@of_results
def rerank_figure(results: AnyPath, path: AnyPath) -> None:
    """The lead over the mean rating in NDCG@10 (@5 for n = 10) of the unobserved items, in points.

    Against how many items are observed: a row of panels for each set of data, a panel for each n; means over
    the seeds. Blue lines are factorank's. Lists hold rated items alone, where there are such rows.
    """
    rows = [row for row in read_json_lines(results) if row.get("code") in (None, "insertion")]
    share = min((row.get("fillers", 0) for row in rows), default=0)
    rows = [row for row in rows if row.get("fillers", 0) == share]
    sets = list(dict.fromkeys(row["data"] for row in rows if row["method"] == BASE))
    if not sets:
        raise FactorankError(f"{results} holds no rows of {BASE}, with which others are compared")
    sizes = sorted({row["n"] for row in rows if row["data"] in sets})
    figure, axes = panels(len(sets), len(sizes), 5.2 * len(sizes), 3.9 * len(sets))
    for line, data in zip(axes, sets, strict=True):
        for axis, n in zip(line, sizes, strict=True):
            k = 10 if n > 10 else 5
            here = [row for row in rows if (row["data"], row["n"], row["k"]) == (data, n, k)]
            axis.set_visible(bool(here))
            if not here:
                continue
            base = dict(means([row for row in here if row["method"] == BASE], "r", "ndcg_unobserved", 100))
            ends = {"mean rating": (max(base), 0.0, "black")}
            axis.axhline(0, color="black", linewidth=0.8)
            for style, (label, colour, mark, dashes, width) in STYLES.items():
                points = means([row for row in here if _key(row) == style], "r", "ndcg_unobserved", 100)
                points = [(r, value - base[r]) for r, value in points if r in base]
                if points:
                    look = {"color": colour, "marker": mark, "linestyle": dashes, "linewidth": width}
                    look |= {"markersize": 4.5, "markerfacecolor": colour if width > 1.5 else "white"}
                    axis.plot(*zip(*points, strict=True), **look)
                    ends[label] = (*points[-1], colour)
            axis.set(title=f"{data}, n = {n}", xlabel="observed items r", ylabel=f"points of NDCG@{k}")
            axis.xaxis.get_major_locator().set_params(integer=True)
            axis.grid(alpha=0.3)
            label_ends(axis, ends)
    save(figure, path)


@of_results
def calibration_figure(results: AnyPath, path: AnyPath) -> None:
    """How far the share of items in the top k is from what was stated: a row of panels for each set of data.

    Bins of all r and seeds together, without those of few items; the area of a mark grows with the size of
    its bin.
    """
    rows = read_json_lines(results)
    sets = list(dict.fromkeys(row["data"] for row in rows))
    lengths = {data: sorted({row["n"] for row in rows if row["data"] == data}) for data in sets}
    across = max(map(len, lengths.values()))
    figure, axes = panels(len(sets), across, 3.9 * across, 4.2 * len(sets))
    colours, marks = {"masked": BLUE, "autoregressive": ORANGE}, {1: "o", 3: "^", 5: "s", 10: "D"}
    labelled: dict[str, Any] = {}
    for data, line in zip(sets, axes, strict=True):
        for axis, n in zip_longest(line, lengths[data]):
            axis.set_visible(n is not None)
            axis.axhline(0, color="0.6", linewidth=1)
            for (objective, colour), (k, mark) in product(colours.items(), marks.items()):
                bins: dict[int, list[float]] = {}
                for row in rows:
                    if (row["data"], row["n"], row["objective"], row["k"]) == (data, n, objective, k):
                        total = bins.setdefault(row["bin"], [0.0, 0.0, 0.0])
                        for i, value in enumerate((1.0, row["stated"], row["hit"])):
                            total[i] += row["count"] * value
                kept = [bins[b] for b in sorted(bins) if bins[b][0] >= FEWEST]
                if kept:
                    most = max(count for count, *_ in kept)
                    style = {"marker": mark, "facecolors": colour, "edgecolors": "black", "linewidths": 0.8}
                    labelled[f"{objective}, k = {k}"] = axis.scatter(
                        [stated / count for count, stated, _ in kept],
                        [(hit - stated) / count for count, stated, hit in kept],
                        s=[12 + 60 * count / most for count, *_ in kept],
                        **style,
                    )
            axis.set(title=f"{data}, n = {n}", xlabel="stated probability of the top k")
            axis.set(ylabel="share that was, less that", xlim=(-0.03, 1.03), ylim=(-0.16, 0.16))
            axis.grid(alpha=0.3)
    _legend(figure, labelled)
    save(figure, path)


def _legend(figure: Any, labelled: dict[str, Any]) -> None:
    """A legend under the panels, in as many columns as the figure is wide, and the height that it takes."""
    width, height = figure.get_size_inches()
    columns = max(1, min(4, int(width / (0.6 + 0.07 * max(map(len, labelled), default=0)))))
    figure.set_size_inches(width, height + 0.2 + 0.2 * -(-len(labelled) // columns))
    legend_below(figure, columns, labelled.values(), labelled.keys(), fontsize=9)


def _key(row: dict[str, Any]) -> Any:
    if row["method"] == "factorank":
        return row["method"], row["objective"], "ratings" if row.get("reads") == "ratings" else row["layout"]
    return row["method"]
