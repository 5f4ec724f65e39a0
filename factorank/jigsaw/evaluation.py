"""Measuring a solver of puzzles: how many are right, and how many it solves a second."""

import time
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from factorank.jigsaw.model import JigsawModel, pieces_of
from factorank.jigsaw.puzzles import Direction, scrambled
from factorank.jigsaw.scores import Scores
from factorank.jigsaw.solving import Search, solve_puzzles

Solver = Callable[[Tensor], Tensor]
"""From pieces ``(batch, n, piece, piece, 3)`` to orders ``(batch, n)``."""
BATCH = 1024
"""How many puzzles are solved at once when they are scored, and when speed is measured."""
PAIRS = 2**23
"""The most pairs of pieces in a batch: puzzles of many pieces come in smaller batches."""
WATCHED = 2000
"""How many held-out puzzles are solved when training is watched."""


def evaluate(
    solver: Solver,
    pictures: Tensor,
    grid: int,
    direction: Direction,
    *,
    seed: int = 0,
    most: int | None = None,
    batch_size: int = BATCH,
) -> Scores:
    """The scores of any solver on a puzzle of each picture, scrambled by the seed."""
    order, pieces = scrambled(pictures[:most], grid, direction=direction, seed=seed)
    scores, batch_size = Scores(), batch_that_fits(batch_size, grid)
    for first in range(0, len(order), batch_size):
        part = slice(first, first + batch_size)
        scores.add(order[part], solver(pieces[part]), pieces[part], direction)
    return scores


def puzzles_per_second(
    solver: Solver, pictures: Tensor, grid: int, *, batch_size: int = BATCH, seconds: float = 1.0
) -> float:
    """How many puzzles a solver solves in a second, in batches that are on the device already."""
    batch_size = batch_that_fits(batch_size, grid)
    rows = torch.arange(batch_size, device=pictures.device) % len(pictures)
    pieces = scrambled(pictures[rows], grid)[1]

    def once() -> None:
        solver(pieces)
        if pieces.device.type == "cuda":
            torch.cuda.synchronize()

    once()  # compiles
    once()
    started, batches = time.perf_counter(), 0
    while batches == 0 or time.perf_counter() - started < seconds:
        once()
        batches += 1
    return batches * batch_size / (time.perf_counter() - started)


def watcher(held_out: Tensor, device: torch.device) -> Callable[[JigsawModel], dict[str, float]]:
    """For ``train(watch=…)``: the shares of held-out puzzles, and of their pieces, that are right.

    Searches are greedy here, so that watching does not take longer than training.
    """
    watched = held_out[:WATCHED].to(device)

    def watch(model: JigsawModel) -> dict[str, float]:
        encoder = pieces_of(model)
        solver = partial(solve_puzzles, model, search=Search(beam=1))
        scores = evaluate(solver, watched, encoder.grid, encoder.direction).summary()
        return {name: scores[name] for name in ("solved", "pieces")}

    return watch


def batch_that_fits(batch_size: int, grid: int) -> int:
    """How many puzzles of that grid are solved at once, at most ``batch_size``.

    >>> batch_that_fits(1024, 8), batch_that_fits(1024, 32)
    (1024, 8)
    """
    return max(1, min(batch_size, PAIRS // grid**4))
