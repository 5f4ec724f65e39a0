"""``factorank sort``: sort numbers of four handwritten digits, learnt from sorted lists alone."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import tyro

from factorank.commands._options import check_least
from factorank.commands._processes import check_jobs, finished, say
from factorank.commands._text import command_line, percent, table
from factorank.errors import FactorankError
from factorank.signals import exit_code

MOST_LAYERS = 13
"""Convolutions without padding that a digit of 28 pixels has room for."""


@dataclass(kw_only=True)
class SortTrain:
    """Train models on sorted lists and score them; the same command resumes runs that were stopped."""

    methods: tuple[Literal["factorank", "score-and-sort"], ...] = ("factorank", "score-and-sort")
    """factorank: every cell is read as one of ten levels, and the order is that of the numbers they make.
    score-and-sort: every number has a score."""
    seeds: int = 1
    """How many models of each."""
    n: int = 100
    """Numbers in a list to train on; the models sort lists of any length."""
    batch_size: int = 12
    """Lists in a step."""
    channels: tuple[int, ...] = (32, 48, 64, 80, 96, 112, 128, 144, 160, 176)
    """Of the convolutions that read a digit, at most 13 layers."""
    lr: float = 1e-3
    """The highest learning rate."""
    max_seconds: float = 600.0
    """Training time of each model; the learning rate falls to zero with it."""
    tries: int = 3
    """Beginnings of each model, of which the one with the largest likelihood goes on."""
    start: tuple[Path, ...] = ()
    """Folders of trained models of one method to begin from, one for each seed."""
    lists: int = 2000
    """Lists of each length to score on."""
    data: Path | None = None
    """The data folder that holds mnist/; $FACTORANK_DATA or the cache unless given."""
    jobs: int = 1
    """How many models are trained side by side, each in a process of its own."""
    out: Path = Path("runs/sort")
    """The folder for the runs and sort.jsonl."""

    def run(self) -> int:
        from factorank.experiments.record import gather_rows, write_results
        from factorank.experiments.sort import SortSetting

        check_jobs(self.jobs)
        for name in ("seeds", "n", "batch_size", "lists", "tries"):
            check_least(name, getattr(self, name))
        if not 1 <= len(self.channels) <= MOST_LAYERS:
            raise FactorankError(f"--channels takes 1 to {MOST_LAYERS} layers, not {len(self.channels)}")
        shared: dict[str, Any] = {"channels": self.channels, "n": self.n, "batch_size": self.batch_size}
        shared |= {"lr": self.lr, "seconds": self.max_seconds, "tries": self.tries}
        if self.start and (len(self.start), len(self.methods)) != (self.seeds, 1):
            raise FactorankError("--start takes a folder for each of the --seeds of one method")
        listed = [
            SortSetting(method=method, seed=seed, **shared)
            for seed in range(self.seeds)
            for method in self.methods
        ]
        about = {"lists": self.lists, "command": command_line()}
        starts = self.start or (None,) * len(listed)
        tasks = [
            (setting, self.out, self.data, about | {"start": start})
            for setting, start in zip(listed, starts, strict=True)
        ]
        for index, rows in finished(work, tasks, self.jobs):
            name = listed[index].name
            say(f"{name}: finished" if rows else f"{name}: stopped; the same command goes on with it")
            write_results(self.out / "sort.jsonl", gather_rows(self.out, "rows"))
        rows = gather_rows(self.out, "rows")
        if not rows:
            return exit_code()
        print("\n" + rows_table([row for row in rows if row["split"] == "test"]))
        print(f"\nwritten to {self.out}: the models, sort.jsonl")
        return 0


@dataclass(kw_only=True)
class SortEval:
    """Score a trained model on lists of test digits; several models read every digit together."""

    models: Annotated[tuple[Path, ...], tyro.conf.Positional, tyro.conf.arg(metavar="RUN…")]
    """The folders of the runs."""
    n: tuple[int, ...] = (5, 10, 32, 100, 200)
    """Lengths of the lists."""
    lists: int = 2000
    """Lists of each length."""
    split: Literal["test", "held_out"] = "test"
    """The digits to score on: held_out, which are not trained on either, to choose by."""
    data: Path | None = None
    """The data folder that holds mnist/; $FACTORANK_DATA or the cache unless given."""
    out: Path | None = None
    """A file for the rows."""

    def run(self) -> int:
        import torch

        from factorank.data.digits import mnist
        from factorank.experiments import sort
        from factorank.experiments.number_sorter import NumberSorter
        from factorank.experiments.record import provenance, write_results

        for n in (self.lists, *self.n):
            check_least("n", n)
        if not self.models:
            raise FactorankError("give the folder of a run, or several")
        device = "cuda" if torch.cuda.is_available() else "cpu"
        models = [NumberSorter.from_pretrained(sort.model_folder(each)).to(device) for each in self.models]
        if len({model.method for model in models}) > 1 or (len(models) > 1 and models[0].scorer is not None):
            raise FactorankError("several models read together if all of them read digits")
        setting = sort.SortSetting(method=models[0].method, channels=models[0].channels)
        digits = getattr(mnist(self.data), self.split)
        about = {"split": self.split} | provenance(command_line())
        scored = sort.score(setting, models, digits, lengths=self.n, lists=self.lists)
        rows = [row | about for row in scored]
        print(rows_table(rows))
        if self.out is not None:
            write_results(self.out, rows)
            print(f"\nwritten to {self.out}")
        return 0


class Sort:
    """Sort numbers of four handwritten digits, learnt from sorted lists alone."""

    actions: ClassVar = {"train": SortTrain, "eval": SortEval}


def work(setting: Any, out: Path, data: Path | None, options: dict[str, Any]) -> list[dict[str, Any]]:
    """One run, in a process of its own."""
    from factorank.data.digits import mnist
    from factorank.experiments import sort

    return sort.run(setting, mnist(data), out, **options)


def rows_table(rows: list[dict[str, Any]]) -> str:
    """A line for each length: items in place and lists exact in percent, digits misread, bits of a list."""
    header = ["method", "models", "n", "items", "exact", "95%", "digit error", "bits"]
    lines = []
    for row in rows:
        interval = f"{percent(row['exact_low'])}–{percent(row['exact_high'])}"
        shares = [percent(row["items"]), percent(row["exact"]), interval, percent(row["digit_error"], 2)]
        lines.append([row["method"], row["nfe"], row["n"], *shares, f"{row['bits']:.2f}"])
    note = f"{rows[0]['lists']:,} lists of each length, in percent; equal numbers may come in either order"
    return f"{note}\n\n{table(header, lines, 'l')}"
