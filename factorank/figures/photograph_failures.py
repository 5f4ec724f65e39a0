"""Maps of the puzzles of photographs that were not solved: which slots are wrong, and how flat pieces are."""

import numpy as np

from factorank.errors import FactorankError
from factorank.figures.drawing import AnyPath, of_results, panels, save
from factorank.files import read_json_lines

ACROSS = 6
MOST = 24
"""How many puzzles are drawn."""
MARKS = {"flat": "_", "repeated": "=", "other": "x"}


@of_results
def failures_figure(results: AnyPath, path: AnyPath) -> None:
    """A board for each puzzle: dark slots have little contrast at their borders, marks are on wrong pieces.

    A dash means flat, two that another piece fits as well, a cross neither. The puzzles with the most wrong
    pieces come first.
    """
    rows = sorted(read_json_lines(results), key=lambda row: -len(row["wrong"]))[:MOST]
    if not rows:
        raise FactorankError(f"{results} holds no puzzles that were not solved")
    across = min(ACROSS, len(rows))
    down = -(-len(rows) // across)
    figure, axes = panels(down, across, 2.3 * across, 2.5 * down)
    for axis in axes.ravel()[len(rows) :]:
        axis.set_visible(False)
    for axis, row in zip(axes.ravel(), rows, strict=False):
        board = np.array(row["contrast"]).reshape(row["grid"], row["columns"])
        axis.imshow(np.log1p(board), cmap="gray", vmin=0, vmax=4, aspect="auto")
        for slot, reason in zip(row["wrong"], row["reasons"], strict=True):
            y, x = divmod(slot, row["columns"])
            axis.text(x, y, MARKS[reason], color="red", ha="center", va="center", fontsize=9, weight="bold")
        stated = f"stated {100 * row['probability']:.0f}%"
        axis.set_title(f"{row['picture']}: {len(row['wrong'])} wrong, {stated}", fontsize=7)
        axis.set(xticks=[], yticks=[])
    save(figure, path)
