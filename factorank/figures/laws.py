"""The figure of laws at equal encoders: puzzles solved against the grid."""

from typing import Any

from factorank.figures.drawing import (
    BLUE,
    GREEN,
    GREY,
    METHOD_STYLES,
    SKY,
    VERMILION,
    AnyPath,
    label_ends,
    means,
    of_results,
    panels,
    save,
)
from factorank.files import read_json_lines

STYLES: dict[tuple[Any, ...], tuple[str, str, str, str]] = {
    ("lehmer", "masked", "mode", False): ("Lehmer", BLUE, "o", "-"),
    ("lehmer", "masked", "marginals", False): ("Lehmer, marginals", SKY, "s", "--"),
    ("lehmer", "masked", "marginals", True): ("Lehmer, drafted, marginals", GREEN, "s", "-"),
    ("lehmer", "autoregressive", "mode", False): ("Lehmer, autoregressive", VERMILION, "^", "-."),
    ("inline", "masked", "assignment", False): ("inline + assignment", GREY, "v", "-"),
    ("inline", "masked", "assignment", True): ("inline, drafted", GREY, "D", ":"),
}
"""Label, colour, marker and line, by code, objective, decoding, and whether there is a draft."""


@of_results
def laws_figure(results: AnyPath, path: AnyPath) -> None:
    """A column for each encoder: puzzles solved, and below it the lead over Gumbel-Sinkhorn in points."""
    rows = read_json_lines(results)
    encoders = sorted({row["encoder"] for row in rows})
    figure, axes = panels(2, len(encoders), 5.8 * len(encoders), 7.4)
    grids = sorted({row["grid"] for row in rows})
    for column, encoder in enumerate(encoders):
        here = [row for row in rows if row["encoder"] == encoder]
        base = dict(
            means(
                [row for row in here if row["method"] == "gumbel-sinkhorn"], "grid", "solved_identical", 100
            )
        )
        for axis, lead in zip(axes[:, column], (False, True), strict=True):
            ends: dict[str, tuple[float, float, str]] = {}
            for label, colour, mark, line, points in _series(here):
                if lead:
                    points = [(grid, value - base[grid]) for grid, value in points if grid in base]
                if points:
                    axis.plot(*zip(*points, strict=True), color=colour, marker=mark, linestyle=line)
                    ends[label] = (*points[-1], colour)
            axis.set(title="" if lead else encoder, xlabel="pieces in a row", xticks=grids)
            axis.set_xlim(grids[0] - 0.1, grids[-1] + 0.1)
            axis.set_ylabel("points above Gumbel-Sinkhorn" if lead else "puzzles solved (%)")
            axis.grid(alpha=0.3)
            label_ends(axis, ends)
    save(figure, path)


def _series(rows: list[dict[str, Any]]) -> list[tuple[str, str, str, str, list[tuple[Any, float]]]]:
    """Label, colour, marker, line and the points ``(grid, percent solved)`` of each law."""
    series = []
    for kind, style in STYLES.items():
        chosen = [row for row in rows if _kind(row) == kind]
        series.append((*style, means(chosen, "grid", "solved_identical", 100)))
    for method, (label, colour, mark) in METHOD_STYLES.items():
        chosen = [row for row in rows if row["method"] == method]
        series.append((label, colour, mark, "--", means(chosen, "grid", "solved_identical", 100)))
    return [each for each in series if each[-1]]


def _kind(row: dict[str, Any]) -> tuple[Any, ...]:
    return row["code"], row["objective"], row["decode"], row["hints"] > 0
