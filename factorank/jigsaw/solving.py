"""Solving puzzles with a model, and measuring a solver: how many are right, and how many a second."""

import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from typing import Any

import torch
from torch import Tensor

from factorank.baselines import GumbelSinkhorn, RiffleDiffusion, best_assignment
from factorank.baselines.ordering import OrderingModel
from factorank.errors import FactorankError
from factorank.jigsaw.encoder import Pieces
from factorank.jigsaw.puzzles import Direction, scrambled
from factorank.jigsaw.scores import Scores
from factorank.kernels.gpu.graphs import replayed
from factorank.models import PermutationModel
from factorank.models.autoregressive import AutoregressiveLaw
from factorank.models.conditions import evaluating
from factorank.models.context import encode_context
from factorank.permutations import random_permutations

BATCH = 1024
"""How many puzzles are solved at once when they are scored, and when speed is measured."""
PAIRS = 2**23
"""How many pairs of pieces at most are looked at at once: puzzles of many pieces come in smaller batches."""
WATCHED = 2000
"""How many held-out puzzles are solved every now and then during training."""


@torch.no_grad()
def solve(
    model: PermutationModel | OrderingModel,
    pieces: Tensor,
    *,
    nfe: int | None = None,
    unmask: str | None = None,
    beam: int | None = None,
    assign: bool | None = None,
    tries: int = 1,
) -> Tensor:
    """The model's solutions ``(batch, n)`` of puzzles with pieces ``(batch, n, piece, piece, 3)``.

    Args:
        model: one of ours, or a baseline.
        pieces: bytes, in scrambled order.
        nfe: for masked models, in how many evaluations the solution is revealed; 1 unless given.
        unmask: for masked models, which positions first; the most certain ones unless given.
        beam: for autoregressive models, how many solutions the search keeps, 8 unless given; for riffle
            diffusion the width of its beam, 200 with 20 paths unless given.
        assign: for masked inline models at one evaluation, whose single best values can collide: take the
            permutation that is the most likely one of all. So it is unless False is given.
        tries: give the pieces to the model in so many random orders, and keep the solution to which it gives
            the highest probability. For our models with an exact likelihood.
    """
    if tries < 1:
        raise FactorankError(f"a puzzle is tried at least once, not {tries} times")
    if not isinstance(model, PermutationModel) and (assign or tries > 1 or nfe is not None):
        raise FactorankError("assign, tries and nfe are for our models, not for baselines")
    with precision_of(pieces.device):
        if isinstance(model, RiffleDiffusion):
            wide = {} if beam is None else {"beam": beam, "paths": min(beam, 20)}
            return _again(model, ("mode", beam), partial(model.mode, **wide), pieces)
        if isinstance(model, GumbelSinkhorn):
            with evaluating(model):
                return best_assignment(_again(model, "scores", model.scores, pieces))
        assert isinstance(model, PermutationModel)
        how: dict[str, Any] = {
            "nfe": nfe,
            "unmask": unmask,
            "beam": beam,
            "assign": assigns(model, assign, nfe),
        }
        found, best = solution(model, pieces, score=tries > 1, **how)
        chooser = torch.Generator().manual_seed(0)
        for _ in range(tries - 1):
            mixed = random_permutations(model.n, pieces.shape[:1], generator=chooser).to(pieces.device)
            shuffled = pieces.gather(1, mixed[..., None, None, None].expand_as(pieces))
            again, likelihood = solution(model, shuffled, score=True, **how)
            if direction_of(model) == "slot-of-piece":
                again = torch.empty_like(again).scatter_(1, mixed, again)
            else:
                again = mixed.gather(1, again)
            assert best is not None
            assert likelihood is not None
            better = likelihood > best
            found, best = torch.where(better[:, None], again, found), torch.where(better, likelihood, best)
        return found


def assigns(
    model: PermutationModel | OrderingModel, assign: bool | None = None, nfe: int | None = None
) -> bool:
    """Whether the solution of a model is found by assignment: what is asked for, if the model allows it."""
    able = isinstance(model, PermutationModel) and model.code.name == "inline" and model.objective == "masked"
    able = able and nfe in (None, 1)
    if assign and not able:
        raise FactorankError("assign is for masked inline models at one evaluation")
    return able if assign is None else assign


def solution(
    model: PermutationModel,
    pieces: Tensor,
    *,
    nfe: int | None = None,
    unmask: str | None = None,
    beam: int | None = None,
    assign: bool = False,
    score: bool = True,
) -> tuple[Tensor, Tensor | None]:
    """Solutions ``(batch, n)`` of one of our models and, if asked for, their log-probabilities ``(batch,)``.

    ``assign`` as :func:`assigns` gives it; see :func:`solve` for the others.
    """
    if assign:
        log_probs = of_each_piece(model, pieces)
        found = best_assignment(log_probs)
        return found, log_probs.gather(-1, found[..., None]).squeeze(-1).sum(-1)
    if model.objective == "masked":
        how: dict[str, Any] = {"nfe": 1 if nfe is None else nfe, "unmask": unmask or "confident"}
        key = ("mode", *how.values())
        found = _again(model, key, lambda some: model.distribution(some, **how).mode, pieces)
        return found, (model.distribution(pieces, **how).log_prob(found) if score else None)
    law = model.distribution(pieces, nfe=nfe, unmask=unmask)
    if beam is not None and isinstance(law, AutoregressiveLaw):
        orders, log_probs = law.beam(beam)
        return orders[:, 0], log_probs[:, 0]
    found = law.mode
    return found, (law.log_prob(found) if score else None)


def of_each_piece(model: PermutationModel, pieces: Tensor) -> Tensor:
    """The log-probabilities ``(batch, n, n)`` of a masked model's values, at one evaluation."""

    def evaluated(pieces: Tensor) -> Tensor:
        hidden_code = torch.full((len(pieces), model.n), model.network.mask_value, device=pieces.device)
        known = encode_context(model.context, pieces, model.n, model.width)
        return model.network.head(model.network.hidden(hidden_code, known, None)).log_softmax(-1)

    with evaluating(model):
        return _again(model, "of each piece", evaluated, pieces)


def _again(model: PermutationModel | OrderingModel, key: Any, function: "Solver", pieces: Tensor) -> Tensor:
    """A function of the pieces, replayed on a GPU when puzzles of that shape come again."""
    return replayed(model, key, function, pieces, len(pieces) * model.n)


def precision_of(device: torch.device) -> AbstractContextManager[Any]:
    """bfloat16 on CUDA, where the models are trained with it; float32 elsewhere."""
    return torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda")


def pieces_of(model: PermutationModel | OrderingModel) -> Pieces:
    """The encoder of a jigsaw model, which knows the grid."""
    encoder = model.context if isinstance(model, PermutationModel) else model.encoder
    if not isinstance(encoder, Pieces):
        raise FactorankError("this model does not solve jigsaw puzzles: its context is not of pieces")
    return encoder


def direction_of(model: PermutationModel | OrderingModel) -> Direction:
    """How the orders of a jigsaw model are to be read."""
    return pieces_of(model).direction


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
    scores, batch_size = Scores(), fitting(batch_size, grid)
    for first in range(0, len(order), batch_size):
        part = slice(first, first + batch_size)
        scores.add(order[part], solver(pieces[part]), pieces[part], direction)
    return scores


def fitting(batch_size: int, grid: int) -> int:
    """A number of puzzles of that grid that can be solved at once.

    >>> fitting(1024, 8), fitting(1024, 32)
    (1024, 8)
    """
    return max(1, min(batch_size, PAIRS // grid**4))


def puzzles_per_second(
    solver: Solver, pictures: Tensor, grid: int, *, batch_size: int = BATCH, seconds: float = 1.0
) -> float:
    """How many puzzles a solver solves in a second, in batches that are on the device already."""
    batch_size = fitting(batch_size, grid)
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


def watcher(
    held_out: Tensor, device: torch.device
) -> Callable[[PermutationModel | OrderingModel], dict[str, float]]:
    """For ``train(watch=…)``: the shares of some held-out puzzles and of their pieces that are right.

    Searches are greedy here, so that looking does not take longer than training.
    """
    shown = held_out[:WATCHED].to(device)

    def watch(model: PermutationModel | OrderingModel) -> dict[str, float]:
        scores = evaluate(
            lambda pieces: solve(model, pieces, beam=1), shown, pieces_of(model).grid, direction_of(model)
        ).summary()
        return {name: scores[name] for name in ("solved", "pieces")}

    return watch
