"""``factorank coverage``: how often intervals and sets of ranks hold the truth."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

from factorank.commands._options import check_least
from factorank.commands._text import percent, table


@dataclass
class Coverage:
    """Measure how often intervals hold the truth: of a Mallows law's phi, or of scores and ranks."""

    of: Annotated[Literal["phi", "ranks"], tyro.conf.Positional] = "phi"
    """phi: simulated elections. ranks: simulated tournaments."""
    elections: int = 200
    """Simulated elections, or tournaments, for each setting; of 130 items a fifth of them."""
    scores: Literal["all", "spread", "near ties", "tied"] = "all"
    """The true scores of tournaments."""
    seed: int = 0
    """Decides them."""
    out: Path = Path("runs/coverage")
    """The folder for coverage.jsonl; tournaments that it holds already are not played again."""

    def run(self) -> None:
        from factorank.experiments.record import provenance

        check_least("elections", self.elections)
        command = f"factorank coverage {self.of} --elections {self.elections} --seed {self.seed}"
        command += "" if self.scores == "all" else f" --scores '{self.scores}'"
        if self.of == "phi":
            self.phi(provenance(command))
        else:
            self.ranks(provenance(command))
        print(f"written to {self.out / 'coverage.jsonl'}")

    def phi(self, about: dict[str, Any]) -> None:
        from tqdm import tqdm

        from factorank.experiments.coverage import METHODS, SETTINGS, coverage_rows
        from factorank.experiments.record import write_results

        total = len(SETTINGS) * len(METHODS)
        rows = [
            row | about for row in tqdm(coverage_rows(self.elections, self.seed), total=total, disable=None)
        ]
        write_results(self.out / "coverage.jsonl", rows)
        shares = {(row["n"], row["voters"], row["method"]): row["coverage"] for row in rows}
        lines = [
            [n, voters, *(percent(shares[n, voters, method]) for method in METHODS)] for n, voters in SETTINGS
        ]
        print(table(["items", "voters", *METHODS], lines))
        print(f"\nPercent of {self.elections} elections whose 95% interval holds the true phi.")

    def ranks(self, about: dict[str, Any]) -> None:
        from tqdm import tqdm

        from factorank.experiments import rank_coverage
        from factorank.experiments.record import write_results

        settings = tuple(t for t in rank_coverage.TOURNAMENTS if self.scores in ("all", t.scores))
        groups = rank_coverage.measure(self.out, settings, self.elections, self.seed, about)
        rows = [row for group in tqdm(groups, total=len(settings), disable=None) for row in group]
        write_results(self.out / "coverage.jsonl", rows)
        lines = [
            [row["n"], row["graph"], row["scores"], row["method"], row["repetitions"]]
            + [_percent(row[f"{what}_coverage"]) for what in ("interval", "rank", "simultaneous")]
            + [f"{row['simultaneous_width']:.1f}"]
            for row in rows
        ]
        header = ["items", "graph", "scores", "method", "times", "intervals", "ranks", "all ranks", "width"]
        print(table(header, lines))
        print(
            "\nPercent of the tournaments whose 95% intervals of scores, set of a rank, and sets of all ranks"
        )
        print("hold the truth; the last column is the mean number of ranks in these sets.")


def _percent(share: float | None) -> str:
    return "–" if share is None else percent(share)
