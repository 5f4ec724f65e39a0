"""The figure of tasks with several right answers: both answers found, and the divergence, against the NFE."""

from typing import Any

from factorank.figures.drawing import (
    CODE_STYLES,
    METHOD_STYLES,
    AnyPath,
    legend_below,
    means,
    of_results,
    panels,
    save,
)
from factorank.files import read_json_lines

LINES = {"both": "both answers among 64 samples (%)", "kl": "divergence from the true law (bits)"}


@of_results
def ambiguous_figure(results: AnyPath, path: AnyPath) -> None:
    """A column of panels for each task: both answers among the samples, and the divergence from the true law.

    Lines are masked models revealed left to right; stars are the same models by the entropy bound, white
    marks autoregressive ones. Baselines have no likelihood, so they are in the upper panels only.
    """
    rows = read_json_lines(results)
    tasks = sorted({(row["task"], row["n"]) for row in rows})
    figure, axes = panels(2, len(tasks), 3.5 * len(tasks), 7.2)
    labelled: dict[str, Any] = {}
    for column, (task, n) in enumerate(tasks):
        here = [row for row in rows if (row["task"], row["n"]) == (task, n)]
        for axis, (key, title) in zip(axes[:, column], LINES.items(), strict=True):
            _draw(axis, [row for row in here if row.get(key) is not None], key, labelled)
            axis.set_title(f"{task}, n = {n}" if key == "both" else "", fontsize=10)
            axis.set(xscale="log", xlabel="network evaluations (NFE)")
            ticks = [2**k for k in range(8) if 2**k <= n]
            axis.set_xticks(ticks, [str(tick) for tick in ticks])
            axis.minorticks_off()
            axis.grid(alpha=0.3)
            if column == 0:
                axis.set_ylabel(title)
            if key == "both":
                axis.set_ylim(-4, 104)
            else:
                axis.set_yscale("symlog", linthresh=0.01)
                axis.set_ylim(bottom=0)
                axis.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
            axis.set_visible(bool(axis.lines))
    columns = min(6, len(tasks) + 1)
    legend_below(figure, columns, labelled.values(), labelled.keys(), fontsize=9)
    save(figure, path)


def _draw(axis: Any, rows: list[dict[str, Any]], key: str, labelled: dict[str, Any]) -> None:
    scale = 100 if key == "both" else 1
    for code, (colour, mark, line) in CODE_STYLES.items():
        ours = [row for row in rows if row["code"] == code]
        masked = [row for row in ours if row["objective"] == "masked"]
        walked = means([row for row in masked if row["entropy_bound"] is None], "nfe", key, scale)
        bounded = means([row for row in masked if row["entropy_bound"] is not None], "nfe", key, scale)
        causal = means([row for row in ours if row["objective"] == "autoregressive"], "nfe", key, scale)
        style = {"color": colour, "markersize": 5}
        if walked:
            (labelled[code],) = axis.plot(*zip(*walked, strict=True), marker=mark, linestyle=line, **style)
        if bounded:
            look = style | {"markersize": 12, "markeredgecolor": "white"}
            (star,) = axis.plot(*zip(*bounded, strict=True), marker="*", linestyle="none", zorder=4, **look)
            labelled.setdefault("entropy bound", star)
        if causal:
            look = style | {"markersize": 8, "markerfacecolor": "none"}
            (ring,) = axis.plot(*zip(*causal, strict=True), marker=mark, linestyle="none", **look)
            labelled.setdefault("autoregressive (not filled)", ring)
    for method, (label, colour, mark) in METHOD_STYLES.items():
        points = means([row for row in rows if row["method"] == method], "nfe", key, scale)
        if points:
            look = {"color": colour, "marker": mark, "markersize": 9, "linestyle": "none"}
            (labelled[label],) = axis.plot(*zip(*points, strict=True), **look)
