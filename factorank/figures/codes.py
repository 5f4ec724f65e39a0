"""The figure of the codes benchmark."""

import os

from factorank.figures.drawing import CODE_STYLES, pyplot_module, read_results, save


def codes_figure(results: str | os.PathLike[str], path: str | os.PathLike[str]) -> None:
    """Time per element against n, log-log: a panel for each device and direction, ours beside the paper's."""
    pyplot = pyplot_module()
    rows = read_results(results)
    devices = sorted({row["device"] for row in rows})
    figure, axes = pyplot.subplots(
        len(devices), 2, figsize=(9, 3.6 * len(devices)), squeeze=False, sharex=True, layout="constrained"
    )
    marks = {code: mark for code, (_, mark, _) in CODE_STYLES.items() if code != "inline"}
    for line, device in zip(axes, devices, strict=True):
        for axis, direction in zip(line, ("encode", "decode"), strict=True):
            part = sorted(
                (row for row in rows if row["device"] == device and row["direction"] == direction),
                key=lambda row: row["n"],
            )
            for code, mark in marks.items():
                points = [row for row in part if row["code"] == code]
                n = [row["n"] for row in points]
                style = {"marker": mark, "markersize": 5, "linewidth": 1.2}
                axis.plot(n, [1e9 * row["ours"] for row in points], color="black", label=code, **style)
                axis.plot(n, [1e9 * row["peer"] for row in points], color="0.65", **style)
            limit = {row["n"]: 1e9 * row["limit"] for row in part}
            axis.plot(list(limit), list(limit.values()), "k:", linewidth=1.2, label="copy")
            axis.set(xscale="log", yscale="log", title=f"{direction}, {device}", xlabel="n")
            axis.title.set_fontsize(9)
            axis.grid(alpha=0.3)
        line[0].set_ylabel("ns per element")
    handles, labels = axes[0][0].get_legend_handles_labels()
    figure.legend(
        handles,
        labels,
        loc="outside lower center",
        ncol=5,
        fontsize=8,
        frameon=False,
        title="black: factorank; grey: the paper's algorithm",
        title_fontsize=8,
    )
    save(figure, path)
