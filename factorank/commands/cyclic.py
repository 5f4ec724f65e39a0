"""``factorank cyclic``: learn the uniform law on cyclic permutations."""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from factorank.commands._text import table


@dataclass
class Cyclic:
    """Learn the uniform law on cyclic permutations with every code, and sample it at every NFE."""

    preset: Literal["laptop", "paper"] = "laptop"
    """laptop: n = 8 and a small network, minutes on two cores. paper: n = 10 and the paper's, for a GPU."""
    codes: tuple[str, ...] = ("inline", "lehmer", "left-lehmer", "fisher-yates", "insertion")
    """The codes to learn with."""
    objectives: tuple[Literal["masked", "autoregressive"], ...] = ("masked", "autoregressive")
    """The objectives to learn with."""
    seeds: int = 1
    """How many times, each with its own 20% of the permutations and its own start."""
    nfe: tuple[int, ...] = ()
    """Network evaluations to sample masked models at; all from 1 to n unless given."""
    steps: int | None = None
    """Training steps, if other than the preset's."""
    max_seconds: float | None = None
    """Stop training a law after this much time; the same command goes on with it."""
    precision: Literal["fp32", "bf16"] | None = None
    """Of training, if other than the preset's."""
    compile: bool = False
    """Pass the loss through torch.compile."""
    out: Path = Path("runs/cyclic")
    """The folder for the runs, cyclic.jsonl and cyclic.png."""

    def run(self) -> int:
        from factorank.experiments import cyclic
        from factorank.experiments.record import provenance, write_results
        from factorank.figures import cyclic_figure

        size = cyclic.preset(self.preset, steps=self.steps, precision=self.precision)
        listed = cyclic.laws(self.codes, self.objectives, self.seeds)
        about = provenance(" ".join(["factorank", *sys.argv[1:]]))
        rows: list[dict[str, Any]] = []
        stopped = []
        for number, law in enumerate(listed, start=1):
            print(f"[{number}/{len(listed)}] {law.code}, {law.objective}, seed {law.seed}", flush=True)
            model, result = cyclic.learn(
                law, size, self.out / "laws", max_seconds=self.max_seconds, compile=self.compile
            )
            if result.stopped == "interrupted":
                print(f"stopped; the same command goes on from {self.out / 'laws' / law.name}")
                return 130
            if result.stopped == "max_seconds":
                stopped.append(law.name)
            trained = cyclic.describe(size) | {"trained_steps": result.steps, "train_seconds": result.seconds}
            rows += [row | trained | about for row in cyclic.score(law, size, model, self.nfe)]
            write_results(self.out / "cyclic.jsonl", rows)
        cyclic_figure(self.out / "cyclic.jsonl", self.out / "cyclic.png")
        print("\n" + cyclic_table(rows))
        if stopped:
            print(f"\nnot finished, run the same command to go on: {', '.join(stopped)}")
        print(f"\nwritten to {self.out}: cyclic.jsonl, cyclic.png")
        return 0


def cyclic_table(rows: list[dict[str, Any]]) -> str:
    """Cyclic share at each NFE, left to right, means over the seeds; then what the full NFE says."""
    n = rows[0]["n"]
    shown = sorted({1, 2, n // 2, n} & {row["nfe"] for row in rows})
    lines = []
    for code, objective in dict.fromkeys((row["code"], row["objective"]) for row in rows):
        mine = [
            r for r in rows if (r["code"], r["objective"], r["unmask"]) == (code, objective, "left-to-right")
        ]
        cells = [_percent(_mean(mine, "cyclic", nfe)) for nfe in shown]
        last = max(row["nfe"] for row in mine)
        unique, seen = _mean(mine, "unique_cyclic", last), _mean(mine, "in_train", last)
        lines.append(
            [code, objective, *cells, _percent(unique), _percent(seen), f"{_mean(mine, 'kl', last):.3f}"]
        )
    header = ["code", "objective", *(f"nfe {nfe}" for nfe in shown), "unique", "seen", "KL bits"]
    expected = rows[0]["unique_expected"]
    return (
        f"Cyclic samples (%), n = {n}; at full NFE: different cyclic samples ({100 * expected:.1f}% if perfect),\n"
        "those seen in training (20% if nothing was learnt by heart), divergence from the uniform law\n\n"
        + table(header, lines, "ll")
    )


def _mean(rows: list[dict[str, Any]], key: str, nfe: int) -> float | None:
    values = [row[key] for row in rows if row["nfe"] == nfe]
    return sum(values) / len(values) if values else None


def _percent(value: float | None) -> str:
    return "" if value is None else f"{100 * value:.1f}"
