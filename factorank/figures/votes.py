"""The figure of the votes experiment."""

import os
from typing import Any

from factorank.figures.drawing import pyplot_module, read_results, save


def votes_figure(results: str | os.PathLike[str], path: str | os.PathLike[str]) -> None:
    """Held-out bits by family and number of components, a panel for each set of votes."""
    pyplot = pyplot_module()
    means = votes_means(read_results(results))
    sets = list(dict.fromkeys(data for data, *_ in means))
    figure, axes = pyplot.subplots(
        1, len(sets), figsize=(3.6 * len(sets), 3.9), squeeze=False, layout="constrained"
    )
    styles = {
        "mallows": ("Mallows", "o", "-", "tab:blue"),
        "generalized-mallows": ("generalized Mallows", "s", "--", "tab:orange"),
        "rim": ("RIM", "^", "-.", "tab:green"),
        "plackett-luce": ("Plackett-Luce", "D", ":", "black"),
    }
    for axis, data in zip(axes[0], sets, strict=True):
        for shift, (family, (label, marker, line, colour)) in enumerate(styles.items()):
            points = [(k, *value) for (d, f, k), value in means.items() if (d, f) == (data, family)]
            if points:
                k, bits, error = zip(*sorted(points), strict=True)
                axis.errorbar(
                    [x + 0.06 * (shift - 1.5) for x in k],
                    bits,
                    yerr=error,
                    label=label,
                    color=colour,
                    marker=marker,
                    linestyle=line,
                    markersize=5,
                    linewidth=1.3,
                    elinewidth=0.7,
                )
        uniform = means[data, "uniform", 1][0]
        axis.set_title(f"{data}\nuniform law: {uniform:.2f} bits", fontsize=10)
        axis.set_xlabel("components")
        axis.set_xticks(sorted({k for d, _, k in means if d == data}))
        axis.grid(alpha=0.3)
    axes[0][0].set_ylabel("held-out bits a ranking (fewer is better)")
    handles, labels = axes[0][0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=4, frameon=False)
    save(figure, path)


def votes_means(rows: list[dict[str, Any]]) -> dict[tuple[str, str, int], tuple[float, float]]:
    """Mean bits over the splits, and the mean standard error of a split, by data, family and components."""
    grouped: dict[tuple[str, str, int], list[dict[str, Any]]] = {}
    for row in rows:
        grouped.setdefault((row["data"], row["family"], row["components"]), []).append(row)
    return {
        key: (sum(r["bits"] for r in group) / len(group), sum(r["bits_se"] for r in group) / len(group))
        for key, group in grouped.items()
    }
