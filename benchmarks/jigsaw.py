"""Jigsaw puzzles: puzzles solved a second and training steps a second, ours and the baselines, in one run.

    ./run bench jigsaw [--grids 2 3 4 5] [--runs runs/jigsaw] [--data FOLDER] [--called] [--out FILE]

Solving is in batches of 1,024 puzzles that are on the device already: ours in one evaluation, Gumbel-Sinkhorn
by the best assignment, riffle diffusion by its schedule with the beam search of its authors. On a GPU all
replay CUDA graphs, unless ``--called``. Each is measured in turn, and its best turn counts. Models are those
of seed 0 in ``--runs``, else the ones that come with the package, else of random weights; puzzles are of
CIFAR-10's test pictures in ``--data``, else random. Of random ones an assignment takes longer than of sure
scores, whose pieces seldom clash. Training is each method's own step at batch 1,024 on random pictures,
without what comes before the first hundred steps: with a run's ``steps_to_90`` it says how long that took.
Rows are written as each grid is done.
"""

import argparse
import sys
import tempfile
from collections.abc import Sequence
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from benchmarks.rows import human, merge
from benchmarks.timing import show
from factorank.data.picture_sets import SIDE, Pictures, cifar10
from factorank.experiments.record import provenance
from factorank.jigsaw import (
    JigsawSetting,
    history,
    learn,
    load_any,
    new_model,
    puzzles_per_second,
    setting,
    shipped_models,
    solve_puzzles,
)
from factorank.jigsaw.evaluation import BATCH
from factorank.jigsaw.model import JigsawModel
from factorank.jigsaw.settings import METHODS
from factorank.kernels import dispatch

PRESET = {"factorank": "default"}


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="bench jigsaw", description=__doc__)
    parser.add_argument("--grids", type=int, nargs="+", default=[2, 3, 4, 5], help="pieces in a row")
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS))
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--runs", type=Path, help="the folder of trained models")
    parser.add_argument("--data", type=Path, help="the folder of CIFAR-10; random pictures unless given")
    parser.add_argument("--called", action="store_true", help="solve kernel by kernel: replay no CUDA graphs")
    parser.add_argument("--turns", type=int, default=2, help="how many times each method is measured")
    parser.add_argument("--steps", type=int, default=300, help="training steps; 0 for no training")
    parser.add_argument("--quick", action="store_true", help="small batches: does everything run?")
    parser.add_argument(
        "--out", default="runs/bench/jigsaw-speed.jsonl", help="rows of other devices are kept"
    )
    options = parser.parse_args(argv)
    if options.runs is not None and not options.runs.is_dir():
        parser.error(f"there is no folder {options.runs}")
    torch.set_float32_matmul_precision("high")
    where = provenance(" ".join(["factorank bench jigsaw", *(argv or ())]))
    pictures = some_pictures(BATCH) if options.data is None else cifar10(options.data).test[:BATCH]
    rows: list[dict[str, Any]] = []
    for grid in options.grids:
        measured = solving(grid, pictures.to(options.device), options)
        measured += training(grid, options) if options.steps else []
        rows += [{"experiment": "jigsaw-speed"} | row | where for row in measured]
        merge(options.out, rows, figure=False)
    print(f"\nJigsaw puzzles on {where['device']}")
    show(
        ["what", "method", "a second", "ours is"],
        [[row["what"], row["method"], human(row["rate"]), _times(row["ratio"])] for row in rows],
    )
    return 0


def settings(grid: int, options: argparse.Namespace) -> dict[str, JigsawSetting]:
    changes = {"batch_size": 16} if options.quick else {}
    return {
        name: setting(PRESET.get(name, name), grid=grid, steps=options.steps or None, **changes)
        for name in options.methods
    }


def solving(grid: int, pictures: Tensor, options: argparse.Namespace) -> list[dict[str, Any]]:
    """Puzzles a second of each method."""
    batch, seconds = (16, 0.01) if options.quick else (BATCH, 1.0)
    best = dict.fromkeys(options.methods, 0.0)
    models = {name: model_of(chosen, options.runs) for name, chosen in settings(grid, options).items()}
    for _ in range(options.turns):
        for name, (model, _) in models.items():
            solver = partial(solve_puzzles, model.to(options.device).eval())
            with dispatch.plain("recording") if options.called else nullcontext():
                rate = puzzles_per_second(solver, pictures, grid, batch_size=batch, seconds=seconds)
            best[name] = max(best[name], rate)
    rows = _rows(f"solve {grid}x{grid}{', called' if options.called else ''}", grid, batch, best)
    shown = "random" if options.data is None else "cifar-10"
    return [row | {"weights": models[row["method"]][1], "pictures": shown} for row in rows]


def training(grid: int, options: argparse.Namespace) -> list[dict[str, Any]]:
    """Training steps a second of each method."""
    many = some_pictures(5000)
    pictures = Pictures(many, many[:1], many[:1])
    rates = {}
    for name, chosen in settings(grid, options).items():
        with tempfile.TemporaryDirectory() as folder:
            out = Path(folder) / "run"
            how = {"log_every": min(100, options.steps), "watch_every": None, "progress": False}
            learn(chosen, pictures, out, device=options.device, **how)
            rates[name] = [line["rate"] for line in history(out) if "rate" in line][-1]
        torch.compiler.reset()
    return _rows(f"train {grid}x{grid}", grid, chosen.batch_size, rates)


def model_of(chosen: JigsawSetting, runs: Path | None) -> tuple[JigsawModel, str]:
    """The model of a setting, and where its weights come from."""
    if runs is not None and (run := runs / chosen.name).exists():
        steps = [line["step"] for line in history(run)]
        return load_any(chosen.grid, run), f"{steps[-1]:,} steps" if steps else "trained"
    if chosen.method == "factorank" and chosen.grid in shipped_models():
        return load_any(chosen.grid), "shipped"
    return new_model(chosen), "random"


def some_pictures(count: int) -> Tensor:
    return torch.randint(256, (count, SIDE, SIDE, 3), generator=torch.Generator().manual_seed(0)).byte()


def _times(ratio: float | None) -> str:
    return "–" if ratio is None else f"{ratio:.3g}×"


def _rows(what: str, grid: int, batch: int, rates: dict[str, float]) -> list[dict[str, Any]]:
    ours = rates.get("factorank")
    return [
        {
            "what": what,
            "grid": grid,
            "batch": batch,
            "method": name,
            "rate": rate,
            "ratio": None if ours is None else ours / rate,
        }
        for name, rate in rates.items()
    ]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
