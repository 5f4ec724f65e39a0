"""The figure of the jigsaw experiment: the methods against the grid."""

from typing import Any

from factorank.errors import FactorankError
from factorank.figures.drawing import (
    BLUE,
    CODE_STYLES,
    GREY,
    METHOD_STYLES,
    SKY,
    AnyPath,
    legend_below,
    means,
    of_results,
    panels,
    save,
)
from factorank.files import read_json_lines

OURS = ("default", "codes", "paper")
"""The labels of our models that are drawn."""
PUBLISHED = {"Symmetric Diffusers": (8, 5.0), "Soft-Rank Diffusion": (8, 52.6)}
"""Correct pieces in percent that others have published for CIFAR-10, with the grid."""
COLUMNS = {
    "solved_identical": ("puzzles solved (%)", 100),
    "pieces_identical": ("pieces right (%)", 100),
    "per_second": ("puzzles a second", 1),
}


@of_results
def jigsaw_figure(results: AnyPath, path: AnyPath) -> None:
    """Against the grid: puzzles solved, pieces right (identical ones count as equal), puzzles a second; and
    all codes beside each other at one grid.

    Values are means over the seeds, of masked models at one evaluation. A line of our models takes at each
    grid the code that has the most seeds. The last panel shows the grid that has the most codes and
    objectives, of the rows with the label "codes" if there are some.
    """
    rows = [row for row in read_json_lines(results) if row.get("split", "test") == "test"]
    rows = [row for row in rows if row["method"] != "factorank" or row.get("label") in OURS]
    rows = [row for row in rows if row["objective"] != "masked" or row["nfe"] == 1]
    if not rows:
        raise FactorankError(f"{results} holds no results on test pictures")
    figure, ((*axes,),) = panels(1, len(COLUMNS) + 1, 16, 4.4)
    shown = _one_code_a_grid([row for row in rows if row.get("label") != "codes"] or rows)
    lines = sorted({_line(row)[:2] for row in shown}, key=str)
    grids = sorted({row["grid"] for row in shown})
    for axis, (key, (title, scale)) in zip(axes, COLUMNS.items(), strict=False):
        for line in lines:
            points = means([row for row in shown if _line(row)[:2] == line], "grid", key, scale)
            if points:
                axis.plot(*zip(*points, strict=True), **_style(*line))
        axis.set(title=title, xlabel="pieces in a row", xticks=grids)
        axis.grid(alpha=0.3)
        if scale == 100:
            axis.set_ylim(-3, 103)
    for (name, (grid, share)), mark in zip(PUBLISHED.items(), "+*", strict=True):
        if grid in grids:
            axes[1].plot([grid], [share], mark, color="black", markersize=9, label=f"{name} (published)")
    axes[2].set_yscale("log")
    legend_below(figure, 5, *axes[1].get_legend_handles_labels(), fontsize=9)
    _draw_codes(axes[3], rows)
    save(figure, path)


def _draw_codes(axis: Any, rows: list[dict[str, Any]]) -> None:
    """All codes at one grid with 95% intervals: masked models filled, autoregressive ones white."""
    ours = [row for row in rows if row["method"] == "factorank"]
    compared = "codes" if any(row["label"] == "codes" for row in ours) else "default"
    ours = [row for row in ours if row["label"] in (compared, "paper")]
    if not ours:
        axis.set_visible(False)
        return
    grid = max({row["grid"] for row in ours}, key=lambda g: len({_line(r) for r in ours if r["grid"] == g}))
    codes = [code for code in CODE_STYLES if any((r["code"], r["grid"]) == (code, grid) for r in ours)]
    marks = {compared: ("o", 7), "paper": ("D", 5)}
    drawn = [(label, objective) for label in marks for objective in ("masked", "autoregressive")]
    present = {_line(row)[1::2] for row in ours if row["grid"] == grid}
    drawn = [pair for pair in drawn if pair in present]
    for place, (label, objective) in enumerate(drawn):
        mark, size = marks[label]
        for code in codes:
            here = [r for r in ours if _line(r)[1:] == (label, code, objective) and r["grid"] == grid]
            if not here:
                continue
            keys = ("solved_identical", "solved_identical_low", "solved_identical_high")
            least = 50 / max(row.get("puzzles", 10_000) for row in here)  # half a puzzle: 0 has no logarithm
            value, low, high = (max(100 - means(here, "grid", key, 100)[0][1], least) for key in keys)
            at = codes.index(code) + 0.2 * (place - (len(drawn) - 1) / 2)
            axis.vlines(at, low, high, color="0.6", linewidth=1)
            colour = CODE_STYLES[code][0]
            style = {"color": colour, "markerfacecolor": colour if objective == "masked" else "white"}
            name = objective + ("" if label == compared else ", the paper's network")
            axis.plot(at, value, mark, markersize=size, label=name, **style)
    axis.set(title=f"puzzles not solved (%), {grid}×{grid}", xlim=(-0.6, len(codes) - 0.4), yscale="log")
    axis.set_xticks(range(len(codes)), codes, rotation=20)
    axis.grid(alpha=0.3)
    axis.yaxis.set_major_formatter("{x:g}")
    handles = dict(zip(*axis.get_legend_handles_labels()[::-1], strict=True))  # one for each name
    axis.legend(handles.values(), handles.keys(), fontsize=8)


def _line(row: dict[str, Any]) -> tuple[str, str | None, str | None, str | None]:
    return row["method"], row.get("label"), row["code"], row["objective"]


def _one_code_a_grid(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The baselines, and of our models at each grid those of the code and objective with the most seeds."""
    kept = [row for row in rows if row["method"] != "factorank"]
    ours = [row for row in rows if row["method"] == "factorank"]
    for label, grid in sorted({(row["label"], row["grid"]) for row in ours}):
        here = [row for row in ours if (row["label"], row["grid"]) == (label, grid)]
        kinds = [_line(row) for row in here]
        most = max(sorted(set(kinds), key=str, reverse=True), key=kinds.count)
        kept += [row for row in here if _line(row) == most]
    return kept


def _style(method: str, label: str | None) -> dict[str, Any]:
    if method != "factorank":
        name, colour, mark = METHOD_STYLES.get(method, (method, GREY, "x"))
        style = {"color": colour, "marker": mark, "linestyle": "--", "linewidth": 1.2, "label": name}
        # Baselines that lie on one another stay visible.
        return style | ({"markersize": 9, "markerfacecolor": "white"} if method == "gumbel-sinkhorn" else {})
    if label == "default":
        return {"color": BLUE, "marker": "o", "linewidth": 1.8, "label": "factorank, one evaluation"}
    return {"color": SKY, "marker": "D", "linewidth": 1.2, "label": "factorank, the paper's network"}
