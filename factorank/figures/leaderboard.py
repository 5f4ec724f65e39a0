"""The figure of a leaderboard: scores with intervals, the ranks they allow, and who is above whom."""

from typing import Any

from factorank.figures.drawing import AnyPath, panels, save

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
    heat.set_xlabel("probability that the row is above the column")
    figure.colorbar(image, ax=heat, shrink=0.6)
    shown = f", the best {n} of {total}" if n < total else ""
    figure.suptitle(f"{facts['file']}: {facts['about']}{shown}; colours are tiers", fontsize=10)
    save(figure, path)
