"""``factorank leaderboard``: who is really ahead of whom."""

import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro

from factorank.commands._text import command_line, counted, shorten, table

if TYPE_CHECKING:
    from factorank.leaderboard import BattleTable, ScoreTable
    from factorank.leaderboard import Leaderboard as Board

ELO = 173.71779276130073
"""Points of the Elo scale in a nat: 400 / log 10."""


@dataclass(kw_only=True)
class Leaderboard:
    """Rank items by battles or by scores on tasks, with the uncertainty of their ranks."""

    file: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="FILE")]
    """Battles (model_a, model_b, winner; or winner, loser; or a square table of wins), scores (item, task,
    score; or a column a task): CSV, parquet, JSON or JSON lines. Or PrefLib rankings."""
    ties: Literal["davidson", "rao-kupper", "half"] = "davidson"
    """The law of ties; half counts a tie as half a win for each."""
    level: float = 0.95
    """Of the intervals and of the sets of ranks."""
    bootstrap: int | None = None
    """Take the errors from this many refits to battles, judges or tasks drawn with replacement."""
    prior: float | None = None
    """The precision of a normal prior on the scores; none unless the battles do not determine them."""
    scale: Literal["nats", "elo"] = "nats"
    """The unit of scores from battles: nats, or Elo points."""
    top: int = 40
    """How many items to print."""
    seed: int = 0
    """Decides the draws."""
    out: Path | None = None
    """A folder for leaderboard.json, leaderboard.png and leaderboard.html; nothing is written without."""
    html: Path | None = None
    """Write one self-contained page that sorts and filters."""

    def run(self) -> None:
        import torch

        from factorank.distributions import FitWarning
        from factorank.files import folder_made_whole, write_json, write_whole
        from factorank.leaderboard import Leaderboard as Board
        from factorank.leaderboard import ScoreTable, read_board

        data = read_board(self.file)
        generator = torch.Generator().manual_seed(self.seed)
        options: dict[str, Any] = {"level": self.level, "bootstrap": self.bootstrap, "generator": generator}
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always", FitWarning)
            if isinstance(data, ScoreTable):
                board = Board.from_scores(data, **options)
            else:
                board = Board.fit(data, self.ties, prior=self.prior, **options)
        facts = self.facts(board, data) | {"warnings": [str(entry.message) for entry in told]}
        print(text(facts, self.top))
        if self.html is not None:
            from factorank.leaderboard.page import page

            write_whole(self.html, page(facts))
            print(f"\nwritten: {self.html}")
        if self.out is not None:
            from factorank.figures.leaderboard import leaderboard_figure
            from factorank.leaderboard.page import page

            with folder_made_whole(self.out) as folder:
                write_json(folder / "leaderboard.json", facts)
                leaderboard_figure(facts, folder / "leaderboard.png")
                write_whole(folder / "leaderboard.html", page(facts))
            print(f"\nsaved in {self.out}: leaderboard.json, leaderboard.png, leaderboard.html")

    def facts(self, board: "Board", data: "BattleTable | ScoreTable") -> dict[str, Any]:
        """Everything that is printed, drawn and saved."""
        from factorank.leaderboard import ScoreTable

        columns = dict(board.table)
        if isinstance(data, ScoreTable):
            about, unit = f"mean of {counted(len(data.tasks), 'task')}", "above the mean"
        else:
            assert board.comparisons is not None
            assert board.comparisons.report is not None
            family = board.comparisons.report.family
            about = f"{family}, {counted(round(sum(columns['battles']) / 2), 'battle')}"
            if data.judges is not None:
                about += f" of {counted(int(data.judges.max()) + 1, 'judge')}, errors by judges"
            unit = self.scale
            factor = ELO if self.scale == "elo" else 1.0
            for name in ("score", "low", "high"):
                columns[name] = [factor * value for value in columns[name]]
        order = board.order
        return {
            "experiment": "leaderboard",
            "file": self.file.name,
            "about": about,
            "unit": unit,
            "level": self.level,
            "items": len(board.items),
            "table": columns,
            "above": board.law.above()[order][:, order].tolist(),
            "certain": board.certain(),
            "command": command_line(),
        }


def text(facts: dict[str, Any], top: int) -> str:
    """The table for a terminal."""
    columns, digits = facts["table"], 0 if facts["unit"] == "elo" else 3
    shown = min(top, len(columns["item"]))
    rows = []
    for i in range(shown):
        error = (columns["high"][i] - columns["low"][i]) / 2
        rows.append(
            [
                _span(columns["rank_low"][i], columns["rank_high"][i]),
                shorten(columns["item"][i], 32),
                f"{columns['score'][i]:.{digits}f} ± {error:.{digits}f}",
                f"{100 * columns['p_best'][i]:.1f}",
                _span(columns["rank_low_simultaneous"][i], columns["rank_high_simultaneous"][i]),
                columns["tier"][i],
            ]
        )
    level = f"{100 * facts['level']:g}%"
    lines = [f"{facts['file']}: {counted(facts['items'], 'item')}, {facts['about']}", ""]
    lines.append(
        table(["rank", "item", f"score ({facts['unit']})", "P(best) %", "rank, all", "tier"], rows, "ll")
    )
    if shown < len(columns["item"]):
        lines.append(f"  and {len(columns['item']) - shown} more; --top shows them")
    n, tiers = len(columns["item"]), counted(max(columns["tier"]), "tier")
    lines += [
        "",
        f"rank: {level} sure, each item by itself; rank, all: {level} sure of all ranks together.",
        f"A tier begins where an item is certainly below the first of the tier before: {tiers}.",
    ]
    if "more_battles" in columns:
        certain = columns["more_battles"].count(0)
        lines.append(f"Of {counted(n - 1, 'pair')} of neighbours {certain} are certainly in this order.")
        doubts = [(more, i) for i, more in enumerate(columns["more_battles"][:shown]) if more]
        if doubts:
            more, i = min(doubts)
            pair = " and ".join(shorten(columns["item"][k], 32) for k in (i, i + 1))
            lines.append(
                f"Nearest to a decision: {pair}, after some {counted(more, 'more battle')} of the two."
            )
    return "\n".join(lines + [f"warning: {entry}" for entry in facts["warnings"]])


def _span(low: int, high: int) -> str:
    return str(low) if low == high else f"{low}–{high}"
