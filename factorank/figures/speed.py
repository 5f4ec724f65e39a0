"""The figure of the speed benchmarks: what a permutation costs, against n and against the batch."""

import os
from typing import Any

from factorank.errors import FactorankError
from factorank.figures.drawing import pyplot_module, read_results, save

PANELS = (
    ("cost sample", "n", "sampling"),
    ("cost sample batch", "batch", "sampling, n = {n}"),
    ("cost train", "n", "training"),
)
"""What is drawn: the rows of that name, against that column."""


def speed_figure(results: str | os.PathLike[str], path: str | os.PathLike[str]) -> None:
    """Time per permutation, log-log: a line of panels for each device, dotted where the limit is."""
    pyplot = pyplot_module()
    rows = [row for row in read_results(results) if str(row["what"]).startswith("cost ")]
    devices = sorted({row["device"] for row in rows})
    if not devices:
        raise FactorankError(f"{results} holds no rows of the cost against n or the batch")
    panels = [panel for panel in PANELS if any(row["what"] == panel[0] for row in rows)]
    figure, axes = pyplot.subplots(
        len(devices),
        len(panels),
        figsize=(max(3.7 * len(panels), 5), 3.4 * len(devices)),
        squeeze=False,
        layout="constrained",
    )
    for line, device in zip(axes, devices, strict=True):
        begin = f"µs per permutation\n{device}"
        for axis, (what, against, title) in zip(line, panels, strict=True):
            part = [row for row in rows if row["device"] == device and row["what"] == what]
            if not part:
                axis.set_visible(False)
                continue
            _panel(axis, part, against)
            axis.set_title(title.format(n=part[0]["n"]), fontsize=9)
            axis.set_ylabel(begin, fontsize=8)
            begin = ""
    save(figure, path)


def _panel(axis: Any, rows: list[dict[str, Any]], against: str) -> None:
    axis.set(xscale="log", yscale="log", xlabel=against)
    axis.grid(alpha=0.3)
    for grey, nfe in zip(
        ("black", "0.55", "0.75"), sorted({row.get("nfe", 0) for row in rows}), strict=False
    ):
        points = sorted((row for row in rows if row.get("nfe", 0) == nfe), key=lambda row: row[against])
        x = [row[against] for row in points]
        label = f"nfe = {nfe}" if nfe else None
        axis.plot(x, [1e6 / row["ours"] for row in points], "o-", color=grey, markersize=4, label=label)
        limited = [row for row in points if row["limit"]]
        axis.plot([row[against] for row in limited], [1e6 / row["limit"] for row in limited], ":", color=grey)
    if any(row["limit"] for row in rows):
        axis.plot([], [], ":", color="black", label="the device's limit")
    if axis.get_legend_handles_labels()[0]:
        axis.legend(fontsize=8, frameon=False)
