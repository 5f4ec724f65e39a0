"""``factorank coverage``: how often intervals of phi hold the truth."""

from dataclasses import dataclass
from pathlib import Path

from factorank.commands._options import check_least
from factorank.commands._text import percent, table


@dataclass
class Coverage:
    """Measure how often intervals of a Mallows law's phi hold the truth, by simulated elections."""

    elections: int = 200
    """Simulated elections for each number of items and of voters."""
    seed: int = 0
    """Decides them."""
    out: Path = Path("runs/coverage")
    """The folder for coverage.jsonl."""

    def run(self) -> None:
        from tqdm import tqdm

        from factorank.experiments.coverage import METHODS, SETTINGS, coverage_rows
        from factorank.experiments.record import provenance, write_results

        check_least("elections", self.elections)
        about = provenance(f"factorank coverage --elections {self.elections} --seed {self.seed}")
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
        print(f"written to {self.out / 'coverage.jsonl'}")
