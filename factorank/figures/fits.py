"""The figure of a fitted law."""

import os
from typing import Any

from factorank.figures.drawing import pyplot_module, save


def fit_figure(facts: dict[str, Any], path: str | os.PathLike[str]) -> None:
    """A heat map for each component of a fitted law: how likely each item is at each place.

    Items are in the order of the consensus, so that a sure item is on the diagonal. A circle marks an item's
    place in the consensus. A bar through it marks the middle 95% of its places in refits to other draws of
    voters. ``facts`` are those of ``fit.json``.
    """
    pyplot = pyplot_module()
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
    bar = figure.colorbar(image, ax=axes.ravel().tolist(), label="probability (%)")
    bar.ax.yaxis.set_major_formatter(lambda value, _: f"{100 * value:.3g}")
    save(figure, path)


def _component_title(part: dict[str, Any], count: int) -> str:
    title = [] if count == 1 else [f"{100 * part['weight']:.0f}% of voters"]
    if part["parameter"] == "phi" and len(part["values"]) == 1 and part["values"][0] is not None:
        title.append(f"φ = {part['values'][0]:.3f}")
    return ", ".join(title)


def _short(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"
