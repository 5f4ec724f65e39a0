"""``factorank laws``: the same encoder under different laws, on jigsaw puzzles."""

import time
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal

from factorank.commands._options import check_least
from factorank.commands._processes import check_jobs, finished, say
from factorank.commands._text import command_line, percent, table
from factorank.errors import FactorankError

Law = Literal[
    "lehmer-masked",
    "lehmer-autoregressive",
    "inline-assignment",
    "gumbel-sinkhorn",
    "riffle-diffusion",
    "lehmer-drafted",
    "inline-drafted",
]
Encoder = Literal["convolution", "mlp+neighbours"]


@dataclass
class Laws:
    """Compare laws at equal encoders, steps and settings, on jigsaw puzzles of CIFAR-10."""

    laws: tuple[Law, ...] = (
        "lehmer-masked",
        "lehmer-autoregressive",
        "inline-assignment",
        "gumbel-sinkhorn",
        "riffle-diffusion",
        "lehmer-drafted",
        "inline-drafted",
    )
    """The laws; those that are drafted have hints, the others none."""
    encoders: tuple[Encoder, ...] = ("convolution", "mlp+neighbours")
    """The encoders of the pieces."""
    grids: tuple[int, ...] = (3, 4, 5, 6)
    """Pieces in a row."""
    lrs: tuple[float, ...] = (1e-3, 2e-3, 4e-4)
    """Learning rates to try; the rows are those of the best on held-out pictures."""
    rates: Path | None = None
    """The laws.jsonl of an earlier call on one grid, whose best rates are taken in place of --lrs."""
    seeds: int = 1
    """How many times each."""
    steps: int = 3000
    """Training steps of each."""
    batch_size: int = 1024
    """Puzzles in a step."""
    width: int = 128
    """Of the network."""
    most: int | None = None
    """Score this many pictures of each split at most."""
    data: Path | None = None
    """The folder of CIFAR-10; $FACTORANK_DATA or the cache unless given. Downloaded if it is not there."""
    max_seconds: float | None = None
    """Stop after this much time; the same command goes on."""
    compile: bool = False
    """Pass the loss through torch.compile: quicker steps after a slow beginning."""
    jobs: int = 1
    """How many runs go side by side, each in a process of its own."""
    alone: bool = False
    """Train nothing: measure the puzzles a second of finished runs again, one after the other."""
    out: Path = Path("runs/laws")
    """The folder for the runs and laws.jsonl."""

    def run(self) -> int:
        from factorank.experiments import laws
        from factorank.experiments.record import gather_rows, write_results
        from factorank.files import read_json_lines

        check_jobs(self.jobs)
        check_least("seeds", self.seeds)
        check_least("most", self.most)
        until = None if self.max_seconds is None else time.time() + self.max_seconds
        listed = laws.settings(
            self.laws,
            self.encoders,
            self.grids,
            self.lrs,
            range(self.seeds),
            self.steps,
            batch_size=self.batch_size,
            width=self.width,
        )
        tried: dict[str, Any] = {}
        if self.rates is not None:
            earlier = read_json_lines(self.rates)
            listed = laws.at_rates(listed, earlier)
            tried = {"lr_tried": earlier[0]["lr_tried"], "lr_chosen_at": laws.chosen_at(earlier)}
        options: dict[str, Any] = {"most": self.most, "until": until, "command": command_line()}
        options |= {"compile": self.compile, "shared": self.jobs > 1}
        failed, jobs = 0, 1 if self.alone else self.jobs
        todo = [(each, self.out, self.data, options, self.alone) for each in listed]
        for index, rows in finished(work, todo, jobs):
            failed += isinstance(rows, str)
            say(f"{listed[index].name}: {rows if isinstance(rows, str) else outcome(rows)}")
            if rows and not isinstance(rows, str):
                gathered = laws.best_rates(gather_rows(self.out, "rows"))
                write_results(self.out / "laws.jsonl", [row | tried for row in gathered])
        rows = laws.best_rates(gather_rows(self.out, "rows"))
        if not rows:
            raise FactorankError(f"{self.out} holds no rows yet: give more --max-seconds")
        print("\n" + rows_table(rows) + f"\n\nwritten to {self.out}: laws.jsonl")
        return 1 if failed else 0


def work(
    setting: Any, out: Path, data: Path | None, options: dict[str, Any], alone: bool
) -> list[dict[str, Any]] | str:
    """One run, in a process of its own: its rows, or why it failed, which does not stop the others."""
    from factorank.experiments import laws

    try:
        if alone:
            return laws.time_alone(setting, out, pictures_of(data))
        return laws.run(setting, out, pictures_of(data), **options)
    except (FactorankError, RuntimeError) as error:
        return f"failed: {' '.join(str(error).split())[:500]}"


@cache
def pictures_of(data: Path | None) -> Any:
    """CIFAR-10, read once by each process."""
    from factorank.jigsaw import cifar10

    return cifar10(data)


def outcome(rows: list[dict[str, Any]]) -> str:
    """What a run came to on held-out pictures, in a few words."""
    if not rows:
        return "no rows yet; the same command goes on"
    return f"{100 * rows[0]['solved_identical']:.2f}% of the held-out puzzles solved"


def rows_table(rows: list[dict[str, Any]]) -> str:
    """One line for each law: shares in percent."""
    header = ["encoder", "grid", "law", "nfe", "solved =", "pieces =", "a second", "bits", "stated", "lr"]
    lines = []
    for row in sorted(rows, key=lambda row: (row["encoder"], row["grid"], str(row["code"]), row["method"])):
        kind = (
            row["method"] if row["code"] is None else f"{row['code']} {row['objective'][:6]} {row['decode']}"
        ) + (" drafted" if row["hints"] else "")
        shares = [percent(row["solved_identical"], 2), percent(row["pieces_identical"], 2)]
        bits = "" if row["bits"] is None else f"{row['bits']:.2f}"
        end = [f"{row['per_second']:,.0f}", bits, percent(row["stated"]), f"{row['lr']:g}"]
        lines.append([row["encoder"], row["grid"], kind, row["nfe"], *shares, *end])
    note = "Columns with = count identical pieces as equal; shares and stated probabilities in percent"
    return f"{note}\n\n{table(header, lines, 'lrl')}"
