"""Results to figures: drawn from plain numbers, as the result files hold them, without torch."""

import json
import os
from pathlib import Path
from typing import Any

from factorank.errors import FactorankError


def fit_figure(facts: dict[str, Any], path: str | os.PathLike[str]) -> None:
    """A heat map for each component of a fitted law: how likely each item is at each place.

    Items are in the order of the consensus, so a sure one lies on the diagonal. A circle marks an item's
    place in the consensus, a bar through it the middle 95% of its places in refits to other draws of voters.
    ``facts`` is what ``fit.json`` holds.
    """
    pyplot = _pyplot()
    from matplotlib import patheffects as effects

    parts = facts["components"]
    names = [_short(name, 24) for name in facts["items"]]
    n = len(names)
    cell = min(0.5, 18 / n)
    width = 1.2 + 0.09 * max(map(len, names)) + max(cell * n, 2.6)
    across = min(3, len(parts))
    down = -(-len(parts) // across)
    size = (width * across + 0.6, (cell * n + 1.1) * down + 0.6)
    figure, axes = pyplot.subplots(down, across, figsize=size, squeeze=False, layout="constrained")
    for axis in axes.flat[len(parts) :]:
        axis.set_visible(False)
    values = sorted(value for part in parts for row in part["marginals"] for value in row)
    highest = (
        values[-1] if n <= 20 else values[-len(values) // 200 or -1]
    )  # a few corners outshine many items
    outline = [effects.Stroke(linewidth=3.5, foreground="white"), effects.Normal()]
    image = None
    for axis, part in zip(axes.flat, parts, strict=False):
        order = part["consensus"]
        rows = [part["marginals"][item] for item in order]
        image = axis.imshow(rows, cmap="Blues", vmin=0, vmax=min(1.15 * highest, 1.0), aspect="auto")
        axis.scatter(range(n), range(n), s=min(60, 900 / n), facecolors="white", edgecolors="black", zorder=4)
        if part["place_intervals"] is not None:
            for row, item in enumerate(order):
                low, high = part["place_intervals"][item]
                axis.plot(
                    [low - 1, high - 1],
                    [row, row],
                    color="black",
                    linewidth=1.2,
                    zorder=3,
                    path_effects=outline,
                )
        if n <= 12:
            for row, values in enumerate(rows):
                for place, value in enumerate(values):
                    if value >= 0.005:
                        axis.text(
                            place,
                            row + 0.28,
                            f"{100 * value:.0f}",
                            ha="center",
                            va="center",
                            fontsize=7,
                            color="white" if value > 0.6 * highest else "black",
                        )
        axis.set_yticks(range(n), [names[item] for item in order], fontsize=9 if n <= 30 else 6)
        step = 1 if n <= 30 else 10
        axis.set_xticks(range(step - 1, n, step), range(step, n + 1, step))
        axis.set_xlabel("place")
        axis.set_title(_component_title(part, len(parts)), fontsize=10)
    note = "circle: consensus" + (f"; bar: 95% of {facts['refits']} refits" if facts["refits"] else "")
    figure.suptitle(
        f"{facts.get('title') or facts.get('file') or ''}\n{facts['family']}; {note}", fontsize=10
    )
    assert image is not None
    figure.colorbar(
        image, ax=axes.ravel().tolist(), label="probability (numbers: %)" if n <= 12 else "probability"
    )
    _save(figure, path)


def votes_figure(results: str | os.PathLike[str], path: str | os.PathLike[str]) -> None:
    """Held-out bits by family and number of components, a panel for each set of votes."""
    pyplot = _pyplot()
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
    _save(figure, path)


def votes_means(rows: list[dict[str, Any]]) -> dict[tuple[str, str, int], tuple[float, float]]:
    """Mean bits over the splits, and the mean standard error of a split, by data, family and components."""
    grouped: dict[tuple[str, str, int], list[dict[str, Any]]] = {}
    for row in rows:
        grouped.setdefault((row["data"], row["family"], row["components"]), []).append(row)
    return {
        key: (sum(r["bits"] for r in group) / len(group), sum(r["bits_se"] for r in group) / len(group))
        for key, group in grouped.items()
    }


def _component_title(part: dict[str, Any], count: int) -> str:
    title = [] if count == 1 else [f"{100 * part['weight']:.0f}% of voters"]
    if part["parameter"] == "phi" and len(part["values"]) == 1 and part["values"][0] is not None:
        title.append(f"φ = {part['values'][0]:.3f}")
    return ", ".join(title)


def _save(figure: Any, path: str | os.PathLike[str]) -> None:
    import io

    from factorank.files import write_whole

    data = io.BytesIO()
    figure.savefig(data, format=Path(path).suffix.lstrip(".") or "png", dpi=150, metadata={"Software": None})
    _pyplot().close(figure)
    write_whole(path, data.getvalue())


def _pyplot() -> Any:
    try:
        import matplotlib
    except ImportError:
        raise FactorankError("figures need matplotlib: pip install 'factorank[figures]'") from None
    matplotlib.use("agg")
    from matplotlib import pyplot

    return pyplot


def _short(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"


def read_results(path: str | os.PathLike[str]) -> list[dict[str, Any]]:
    """The objects of a results file, one a line."""
    rows = []
    for number, line in enumerate(Path(path).read_text(encoding="utf-8").splitlines(), start=1):
        try:
            rows.append(json.loads(line))
        except ValueError as error:
            raise FactorankError(f"{path}:{number}: not JSON: {error}") from None
    return rows


def codes_figure(results: str | os.PathLike[str], path: str | os.PathLike[str]) -> None:
    """Time per element against n, log-log: a panel for each device and direction, ours beside the paper's."""
    pyplot = _pyplot()
    rows = read_results(results)
    devices = sorted({row["device"] for row in rows})
    figure, axes = pyplot.subplots(
        len(devices), 2, figsize=(9, 3.6 * len(devices)), squeeze=False, sharex=True, layout="constrained"
    )
    marks = {"lehmer": "o", "left-lehmer": "s", "fisher-yates": "^", "insertion": "D"}
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
    _save(figure, path)


CODE_STYLES = {
    "inline": ("0.6", "v", "-"),
    "lehmer": ("black", "o", "-"),
    "left-lehmer": ("0.35", "s", "--"),
    "fisher-yates": ("black", "^", "-"),
    "insertion": ("0.5", "D", "-."),
}
"""Grey, marker and line of each code, so that figures can be read in print."""


def cyclic_figure(
    results: str | os.PathLike[str], path: str | os.PathLike[str], unmask: str = "left-to-right"
) -> None:
    """Against the NFE: different samples, valid ones, cyclic ones, and the divergence from the uniform law.

    Lines are masked models, white marks at the right autoregressive ones; means over the seeds.
    """
    pyplot = _pyplot()
    rows = [row for row in read_results(results) if row["unmask"] == unmask]
    if not rows:
        raise FactorankError(f"{results} holds no results of unmasking {unmask}")
    n, expected = rows[0]["n"], 100 * rows[0]["unique_expected"]
    panels = {
        "unique": "unique (%)",
        "unique_valid": "unique and valid (%)",
        "unique_cyclic": "unique, valid and cyclic (%)",
        "kl": "KL to uniform (bits)",
    }
    figure, axes = pyplot.subplots(1, len(panels), figsize=(15, 4.3), layout="constrained")
    for axis, (key, title) in zip(axes, panels.items(), strict=True):
        for place, (code, (grey, mark, line)) in enumerate(CODE_STYLES.items()):
            for objective in ("masked", "autoregressive"):
                chosen = [row for row in rows if (row["code"], row["objective"]) == (code, objective)]
                points = _by_nfe(chosen, key, 1 if key == "kl" else 100)
                if not points:
                    continue
                masked = objective == "masked"
                # Codes that agree would hide each other: each stands a little beside the NFE.
                aside = 0.05 * (place - 2) if masked else 0.45 + 0.13 * place
                axis.plot(
                    [nfe + aside for nfe, _ in points],
                    [value for _, value in points],
                    color=grey,
                    marker=mark,
                    markersize=5.5,
                    markerfacecolor=grey if masked else "white",
                    linestyle=line if masked else "none",
                    linewidth=1.2,
                    label=f"{code}, {objective}",
                )
        if key == "kl":
            axis.set_yscale("symlog", linthresh=0.01)
            axis.set_ylim(bottom=0)
            axis.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
        else:
            axis.axhline(expected, color="black", linestyle=":", linewidth=1.2, label="a perfect model")
            axis.set_ylim(-4, 104)
        if key == "unique_cyclic":
            axis.axhline(
                100 / n, color="0.5", linestyle=(0, (6, 3)), linewidth=1.2, label="random permutations"
            )
        axis.set(title=title, xlabel="network evaluations (NFE)", xticks=range(1, n + 1))
        axis.grid(alpha=0.3)
    handles, labels = axes[2].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncol=6, fontsize=9, frameon=False)
    _save(figure, path)


def _by_nfe(rows: list[dict[str, Any]], key: str, scale: float) -> list[tuple[int, float]]:
    """The mean of a value over the rows of each NFE, where it is known."""
    found: dict[int, list[float]] = {}
    for row in rows:
        if row[key] is not None:
            found.setdefault(row["nfe"], []).append(scale * row[key])
    return sorted((nfe, sum(values) / len(values)) for nfe, values in found.items())


FIGURES = {"cyclic": cyclic_figure, "codes": codes_figure, "votes": votes_figure}
"""The figures that are drawn from a results file, by the name of the experiment in its rows."""


def draw(name: str, results: str | os.PathLike[str], path: str | os.PathLike[str]) -> None:
    """Draw the figure of an experiment from its results file."""
    if name not in FIGURES:
        raise FactorankError(f"there is no figure {name!r}; there are {', '.join(FIGURES)}")
    experiments = {str(row.get("experiment")) for row in read_results(results)}
    if experiments != {name}:
        held = f"results of {', '.join(sorted(experiments))}" if experiments else "no results"
        raise FactorankError(
            f"{results}: a figure of {name} is drawn from its results, but the file holds {held}"
        )
    FIGURES[name](results, path)
