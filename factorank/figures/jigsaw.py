"""The figures of the jigsaw experiment: one solved puzzle, and how methods fare as puzzles grow."""

import os
from typing import Any

from factorank.errors import FactorankError
from factorank.figures.drawing import CODE_STYLES, pyplot_module, read_results, save

METHODS = {"gumbel-sinkhorn": ("Gumbel-Sinkhorn", "P"), "riffle-diffusion": ("riffle diffusion", "X")}
PUBLISHED = {"Symmetric Diffusers": (8, 5.0), "Soft-Rank Diffusion": (8, 52.6)}
"""Correct pieces in percent that others have published for CIFAR-10, with the grid."""


def puzzle_figure(
    scrambled: Any,
    solved: Any,
    truth: Any,
    path: str | os.PathLike[str],
    *,
    grid: int,
    wrong: list[int],
    summary: str,
) -> None:
    """Three panels, scrambled, solved and truth: pictures uint8 ``(side, side, 3)``.

    The slots in ``wrong`` are framed and crossed out in the solution.
    """
    pyplot = pyplot_module()
    from matplotlib.patches import Rectangle

    figure, axes = pyplot.subplots(1, 3, figsize=(12, 4.5), layout="constrained")
    side = len(truth)
    size = side / grid
    for axis, picture, title in zip(
        axes, (scrambled, solved, truth), ("scrambled", "solved", "truth"), strict=True
    ):
        axis.imshow(picture, interpolation="nearest" if side < 256 else "antialiased")
        axis.set(title=title, xticks=[], yticks=[])
        for line in range(1, grid):
            for draw in (axis.axhline, axis.axvline):
                draw(line * size - 0.5, color="white", linewidth=0.8, alpha=0.8)
    for slot in wrong:
        left, top = slot % grid * size - 0.5, slot // grid * size - 0.5
        frame = Rectangle((left, top), size, size, edgecolor="red", facecolor="none", linewidth=2.5)
        axes[1].add_patch(frame)
        for down in (0, 1):
            axes[1].plot(
                [left, left + size], [top + down * size, top + (1 - down) * size], color="red", linewidth=1.2
            )
    axes[1].set(xlim=(-0.5, side - 0.5), ylim=(side - 0.5, -0.5))
    figure.suptitle(summary, fontsize=11)
    save(figure, path)


def jigsaw_figure(results: str | os.PathLike[str], path: str | os.PathLike[str]) -> None:
    """Against the grid: puzzles solved, pieces right (identical ones count as equal), puzzles a second.

    Lines are means over the seeds: ours in black and grey by code, filled marks for masked models at one
    evaluation, white ones for autoregressive models; the baselines trained on the same data dashed.
    """
    pyplot = pyplot_module()
    rows = [row for row in read_results(results) if row.get("split", "test") == "test"]
    rows = [row for row in rows if row["method"] != "factorank" or row.get("label") in ("default", "paper")]
    rows = [row for row in rows if row["objective"] != "masked" or row["nfe"] == 1]
    if not rows:
        raise FactorankError(f"{results} holds no results on test pictures")
    panels = {
        "solved_identical": ("puzzles solved (%)", 100),
        "pieces_identical": ("pieces right (%)", 100),
        "per_second": ("puzzles a second", 1),
    }
    figure, axes = pyplot.subplots(1, len(panels), figsize=(13, 4.6), layout="constrained")
    lines = sorted({_line(row) for row in rows}, key=str)
    grids = sorted({row["grid"] for row in rows})
    for axis, (key, (title, scale)) in zip(axes, panels.items(), strict=True):
        for line in lines:
            points = _means([row for row in rows if _line(row) == line], key, scale)
            if points:
                axis.plot(*zip(*points, strict=True), **_style(*line))
        axis.set(title=title, xlabel="pieces in a row", xticks=grids)
        axis.grid(alpha=0.3)
        if scale == 100:
            axis.set_ylim(-3, 103)
    for name, (grid, share) in PUBLISHED.items():
        if grid in grids:
            mark = "*" if "Soft" in name else "+"
            axes[1].plot(
                [grid], [share], mark, color="black", markersize=9, label=f"{name} (published)", linestyle=""
            )
    axes[2].set_yscale("log")
    handles = dict(
        zip(*reversed(axes[1].get_legend_handles_labels()), strict=True)
    )  # a label may occur in one panel only
    figure.legend(
        list(handles.values()), list(handles), loc="outside lower center", ncol=4, fontsize=9, frameon=False
    )
    save(figure, path)


def _line(row: dict[str, Any]) -> tuple[str, str | None, str | None, str | None]:
    return row["method"], row.get("label"), row["code"], row["objective"]


def _style(method: str, label: str | None, code: str | None, objective: str | None) -> dict[str, Any]:
    if method != "factorank" or code is None:
        name, mark = METHODS.get(method, (method, "x"))
        return {"color": "0.45", "marker": mark, "linestyle": "--", "linewidth": 1.2, "label": name}
    grey, mark, line = CODE_STYLES[code]
    filled = objective == "masked"
    name = f"{code}, {objective}" + ("" if label == "default" else ", the paper's network")
    return {
        "color": grey,
        "marker": mark,
        "markersize": 6,
        "markerfacecolor": grey if filled else "white",
        "linestyle": (line if filled else ":") if label == "default" else "-.",
        "linewidth": 1.4 if label == "default" else 0.8,
        "label": name,
    }


def _means(rows: list[dict[str, Any]], key: str, scale: float) -> list[tuple[int, float]]:
    """The mean over the rows of each grid, where the value is known."""
    found: dict[int, list[float]] = {}
    for row in rows:
        if row.get(key) is not None:
            found.setdefault(row["grid"], []).append(scale * row[key])
    return sorted((grid, sum(values) / len(values)) for grid, values in found.items())
