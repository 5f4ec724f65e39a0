"""``factorank cyclic``: learn the uniform law on cyclic permutations."""

import textwrap
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from factorank.commands._options import options_for
from factorank.commands._processes import check_jobs, finished, first_process, processes, say
from factorank.commands._text import command_line, counted, percent, table
from factorank.errors import FactorankError
from factorank.signals import exit_code

SMALL = 64
"""Up to this width a step on a CPU is quicker on one thread than when its parts are handed out to several."""


@dataclass
class Cyclic:
    """Learn the uniform law on cyclic permutations with every code, and sample it at every NFE."""

    preset: Literal["laptop", "paper"] = "laptop"
    """laptop: n = 8 and a small network, minutes on two cores. paper: n = 10 and the paper's, for a GPU."""
    codes: tuple[str, ...] = ("inline", "lehmer", "left-lehmer", "fisher-yates", "insertion")
    """The codes to learn with."""
    objectives: tuple[Literal["masked", "autoregressive"], ...] = ("masked", "autoregressive")
    """The objectives to learn with."""
    own_end: bool = True
    """Let autoregressive models predict left-lehmer and insertion codes from their last position."""
    seeds: int = 1
    """How many times, each with its own 20% of the permutations and its own start."""
    nfe: tuple[int, ...] = ()
    """Network evaluations to sample masked models at; all from 1 to n unless given."""
    steps: int | None = None
    """Training steps, if other than the preset's."""
    lr: float | None = None
    """The highest learning rate, if other than the preset's."""
    dropout: float | None = None
    """Of the network, if other than the preset's."""
    weight_decay: float | None = None
    """Of the network's matrices, if other than the preset's."""
    watch: bool = False
    """Sample every law fifty times while it trains, for the curves in cyclic-curve.jsonl."""
    max_seconds: float | None = None
    """Stop training a law after this much time; the same command goes on with it."""
    precision: Literal["fp32", "bf16"] | None = None
    """Of training, if other than the preset's."""
    compile: bool = False
    """Pass the loss through torch.compile."""
    jobs: int = 1
    """How many laws are trained side by side, each in a process of its own: small runs do not fill a GPU."""
    out: Path | None = None
    """The folder for the runs, cyclic.jsonl and cyclic.png; runs/cyclic unless given, runs/cyclic-paper for
    that preset."""

    def run(self) -> int:
        from factorank.experiments import cyclic
        from factorank.experiments.record import provenance, write_results
        from factorank.figures import curve_figure, cyclic_figure

        size = cyclic.preset(self.preset, **options_for(self, cyclic.Preset))
        listed = cyclic.laws(self.codes, self.objectives, self.seeds, own_end=self.own_end)
        if outside := [nfe for nfe in self.nfe if not 1 <= nfe <= size.n]:
            raise FactorankError(f"--nfe is from 1 to {size.n} at this size, not {outside[0]}")
        out = self.out or Path("runs") / ("cyclic" if self.preset == "laptop" else f"cyclic-{self.preset}")
        check_jobs(self.jobs)
        choose_threads(size)
        about = provenance(command_line())
        about["batch_size"] = size.batch_size * processes()
        options = {"max_seconds": self.max_seconds, "compile": self.compile}
        if self.jobs > 1:
            options["progress"] = False
        tasks = []
        for number, law in enumerate(listed, start=1):
            title = f"[{number}/{len(listed)}] {law.code}, {law.objective}, seed {law.seed}"
            tasks.append((title, law, size, out / "laws", self.nfe, self.watch, options))
        scored: dict[int, list[dict[str, Any]]] = {}
        unfinished, rows = [], []
        try:
            for index, (result, law_rows) in finished(learn_and_score, tasks, self.jobs):
                law = listed[index]
                if result.stopped == "interrupted":
                    raise KeyboardInterrupt
                if result.stopped == "max_seconds":
                    unfinished.append(law.name)
                trained = {"trained_steps": result.steps, "train_seconds": round(result.seconds, 1)}
                scored[index] = [row | cyclic.describe(size) | trained | about for row in law_rows]
                rows = [row for index in sorted(scored) for row in scored[index]]
                if first_process():
                    write_results(out / "cyclic.jsonl", rows)
                if self.jobs > 1:
                    took = f"{counted(result.steps, 'step')} in {result.seconds:.0f} s"
                    say(f"[{len(scored)}/{len(listed)}] {law.name}: {took}")
        except KeyboardInterrupt:
            say(f"stopped; the same command goes on from {out / 'laws'}")
            return exit_code()
        if first_process() and self.watch:
            about |= {"dropout": size.dropout, "weight_decay": size.weight_decay}
            curves = [row | about for law in listed for row in cyclic.curve(law, size, out / "laws")]
            write_results(out / "cyclic-curve.jsonl", curves)
            curve_figure(out / "cyclic-curve.jsonl", out / "cyclic-curve.png")
        if first_process():
            cyclic_figure(out / "cyclic.jsonl", out / "cyclic.png")
            print("\n" + cyclic_table(rows))
            if unfinished:
                print(f"\nnot finished, run the same command to go on: {', '.join(unfinished)}")
            more = ", cyclic-curve.jsonl, cyclic-curve.png" if self.watch else ""
            print(f"\nwritten to {out}: cyclic.jsonl, cyclic.png{more}")
        return 0


def choose_threads(size: Any) -> None:
    """One thread for a small network; the rows of results say how many there were."""
    import torch

    if size.width <= SMALL:
        torch.set_num_threads(1)


def learn_and_score(
    title: str, law: Any, size: Any, out: Path, nfes: tuple[int, ...], watch: bool, options: dict[str, Any]
) -> tuple[Any, list[dict[str, Any]]]:
    """Train one law and score it, unless it was interrupted; with ``--jobs`` in a process of its own."""
    from factorank.experiments import cyclic

    choose_threads(size)
    if options.get("progress") is None:
        say(title)
    if watch:
        options = options | {"watch": cyclic.watcher(law, size)}
    model, result = cyclic.learn(law, size, out, **options)
    if result.stopped == "interrupted" or not first_process():
        return result, []
    return result, list(cyclic.score(law, size, model, nfes))


def cyclic_table(rows: list[dict[str, Any]]) -> str:
    """The cyclic share at some NFEs, each code from its own end, means over the seeds; then the other numbers
    at the highest NFE."""
    from factorank.figures.cyclic import from_own_ends

    n, share = rows[0]["n"], rows[0]["share"]
    shown = sorted({1, 2, n // 2, n} & {row["nfe"] for row in rows})
    lines = []
    own = from_own_ends(rows)
    for code, objective in dict.fromkeys((row["code"], row["objective"]) for row in own):
        mine = [row for row in own if (row["code"], row["objective"]) == (code, objective)]
        last = max(row["nfe"] for row in mine)
        cells = [percent(_mean(mine, "cyclic", nfe)) for nfe in shown]
        cells += [percent(_mean(mine, key, last)) for key in ("unique_cyclic", "in_train")]
        lines.append([code, objective, *cells, f"{_mean(mine, 'kl', last):.3f}"])
    header = ["code", "objective", *(f"nfe {nfe}" for nfe in shown), "unique", "in train", "KL bits"]
    note = (
        f"n = {n}, {rows[0]['samples']} samples each. nfe: cyclic samples in %, at that number of network"
        f" evaluations ({100 / n:.1f} for random permutations); left-lehmer and insertion codes are revealed"
        " right to left, others left to right. At the highest NFE: unique, different cyclic"
        f" samples in % ({100 * rows[0]['unique_expected']:.1f} from a perfect model); in train, cyclic"
        f" samples that were trained on in % ({100 * share:.0f} if nothing was memorised); KL, divergence"
        " of the uniform law on cyclic permutations from the model."
    )
    return table(header, lines, "ll", indent=0) + "\n\n" + textwrap.fill(note, 79)


def _mean(rows: list[dict[str, Any]], key: str, nfe: int) -> float | None:
    values = [row[key] for row in rows if row["nfe"] == nfe]
    return sum(values) / len(values) if values else None
