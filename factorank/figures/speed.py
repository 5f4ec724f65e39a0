"""The figures of the benchmarks: what a permutation costs, and what an element of a code costs."""

from typing import Any

from factorank.errors import FactorankError
from factorank.figures.drawing import (
    BLUE,
    CODE_STYLES,
    ORANGE,
    SKY,
    AnyPath,
    legend_below,
    of_results,
    panels,
    save,
)
from factorank.files import read_json_lines

PANELS = (
    ("cost sample", "n", "sampling"),
    ("cost sample batch", "batch", "sampling, n = {n}"),
    ("cost train", "n", "training"),
)
"""What is drawn: the rows of that name, against that column."""


@of_results
def speed_figure(results: AnyPath, path: AnyPath) -> None:
    """Time per permutation, log-log: a line of panels for each device, dotted where the limit is."""
    rows = [row for row in read_json_lines(results) if str(row["what"]).startswith("cost ")]
    devices = sorted({row["device"] for row in rows})
    if not devices:
        raise FactorankError(f"{results} holds no rows of the cost against n or the batch")
    drawn = [panel for panel in PANELS if any(row["what"] == panel[0] for row in rows)]
    figure, axes = panels(len(devices), len(drawn), max(3.7 * len(drawn), 5), 3.4 * len(devices))
    for line, device in zip(axes, devices, strict=True):
        begin = f"µs per permutation\n{device}"
        for axis, (what, against, title) in zip(line, drawn, strict=True):
            part = [row for row in rows if row["device"] == device and row["what"] == what]
            if not part:
                axis.set_visible(False)
                continue
            _draw_cost(axis, part, against)
            axis.set_title(title.format(n=part[0]["n"]), fontsize=9)
            axis.set_ylabel(begin, fontsize=8)
            begin = ""
    save(figure, path)


def _draw_cost(axis: Any, rows: list[dict[str, Any]], against: str) -> None:
    axis.set(xscale="log", yscale="log", xlabel=against)
    axis.grid(alpha=0.3)
    nfes = sorted({row.get("nfe", 0) for row in rows})
    for colour, nfe in zip((BLUE, ORANGE, SKY), nfes, strict=False):
        points = sorted((row for row in rows if row.get("nfe", 0) == nfe), key=lambda row: row[against])
        x = [row[against] for row in points]
        label = f"nfe = {nfe}" if nfe else None
        axis.plot(x, [1e6 / row["ours"] for row in points], "o-", color=colour, markersize=4, label=label)
        limited = [row for row in points if row["limit"]]
        axis.plot(
            [row[against] for row in limited], [1e6 / row["limit"] for row in limited], ":", color=colour
        )
    if any(row["limit"] for row in rows):
        axis.plot([], [], ":", color="black", label="the device's limit")
    if axis.get_legend_handles_labels()[0]:
        axis.legend(fontsize=8, frameon=False)


@of_results
def codes_figure(results: AnyPath, path: AnyPath) -> None:
    """Time per element against n, log-log: a panel for each device and direction, ours beside the paper's."""
    rows = sorted(read_json_lines(results), key=lambda row: row["n"])
    devices = sorted({row["device"] for row in rows})
    figure, axes = panels(len(devices), 2, 9, 3.6 * len(devices), sharex=True)
    for line, device in zip(axes, devices, strict=True):
        for axis, direction in zip(line, ("encode", "decode"), strict=True):
            part = [row for row in rows if (row["device"], row["direction"]) == (device, direction)]
            for code, (colour, mark, _) in list(CODE_STYLES.items())[1:]:  # inline encodes nothing
                points = [row for row in part if row["code"] == code]
                n = [row["n"] for row in points]
                style = {"marker": mark, "markersize": 5, "linewidth": 1.2}
                axis.plot(n, [1e9 * row["ours"] for row in points], color=colour, label=code, **style)
                pale = style | {"linestyle": ":", "alpha": 0.55, "markerfacecolor": "white"}
                compared = [row for row in points if row["peer"] is not None]
                peers = [1e9 * row["peer"] for row in compared]
                axis.plot([row["n"] for row in compared], peers, color=colour, **pale)
            limit = {row["n"]: 1e9 * row["limit"] for row in part}
            axis.plot(list(limit), list(limit.values()), "k:", linewidth=1.2, label="copy")
            axis.set(xscale="log", yscale="log", title=f"{direction}, {device}", xlabel="n")
            axis.title.set_fontsize(9)
            axis.grid(alpha=0.3)
        line[0].set_ylabel("ns per element")
    style = {
        "fontsize": 8,
        "title_fontsize": 8,
        "title": "full lines: factorank; pale and dotted: the paper's algorithm",
    }
    legend_below(figure, 5, *axes[0][0].get_legend_handles_labels(), **style)
    save(figure, path)
