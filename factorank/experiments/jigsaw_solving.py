"""Solving puzzles with a model, and measuring a solver: how many are right, and how many a second."""

import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import Tensor

from factorank.data.jigsaw import Direction, scrambled
from factorank.errors import FactorankError
from factorank.experiments.jigsaw_scores import Scores
from factorank.models import PermutationModel
from factorank.models.autoregressive import AutoregressiveLaw
from factorank.models.pieces import Pieces

BATCH = 1024
"""How many puzzles are solved at once when they are scored, and when speed is measured."""
WATCHED = 2000
"""How many held-out puzzles are solved every now and then during training."""


@torch.no_grad()
def solve(
    model: PermutationModel,
    pieces: Tensor,
    *,
    nfe: int | None = None,
    unmask: str | None = None,
    beam: int | None = None,
) -> Tensor:
    """The model's solutions ``(batch, n)`` of puzzles with pieces ``(batch, n, piece, piece, 3)``.

    A masked model reveals the solution in ``nfe`` evaluations, 1 unless given, the most certain positions
    first unless ``unmask`` says otherwise; an autoregressive one searches with a beam, 8 wide unless given.
    """
    with precision_of(pieces.device):
        if model.objective == "masked":
            return model.distribution(pieces, nfe=nfe or 1, unmask=unmask or "confident").mode
        law = model.distribution(pieces, nfe=nfe, unmask=unmask)
        if beam is None:
            return law.mode
        assert isinstance(law, AutoregressiveLaw)
        return law.beam(beam)[0][..., 0, :]


def precision_of(device: torch.device) -> AbstractContextManager[Any]:
    """bfloat16 on CUDA, where the models are trained with it; float32 elsewhere."""
    return torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda")


def direction_of(model: PermutationModel) -> Direction:
    """How the orders of a jigsaw model are to be read."""
    if not isinstance(model.context, Pieces):
        raise FactorankError("this model does not solve jigsaw puzzles: its context is not of pieces")
    return model.context.direction


Solver = Callable[[Tensor], Tensor]
"""From pieces ``(batch, n, piece, piece, 3)`` to orders ``(batch, n)``."""


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
    """Solve a puzzle of each picture, scrambled by the seed, and count. Any solver will do, ours or not."""
    order, pieces = scrambled(pictures[:most], grid, direction=direction, seed=seed)
    scores = Scores()
    for first in range(0, len(order), batch_size):
        part = slice(first, first + batch_size)
        scores.add(order[part], solver(pieces[part]), pieces[part], direction)
    return scores


def puzzles_per_second(
    solver: Solver, pictures: Tensor, grid: int, *, batch_size: int = BATCH, seconds: float = 1.0
) -> float:
    """How many puzzles a solver solves in a second, in batches that are on the device already."""
    rows = torch.arange(batch_size, device=pictures.device) % len(pictures)
    pieces = scrambled(pictures[rows], grid)[1]

    def once() -> None:
        solver(pieces)
        if pieces.device.type == "cuda":
            torch.cuda.synchronize()

    once()  # compiles what has to be
    once()
    started, batches = time.perf_counter(), 0
    while batches == 0 or time.perf_counter() - started < seconds:
        once()
        batches += 1
    return batches * batch_size / (time.perf_counter() - started)


def watcher(held_out: Tensor, device: torch.device) -> Callable[[PermutationModel], dict[str, float]]:
    """For ``train(watch=…)``: the shares of some held-out puzzles and of their pieces that are right."""
    shown = held_out[:WATCHED].to(device)

    def watch(model: PermutationModel) -> dict[str, float]:
        assert isinstance(model.context, Pieces)
        scores = evaluate(
            lambda pieces: solve(model, pieces), shown, model.context.grid, direction_of(model)
        ).summary()
        return {name: scores[name] for name in ("solved", "pieces")}

    return watch
