"""The figure of the experiment on photographs: puzzles solved and pieces right against the grid."""

from typing import Any

from factorank.errors import FactorankError
from factorank.figures.drawing import BLUE, ORANGE, SKY, AnyPath, legend_below, of_results, panels, save
from factorank.files import read_json_lines

STYLES: dict[tuple[str, bool], dict[str, Any]] = {
    ("factorank", True): {"color": BLUE, "marker": "o", "label": "factorank, searched"},
    ("factorank", False): {"color": SKY, "marker": "D", "label": "factorank, one evaluation"},
    ("edge-compatibility", False): {
        "color": ORANGE,
        "marker": "X",
        "linestyle": "--",
        "label": "edge compatibility, no learning",
    },
}
SOLVED = "solved_identical"
NARROW = 0.12
"""How far points of one grid are moved apart, so that their intervals can be told apart."""


@of_results
def photographs_figure(results: AnyPath, path: AnyPath) -> None:
    """Square grids of upright pieces, all there, at their own resolution; then every other task.

    Intervals are of 95%. Identical pieces are equal.
    """
    rows = [row for row in read_json_lines(results) if row["method"] in {name for name, _ in STYLES}]
    if not rows:
        raise FactorankError(f"{results} holds no results on photographs")
    plain = [row for row in rows if _task(row) == ""]
    figure, ((*axes,),) = panels(1, 3, 14, 4.4)
    for axis, key, title in (
        (axes[0], "solved_identical", "puzzles solved (%)"),
        (axes[1], "pieces_identical", "pieces right (%)"),
    ):
        for shift, (kind, style) in enumerate(STYLES.items()):
            here = sorted((row for row in plain if _kind(row) == kind), key=lambda row: row["grid"])
            if not here:
                continue
            at = [row["grid"] + NARROW * (shift - 1) for row in here]
            axis.vlines(
                at, [100 * row[f"{key}_low"] for row in here], [100 * row[f"{key}_high"] for row in here]
            ).set_color(style["color"])
            axis.plot(at, [100 * row[key] for row in here], **style)
        axis.set(title=title, xlabel="pieces in a row", xticks=sorted({row["grid"] for row in plain}))
        axis.grid(alpha=0.3)
    _draw_tasks(axes[2], [row for row in rows if _task(row)])
    legend_below(figure, 3, *axes[0].get_legend_handles_labels())
    save(figure, path)


def _draw_tasks(axis: Any, rows: list[dict[str, Any]]) -> None:
    # Of turned pieces two points: up to a turn of the whole, and standing upright besides.
    rows = [
        row | {"task": name, "solved": row[key]}
        for row in rows
        for name, key in (
            ((f"{_task(row)}, up to a turn", f"{SOLVED}_up_to_turn"), (f"{_task(row)}, upright", SOLVED))
            if row["turned"]
            else ((_task(row), SOLVED),)
        )
    ]
    names = list(dict.fromkeys(row["task"] for row in rows))
    for shift, (kind, style) in enumerate(STYLES.items()):
        here = [row for row in rows if _kind(row) == kind]
        at = [names.index(row["task"]) + NARROW * (shift - 1) for row in here]
        axis.plot(at, [100 * row["solved"] for row in here], **(style | {"linestyle": ""}))
    axis.set_title("puzzles solved (%)")
    axis.set_xticks(range(len(names)), names, rotation=25, ha="right")
    axis.grid(alpha=0.3)


def _kind(row: dict[str, Any]) -> tuple[str, bool]:
    return row["method"], row["search"]


def _task(row: dict[str, Any]) -> str:
    """What a row's puzzles have besides a square grid; empty for those that have nothing."""
    grid = f"{row['grid']}×{row['columns']}"
    if row["turned"]:
        return f"{grid} turned"
    if row["missing"]:
        return f"{grid}, {100 * row['missing']:.0f}% missing"
    if row["piece"]:
        return f"{grid}, {row['piece']} pixels"
    return "" if row["grid"] == row["columns"] else grid
