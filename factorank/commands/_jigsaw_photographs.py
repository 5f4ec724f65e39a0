"""``factorank jigsaw eval --pictures`` without a run: the model for photographs on a folder of them."""

import resource
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from factorank.commands._text import command_line, counted, percent, table
from factorank.errors import FactorankError

if TYPE_CHECKING:
    from factorank.jigsaw.photographs.puzzles import Task


def eval_photographs(
    folder: Path, task: "Task", *, weights: Path | None, scrambles: int, most: int | None, out: Path | None
) -> int:
    """Score the model, with and without its search, and the solver without learning; print a table."""
    import torch

    from factorank.data.pictures import at_most, picture_files, read_picture
    from factorank.experiments.photographs import measure
    from factorank.experiments.record import provenance, write_results
    from factorank.jigsaw import PhotographModel, solve
    from factorank.jigsaw.single import LONGEST

    if scrambles < 1:
        raise FactorankError(f"--scrambles is at least 1, not {scrambles}")
    started = time.perf_counter()
    model = PhotographModel.load(weights)
    loaded = time.perf_counter() - started
    paths = picture_files(folder)[:most]
    times = []
    for _ in range(2):  # the first time is cold: code is compiled and loaded
        started = time.perf_counter()
        solve(paths[0], task.grid, turned=task.turned, model=model)
        times.append(time.perf_counter() - started)
    model.network.to("cuda" if torch.cuda.is_available() else "cpu")
    pictures = [torch.from_numpy(at_most(read_picture(path), LONGEST)) for path in paths]
    about: dict[str, Any] = {
        "data": folder.resolve().name,
        "load_seconds": round(loaded, 3),
        "cold_seconds": round(times[0], 3),
        "warm_seconds": round(times[1], 3),
    }
    measured = list(measure(model, pictures, [task], scrambles=scrambles))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (2**20 if sys.platform == "darwin" else 2**10)
    about |= {"peak_mebibytes": round(peak)} | provenance(command_line())
    rows = [row | about for row in measured]
    print(photograph_table(rows, asdict(task)))
    print(
        f"\nmodel loaded in {loaded:.2f} s; one picture, from file to solution: first {times[0]:.2f} s, then"
        f" {times[1]:.2f} s; peak memory {peak:,.0f} MiB"
    )
    if out is not None:
        write_results(out, rows)
        print(f"written to {out}")
    return 0


def photograph_table(rows: list[dict[str, Any]], task: dict[str, Any]) -> str:
    """Puzzles and pieces in percent, with intervals, a row for each method."""
    header = ["method", "solved", "95%", "pieces", "95%", "stated", "seconds"]
    lines = []
    for row in rows:
        name = row["method"] + (", searched" if row["search"] else "")
        intervals = [
            f"{percent(row[f'{key}_low'])}–{percent(row[f'{key}_high'])}"
            for key in ("solved_identical", "pieces_identical")
        ]
        cells = [percent(row["solved_identical"]), intervals[0], percent(row["pieces_identical"], 2)]
        each = f"{row['seconds'] / row['puzzles']:.3f}"
        lines.append([name, *cells, intervals[1], percent(row.get("stated")), each])
    rows_columns = "×".join(map(str, task["grid"]))
    extras = [
        "turned" if task["turned"] else "",
        f"{percent(task['missing'], 0)}% missing" if task["missing"] else "",
        f"pieces of {task['piece']} pixels" if task["piece"] else "",
    ]
    what = ", ".join([rows_columns, *filter(None, extras)])
    note = f"{what}: {counted(rows[0]['puzzles'], 'puzzle')}, in percent; identical pieces are equal"
    return f"{note}\n\n{table(header, lines, 'l')}"
