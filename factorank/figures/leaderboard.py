"""Leaderboards: scores with intervals, the ranks they allow, who is above whom; and how far to trust them."""

from typing import Any

from factorank.errors import FactorankError
from factorank.figures.drawing import (
    BLUE,
    GREEN,
    PURPLE,
    SKY,
    VERMILION,
    AnyPath,
    legend_below,
    of_results,
    panels,
    save,
)
from factorank.files import read_json_lines

TIERS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00")
"""Colours of neighbouring tiers that are told apart by people who are colour-blind as well."""
MOST_ITEMS = 40
"""The number of items, best first, that are drawn."""


def leaderboard_figure(facts: dict[str, Any], path: AnyPath) -> None:
    """Draw a leaderboard from the facts that ``factorank leaderboard`` writes."""
    table = {name: column[:MOST_ITEMS] for name, column in facts["table"].items()}
    n, total = len(table["item"]), len(facts["table"]["item"])
    names = [name if len(name) <= 28 else name[:27] + "…" for name in table["item"]]
    height = 1.6 + 0.24 * n
    figure, axes = panels(1, 3, 5.6 + 0.22 * n + 5.5, height, width_ratios=[3, 2, 1 + 0.07 * n])
    colours = [TIERS[(tier - 1) % len(TIERS)] for tier in table["tier"]]
    rows = range(n)
    scores, ranks, heat = axes[0]
    for row in rows:
        scores.plot([table["low"][row], table["high"][row]], [row, row], color=colours[row], linewidth=2.2)
        low, high = table["rank_low_simultaneous"][row], table["rank_high_simultaneous"][row]
        ranks.plot([low, high], [row, row], color=colours[row], linewidth=1.2, alpha=0.8)
        own = (table["rank_low"][row], table["rank_high"][row])
        ranks.plot(own, [row, row], color=colours[row], linewidth=4.5, solid_capstyle="butt")
        ranks.plot(row + 1, row, marker="o", color="white", markeredgecolor="black", markersize=3.5)
    scores.scatter(table["score"], rows, color=colours, s=22, zorder=3)
    scores.set_yticks(rows, names, fontsize=8)
    scores.set_xlabel(f"score ({facts['unit']}), {100 * facts['level']:g}% interval")
    ranks.set_xlabel(f"rank: thick each by itself, thin all together ({100 * facts['level']:g}%)")
    ranks.set_yticks([])
    for axis in (scores, ranks):
        axis.set_ylim(n - 0.4, -0.6)
        axis.grid(axis="x", alpha=0.3)
        for row in range(1, n):
            if table["tier"][row] != table["tier"][row - 1]:
                axis.axhline(row - 0.5, color="0.7", linewidth=0.8)
    above = [row[:MOST_ITEMS] for row in facts["above"][:MOST_ITEMS]]
    image = heat.imshow(above, cmap="RdBu", vmin=0, vmax=1)
    heat.set_xticks([])
    heat.set_yticks([])
    heat.set_xlabel("probability that the row is above the column, items in the same order")
    figure.colorbar(image, ax=heat, shrink=0.6)
    shown = f", the best {n} of {total}" if n < total else ""
    figure.suptitle(f"{facts['file']}: {facts['about']}{shown}; colours are tiers", fontsize=10)
    save(figure, path)


METHODS = {
    "normal": ("step-down (normal)", BLUE, "o"),
    "one-step bootstrap": ("step-down (one-step bootstrap)", SKY, "s"),
    "bootstrap": ("step-down (refits)", GREEN, "D"),
    "bonferroni": ("Bonferroni", PURPLE, "^"),
    "naive": ("naive: ends of intervals", VERMILION, "v"),
}
"""Name, colour and marker of each way to simultaneous sets of ranks."""


@of_results
def coverage_figure(results: AnyPath, path: AnyPath) -> None:
    """How often all ranks are in their sets, and how wide these are, in simulated tournaments."""
    rows = [row for row in read_json_lines(results) if row["what"] == "coverage"]
    if not rows:
        raise FactorankError(
            f"{results}: there are no rows of coverage; factorank coverage ranks writes them"
        )
    settings = list(dict.fromkeys((row["n"], row["graph"], row["scores"]) for row in rows))
    figure, axes = panels(1, 3, 14, 2.0 + 0.36 * len(settings), sharey=True)
    intervals, held, width = axes[0]
    for place, setting in enumerate(settings):
        here = {row["method"]: row for row in rows if (row["n"], row["graph"], row["scores"]) == setting}
        narrow = here["normal"]["simultaneous_width"]
        for index, (method, row) in enumerate(here.items()):
            _, colour, marker = METHODS[method]
            y = place + 0.13 * (index - 2)
            style = {"color": colour, "marker": marker, "linestyle": "none", "markersize": 5}
            if method in ("normal", "one-step bootstrap", "bootstrap"):
                intervals.plot(100 * row["interval_coverage"], y, **style)
            share, error = 100 * row["simultaneous_coverage"], 100 * row["simultaneous_se"]
            held.errorbar(share, y, xerr=2 * error, linewidth=1, **style)
            width.plot(row["simultaneous_width"] / narrow, y, **style)
    intervals.axvspan(93, 97, color="0.92")
    intervals.axvline(95, color="0.5", linewidth=0.8)
    held.axvline(95, color="0.5", linewidth=0.8)
    width.axvline(1, color="0.5", linewidth=0.8)
    intervals.set_yticks(
        range(len(settings)), [f"{n} items, {graph}, {scores}" for n, graph, scores in settings]
    )
    intervals.set_ylim(len(settings) - 0.4, -0.6)
    held.set_xlim(right=100.8)
    intervals.set_title("95% intervals that hold the score, %", fontsize=10)
    held.set_title("tournaments whose ranks are all\nin their sets, % (± 2 standard errors)", fontsize=10)
    width.set_title("mean number of ranks in a set,\nas a share of step-down's", fontsize=10)
    for axis in axes[0]:
        axis.grid(axis="x", alpha=0.3)
    there = [method for method in METHODS if any(row["method"] == method for row in rows)]
    handles = [
        intervals.plot([], [], color=METHODS[m][1], marker=METHODS[m][2], linestyle="none")[0] for m in there
    ]
    legend_below(figure, len(there), handles, [METHODS[method][0] for method in there])
    save(figure, path)
