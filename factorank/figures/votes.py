"""The figures of votes: a fitted law, and the bits of each family."""

from typing import Any

from factorank.figures.drawing import (
    BLUE,
    GREEN,
    ORANGE,
    VERMILION,
    AnyPath,
    legend_below,
    of_results,
    panels,
    save,
)
from factorank.files import read_json_lines

STYLES = {
    "mallows": ("Mallows", "o", "-", BLUE),
    "generalized-mallows": ("generalized Mallows", "s", "--", ORANGE),
    "rim": ("RIM", "^", "-.", GREEN),
    "plackett-luce": ("Plackett-Luce", "D", ":", VERMILION),
}

NAMED = 6
"""The items furthest from what is expected, which a figure of goodness of fit names."""


@of_results
def votes_figure(results: AnyPath, path: AnyPath) -> None:
    """Held-out bits by family and number of components, a panel for each set of votes."""
    means = votes_means(read_json_lines(results))
    sets = list(dict.fromkeys(data for data, *_ in means))
    figure, axes = panels(1, len(sets), 3.6 * len(sets), 3.9)
    for axis, data in zip(axes[0], sets, strict=True):
        for shift, (family, (label, marker, line, colour)) in enumerate(STYLES.items()):
            points = [(k, *value) for (d, f, k), value in means.items() if (d, f) == (data, family)]
            if points:
                k, bits, error = zip(*sorted(points), strict=True)
                style = {"color": colour, "marker": marker, "linestyle": line, "markersize": 5}
                beside = [x + 0.06 * (shift - 1.5) for x in k]
                axis.errorbar(beside, bits, error, label=label, linewidth=1.3, elinewidth=0.7, **style)
        uniform = means.get((data, "uniform", 1))  # not there if only other families were asked for
        axis.set_title(f"{data}\nuniform law: {uniform[0]:.2f} bits" if uniform else data, fontsize=10)
        axis.set_xlabel("components")
        axis.set_xticks(sorted({k for d, _, k in means if d == data}))
        axis.grid(alpha=0.3)
    axes[0][0].set_ylabel("held-out bits a ranking (fewer is better)")
    legend_below(figure, 4, *axes[0][0].get_legend_handles_labels())
    save(figure, path)


def votes_means(rows: list[dict[str, Any]]) -> dict[tuple[str, str, int], tuple[float, float]]:
    """Mean bits over the splits, and the mean standard error of a split, by data, family and components.

    The error is that of the difference to the best law, voter by voter, where the rows have it: that of the
    bits themselves is larger, because all laws find the same rankings hard.
    """
    grouped: dict[tuple[str, str, int], list[dict[str, Any]]] = {}
    for row in rows:
        grouped.setdefault((row["data"], row["family"], row["components"]), []).append(row)
    means = {}
    for key, group in grouped.items():
        paired = all(row.get("difference_se") is not None for row in group)
        errors = [row["difference_se" if paired else "bits_se"] for row in group]
        means[key] = sum(row["bits"] for row in group) / len(group), sum(errors) / len(group)
    return means


def fit_figure(facts: dict[str, Any], path: AnyPath) -> None:
    """A heat map for each component of a fitted law: how likely each item is at each place.

    Items are in the order of the consensus, so that a sure item is on the diagonal. A circle marks an item's
    place in the consensus. A bar through it marks the middle 95% of its places in refits to other draws of
    voters. ``facts`` are those of ``fit.json``.
    """
    parts, n = facts["components"], len(facts["items"])
    names = [name if len(name) <= 24 else name[:23] + "…" for name in facts["items"]]
    cell, across = min(0.5, 18 / n), min(3, len(parts))
    width, down = 1.2 + 0.09 * max(map(len, names)) + max(cell * n, 2.6), -(-len(parts) // across)
    figure, axes = panels(down, across, width * across + 0.6, (cell * n + 1.1) * down + 0.6)
    values = sorted(value for part in parts for row in part["marginals"] for value in row)
    # With many items a few corners outshine the rest.
    highest = values[-1] if n <= 20 else values[-len(values) // 200 or -1]
    for axis in axes.flat[len(parts) :]:
        axis.set_visible(False)
    for axis, part in zip(axes.flat, parts, strict=False):
        image = _draw_component(axis, part, names, highest)
        title = [] if len(parts) == 1 else [f"{100 * part['weight']:.0f}% of voters"]
        if part["parameter"] == "phi" and len(part["values"]) == 1 and part["values"][0] is not None:
            title.append(f"φ = {part['values'][0]:.3f}")
        axis.set_title(", ".join(title), fontsize=10)
    note = "circle: consensus" + (f"; bar: 95% of {facts['refits']} refits" if facts["refits"] else "")
    source = facts.get("title") or facts.get("file") or ""
    figure.suptitle(f"{source}\n{facts['family']}; {note}", fontsize=10)
    bar = figure.colorbar(image, ax=axes.ravel().tolist(), label="probability (%)")
    bar.ax.yaxis.set_major_formatter(lambda value, _: f"{100 * value:.3g}")
    save(figure, path)


def goodness_figure(facts: dict[str, Any], path: AnyPath) -> None:
    """Expected against observed shares: first places, pairs, and the residuals of places.

    ``facts`` are those of ``fit.json``. A point on the diagonal is as expected; bars are two standard errors.
    """
    fit, names = facts["goodness"], facts["items"]
    figure, axes = panels(1, 3, 13, 4.4)
    first, pairs, places = axes[0]
    _draw_shares(first, fit["first_expected"], fit["first_observed"], fit["voters"], "first places")
    points = list(zip(names, fit["first_expected"], fit["first_observed"], strict=True))
    for name, x, y in sorted(points, key=lambda point: -abs(point[2] - point[1]))[:NAMED]:
        short, below = name if len(name) <= 14 else name[:13] + "…", y < x
        place = {"xytext": (4, -10 if below else 5), "textcoords": "offset points", "fontsize": 7}
        first.annotate(short, (x, y), **place)
    above = [
        (fit["pairs_expected"][a][b], fit["pairs_observed"][a][b])
        for a in range(len(names))
        for b in range(a)
        if fit["pairs_observed"][a][b] is not None
    ]
    _draw_shares(pairs, [x for x, _ in above], [y for _, y in above], 0, "pairs: first above second")
    gaps = [
        [0.0 if o is None else o - e for e, o in zip(expected, observed, strict=True)]
        for expected, observed in zip(fit["places_expected"], fit["places_observed"], strict=True)
    ]
    largest = max(max(abs(gap) for gap in row) for row in gaps) or 1.0
    image = places.imshow(gaps, cmap="RdBu", vmin=-largest, vmax=largest, aspect="auto")
    places.set_title("places: observed less expected", fontsize=10)
    places.set_xlabel("place")
    step = 1 if len(names) <= 30 else 10
    places.set_xticks(range(step - 1, len(names), step), range(step, len(names) + 1, step))
    short = [name if len(name) <= 18 else name[:17] + "…" for name in names]
    places.set_yticks(range(len(names)), short, fontsize=8 if len(names) <= 30 else 5)
    figure.colorbar(image, ax=places).ax.yaxis.set_major_formatter(lambda value, _: f"{100 * value:.3g}%")
    figure.suptitle(f"{facts.get('title') or facts.get('file') or ''}\n{facts['family']}", fontsize=10)
    save(figure, path)


def _draw_shares(axis: Any, expected: list[float], observed: list[float], voters: float, title: str) -> None:
    """Observed over expected shares, in percent of the voters, with the diagonal."""
    errors = [2 * (x * (1 - x) / voters) ** 0.5 for x in expected] if voters else None
    style = {"fmt": "o", "markersize": 4, "elinewidth": 0.7, "color": "tab:blue", "alpha": 0.8}
    axis.errorbar(expected, observed, errors, **style)
    ends = [min([*expected, *observed], default=0.0), max([*expected, *observed], default=1.0)]
    axis.plot(ends, ends, color="black", linewidth=0.7)
    axis.set_title(title, fontsize=10)
    axis.set_xlabel("expected")
    axis.set_ylabel("observed")
    for side in (axis.xaxis, axis.yaxis):
        side.set_major_formatter(lambda value, _: f"{100 * value:.3g}%")
    axis.grid(alpha=0.3)


def _draw_component(axis: Any, part: dict[str, Any], names: list[str], highest: float) -> Any:
    """The heat map of a component; the image is for the colour bar."""
    from matplotlib import patheffects as effects

    n, order = len(names), part["consensus"]
    rows = [part["marginals"][item] for item in order]
    image = axis.imshow(rows, cmap="Blues", vmin=0, vmax=min(1.15 * highest, 1.0), aspect="auto")
    axis.scatter(range(n), range(n), s=min(60, 900 / n), facecolors="white", edgecolors="black", zorder=4)
    if part["place_intervals"] is not None:
        outline = [effects.Stroke(linewidth=3.5, foreground="white"), effects.Normal()]
        style = {"color": "black", "linewidth": 1.2, "zorder": 3, "path_effects": outline}
        for row, item in enumerate(order):
            low, high = part["place_intervals"][item]
            axis.plot([low - 1, high - 1], [row, row], **style)
    for row, values in enumerate(rows if n <= 12 else []):
        for place, value in enumerate(values):
            if value >= 0.005:
                style = {"ha": "center", "va": "center", "fontsize": 7}
                colour = "white" if value > 0.6 * highest else "black"
                axis.text(place, row + 0.28, f"{100 * value:.0f}", color=colour, **style)
    axis.set_yticks(range(n), [names[item] for item in order], fontsize=9 if n <= 30 else 6)
    step = 1 if n <= 30 else 10
    axis.set_xticks(range(step - 1, n, step), range(step, n + 1, step))
    axis.set_xlabel("place")
    return image
