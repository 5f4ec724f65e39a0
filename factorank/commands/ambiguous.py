"""``factorank ambiguous``: tasks with several right answers."""

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from factorank.commands._options import check_least
from factorank.commands._processes import check_jobs, finished, say
from factorank.commands._text import command_line, percent, table
from factorank.errors import FactorankError

Task = Literal[
    "blended-digits", "symmetric-assignment-20", "symmetric-assignment-100", "coin-sort", "plackett-luce"
]
SIZES: dict[Task, tuple[Any, int]] = {
    "coin-sort": ("coin-sort", 10),
    "plackett-luce": ("plackett-luce", 6),
    "symmetric-assignment-20": ("symmetric-assignment", 20),
    "symmetric-assignment-100": ("symmetric-assignment", 100),
    "blended-digits": ("blended-digits", 10),
}
"""The tasks, those that take the least time first."""


@dataclass
class Ambiguous:
    """Learn tasks in which several orders are right, with every code and the baselines."""

    tasks: tuple[Task, ...] = tuple(SIZES)
    """The tasks, with the number of items where there are several."""
    codes: tuple[str, ...] = ("inline", "lehmer", "left-lehmer", "fisher-yates", "insertion")
    """The codes of our models."""
    methods: tuple[Literal["masked", "autoregressive", "gumbel-sinkhorn", "riffle-diffusion"], ...] = (
        "masked",
        "autoregressive",
        "gumbel-sinkhorn",
        "riffle-diffusion",
    )
    """Our models by objective, and the baselines."""
    lrs: tuple[float, ...] = (1e-3, 3e-4)
    """Learning rates to try; the rows are those of the best on held-out cases."""
    seeds: int = 1
    """How many times each."""
    steps: int | None = None
    """Training steps, if other than the task's."""
    batch_size: int | None = None
    """Cases in a step, if other than the task's."""
    width: int = 128
    """Of the network."""
    depth: int = 4
    """Of the network."""
    cases: int | None = None
    """Test cases, if other than the task's."""
    matrices: int | None = None
    """Matrices to train on in the assignment tasks, if other than the task's."""
    data: Path | None = None
    """The data folder that holds mnist/; $FACTORANK_DATA or the cache unless given."""
    max_seconds: float | None = None
    """Stop after this much time; the same command goes on."""
    jobs: int = 1
    """How many runs go side by side, each in a process of its own."""
    out: Path = Path("runs/ambiguous")
    """The folder for the runs and ambiguous.jsonl."""

    def run(self) -> int:
        from factorank.experiments import ambiguous
        from factorank.experiments.record import gather_rows, write_results

        check_jobs(self.jobs)
        check_least("seeds", self.seeds)
        if not self.tasks or not self.lrs:
            raise FactorankError("--tasks and --lrs take one value or more")
        until = None if self.max_seconds is None else time.time() + self.max_seconds
        given = {"steps": self.steps, "batch_size": self.batch_size, "width": self.width, "depth": self.depth}
        listed = ambiguous.settings(
            [SIZES[name] for name in self.tasks],
            self.lrs,
            range(self.seeds),
            self.codes,
            self.methods,
            **{name: value for name, value in given.items() if value is not None},
        )
        options: dict[str, Any] = {
            "data": self.data,
            "cases": self.cases,
            "matrices": self.matrices,
            "until": until,
        }
        options["command"] = command_line()
        tasks = [(setting, self.out, options) for setting in listed]
        failed = 0
        for index, rows in finished(work, tasks, self.jobs):
            say(f"{listed[index].name}: {outcome(rows)}")
            failed += isinstance(rows, str)
            if rows and not isinstance(rows, str):
                write_results(
                    self.out / "ambiguous.jsonl", ambiguous.best_rates(gather_rows(self.out, "rows"))
                )
        rows = ambiguous.best_rates(gather_rows(self.out, "rows"))
        if not rows:
            raise FactorankError(f"{self.out} holds no rows yet: give more --max-seconds")
        print("\n" + rows_table(rows) + f"\n\nwritten to {self.out}: ambiguous.jsonl")
        return 1 if failed else 0


def work(setting: Any, out: Path, options: dict[str, Any]) -> list[dict[str, Any]] | str:
    """One run, in a process of its own: its rows, or why it failed, which does not stop the others."""
    from factorank.experiments import ambiguous

    try:
        return ambiguous.run(setting, out, **options)
    except (FactorankError, RuntimeError) as error:
        return f"failed: {' '.join(str(error).split())[:500]}"


def outcome(rows: list[dict[str, Any]] | str) -> str:
    """The last law of a run in one line, or why there is none."""
    if isinstance(rows, str):
        return rows
    if not rows:
        return "no rows yet; the same command goes on"
    last = rows[-1]
    values = {key: last[key] for key in ("clean", "both", "share", "kl") if last.get(key) is not None}
    return ", ".join([f"nfe {last['nfe']:g}", *(f"{key} {value:.4f}" for key, value in values.items())])


def rows_table(rows: list[dict[str, Any]]) -> str:
    """One line for each law: shares in percent, bits."""
    header = ["task", "n", "method", "nfe", "clean", "both", "share", "bits", "kl"]
    lines = []
    for row in rows:
        kind = row["method"] if row["code"] is None else f"{row['code']} {row['objective'][:6]}"
        shares = [percent(row.get(key)) for key in ("clean", "both", "share")]
        bits = ["" if row.get(key) is None else f"{row[key]:.3f}" for key in ("bits", "kl")]
        bound = "*" if row["entropy_bound"] is not None else ""
        lines.append([row["task"], row["n"], kind, f"{row['nfe']:.3g}{bound}", *shares, *bits])
    note = "clean, both and share in percent, bits and divergence in bits; * by the entropy bound"
    return f"{note}\n\n{table(header, lines, 'lrl')}"
