"""Puzzles of photographs: the test part of BSDS500, three scrambles of each picture, at many grids.

One model solves all of them. ``law`` is its answer by one evaluation and an assignment; ``law+search`` goes
on from there to the board that agrees best with the learned matches of borders. ``edge-compatibility`` is the
solver without learning of :mod:`factorank.baselines.edge_compatibility`, on the same puzzles in the same run.
Choices were made, and certainties fitted, on 100 photographs of ImageNet that were held out.

BSDS500: Arbeláez et al., "Contour detection and hierarchical image segmentation", 2011.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from factorank.baselines.edge_compatibility import solve_by_edges
from factorank.data.pictures import at_most, picture_files, read_picture
from factorank.jigsaw.photographs import PhotographModel
from factorank.jigsaw.photographs.certainty import Certainty
from factorank.jigsaw.photographs.model import Mapper
from factorank.jigsaw.photographs.network import PhotographNetwork
from factorank.jigsaw.photographs.puzzles import (
    Puzzle,
    Task,
    make_puzzle,
    right_pieces,
    right_up_to_a_turn,
    shares,
)
from factorank.jigsaw.photographs.solving import Placed
from factorank.jigsaw.photographs.training import train
from factorank.training import checkpoints

GRIDS = (2, 3, 5, 8, 10, 12)
TASKS: tuple[Task, ...] = (
    *(Task((side, side)) for side in GRIDS),
    Task((6, 9)),
    Task((10, 10), piece=16),
    Task((5, 5), turned=True),
    Task((8, 8), turned=True),
    Task((8, 8), missing=0.1),
)
FITTED: tuple[Task, ...] = (
    *(Task((side, side)) for side in (3, 5, 7, 9, 10, 11, 12)),
    Task((5, 5), turned=True),
    Task((8, 8), missing=0.1),
)
"""The tasks to which certainties are fitted."""
LONGEST = 640
"""The longest side, in pixels, of a photograph to learn from."""
METHODS = ("law", "law+search", "edge-compatibility")
PAIRS = 600_000
"""Pairs of labels that are read at once."""


def train_model(
    photographs: str | Path,
    held_out: str | Path,
    out: str | Path,
    *,
    seconds: float,
    lr: float = 1.5e-3,
    device: str = "cuda",
    processes: int = 1,
    say: Callable[[str], None] = lambda text: None,
    **options: Any,
) -> PhotographModel:
    """Train on a folder of photographs, fit the certainty on another, and save the model to ``out/model``.

    ``out/checkpoints`` holds what to go on from; the same call goes on. ``options`` are those of
    :func:`factorank.jigsaw.photographs.training.train`.
    """
    folder = Path(out) / "checkpoints"
    folder.mkdir(parents=True, exist_ok=True)
    newest = checkpoints.newest(folder)
    state = None if newest is None else {**newest.tensors, "step": newest.step}

    def keep(state: dict[str, Any]) -> None:
        tensors = {name: state[name] for name in ("network", "average", "moments")}
        checkpoints.write(folder, checkpoints.Checkpoint(state["step"], tensors, {}))

    pictures = [picture.movedim(-1, 0).contiguous().to(device) for picture in read_photographs(photographs)]
    network = PhotographNetwork()
    final = train(network, pictures, seconds=seconds, lr=lr, state=state, checkpoint=keep, say=say, **options)
    network.load_state_dict({name: value.bfloat16().float() for name, value in final["average"].items()})
    model = PhotographModel(network.eval())
    certainty = fit_certainty(model, read_photographs(held_out), FITTED, processes=processes)
    model = PhotographModel(network, certainty)
    model.save(Path(out) / "model")
    return model


def read_photographs(folder: str | Path, most: int | None = None) -> list[Tensor]:
    """The photographs of a folder, uint8 ``(height, width, 3)``, none with a longer side than 640 pixels."""
    return [torch.from_numpy(at_most(read_picture(path), LONGEST)) for path in picture_files(folder)[:most]]


def measure(
    model: PhotographModel,
    pictures: Sequence[Tensor],
    tasks: Sequence[Task] = TASKS,
    *,
    scrambles: int = 3,
    methods: Sequence[str] = METHODS,
    processes: int = 1,
    say: Callable[[str], None] = lambda text: None,
) -> Iterator[dict[str, Any]]:
    """A row for each task and method, on puzzles of pictures, uint8 ``(height, width, 3)``."""
    with mapper(processes) as workers:
        for task in tasks:
            puzzles = puzzles_of(pictures, task, scrambles)
            for method in methods:
                if method == "edge-compatibility" and (task.turned or task.missing):
                    continue
                started = time.perf_counter()
                if method == "edge-compatibility":
                    placed = list(_by_edges(puzzles, task, workers))
                else:
                    placed = solve_all(model, puzzles, task, search=method == "law+search", workers=workers)
                row = {
                    "experiment": "photographs",
                    "method": method if method == "edge-compatibility" else "factorank",
                    "search": method == "law+search",
                    "grid": task.grid[0],
                    "columns": task.grid[1],
                    **{name: value for name, value in asdict(task).items() if name != "grid"},
                    "parameters": None if method == "edge-compatibility" else model.parameters,
                    "scrambles": scrambles,
                    **scored(
                        puzzles,
                        placed,
                        task,
                        method != "edge-compatibility",
                        upright=model.way_up is not None,
                    ),
                    "seconds": round(time.perf_counter() - started, 2),
                }
                say(
                    f"{task}, {method}: solved {row['solved_identical']:.4f}, pieces"
                    f" {row['pieces_identical']:.4f}, {row['seconds']} s"
                )
                yield row


def scored(
    puzzles: Sequence[Puzzle], placed: Sequence[Placed], task: Task, stated: bool, *, upright: bool
) -> dict[str, Any]:
    """Shares of solutions; those of turned pieces also up to a turn of the whole; and their calibration.

    Unless the model knows which way is ``upright``, it states probabilities up to a turn of the whole.
    """
    right = [right_pieces(puzzle, each) for puzzle, each in zip(puzzles, placed, strict=True)]
    row = shares(right)
    if task.turned:
        free = [
            right_up_to_a_turn(puzzle, each, task.grid) for puzzle, each in zip(puzzles, placed, strict=True)
        ]
        row |= {f"{name}_up_to_turn": value for name, value in shares(free).items() if name != "puzzles"}
        right = right if upright else free
    if stated:
        chances = np.array([each.probability for each in placed])
        solved = np.array([each.all() for each in right])
        sure = chances >= 0.9
        row |= {
            "stated_sure": float(sure.mean()),
            "stated_when_sure": float(chances[sure].mean()) if sure.any() else None,
            "solved_when_sure": float(solved[sure].mean()) if sure.any() else None,
            "stated": float(chances.mean()),
        }
    return row


def fit_certainty(
    model: PhotographModel,
    pictures: Sequence[Tensor],
    tasks: Sequence[Task],
    *,
    scrambles: int = 1,
    processes: int = 1,
) -> Certainty:
    """The certainty of the model's solutions, fitted to puzzles of pictures that were held out."""
    facts, right, piece_facts, pieces_right = [], [], [], []
    with mapper(processes) as workers:
        for task in tasks:
            puzzles = puzzles_of(pictures, task, scrambles)
            for puzzle, placed in zip(puzzles, solve_all(model, puzzles, task, workers=workers), strict=True):
                correct = (
                    right_up_to_a_turn(puzzle, placed, task.grid)
                    if task.turned
                    else right_pieces(puzzle, placed)
                )
                facts.append(placed.facts)
                right.append(correct.all())
                piece_facts.append(placed.piece_facts)
                pieces_right.append(correct)
    return Certainty.fit(
        np.array(facts), np.array(right), np.concatenate(piece_facts), np.concatenate(pieces_right)
    )


def puzzles_of(pictures: Sequence[Tensor], task: Task, scrambles: int) -> list[Puzzle]:
    """Puzzles of each picture, the same at every call."""
    return [
        make_puzzle(picture, task, torch.Generator().manual_seed(1000 * scramble + index))
        for scramble in range(scrambles)
        for index, picture in enumerate(pictures)
    ]


def solve_all(
    model: PhotographModel,
    puzzles: Sequence[Puzzle],
    task: Task,
    *,
    search: bool = True,
    workers: Mapper = map,
) -> list[Placed]:
    """The model's solutions of puzzles, read in batches."""
    labels = len(puzzles[0].pieces) * (4 if task.turned else 1)
    batch = max(1, PAIRS // labels**2)
    pieces = [puzzle.pieces for puzzle in puzzles]
    placed: list[Placed] = []
    for start in range(0, len(pieces), batch):
        some = pieces[start : start + batch]
        placed += model.solve(some, task.grid, turned=task.turned, search=search, workers=workers)
    return placed


def _by_edges(puzzles: Sequence[Puzzle], task: Task, workers: Any) -> Iterator[Placed]:
    for slots in workers(_EdgeSolver(task.grid), [puzzle.pieces.numpy() for puzzle in puzzles]):
        nothing = np.zeros((len(slots), 2))
        yield Placed(slots, np.zeros_like(slots), 0.0, nothing[:, 0], (0.0, 0.0), nothing, 0.0)


class _EdgeSolver:
    """The baseline for a grid, as something that can be sent to another process."""

    def __init__(self, grid: tuple[int, int]) -> None:
        self.grid = grid

    def __call__(self, pieces: np.ndarray) -> np.ndarray:
        return solve_by_edges(pieces, self.grid)


@contextmanager
def mapper(processes: int) -> Iterator[Any]:
    """A map over so many processes."""
    if processes == 1:
        yield map
        return
    with torch.multiprocessing.get_context("spawn").Pool(processes, torch.set_num_threads, (1,)) as pool:
        yield lambda function, values: pool.map(function, list(values), chunksize=4)
