"""Measuring a solver of puzzles: how many puzzles and pieces are right, and how many it solves a second."""

import math
import time
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from factorank.errors import FactorankError
from factorank.jigsaw.model import JigsawModel, pieces_of
from factorank.jigsaw.puzzles import Direction, scrambled
from factorank.jigsaw.solving import Search, solve_puzzles
from factorank.permutations import inverse, is_permutation

Solver = Callable[[Tensor], Tensor]
"""From pieces ``(batch, n, piece, piece, 3)`` to orders ``(batch, n)``."""
BATCH = 1024
"""How many puzzles are solved at once when they are scored, and when speed is measured."""
PAIRS = 2**23
"""The most pairs of pieces in a batch: puzzles of many pieces come in smaller batches."""
WATCHED = 2000
"""How many held-out puzzles are solved when training is watched."""


def evaluate(solver: Solver, pictures: Tensor, grid: int, direction: Direction) -> dict[str, float]:
    """The :func:`scores` of any solver on a puzzle of each picture, always the same puzzles."""
    order, pieces = scrambled(pictures, grid, direction=direction)
    solution = torch.cat([solver(part) for part in pieces.split(batch_that_fits(BATCH, grid))])
    return scores(order, solution, pieces, direction)


def scores(order: Tensor, solution: Tensor, pieces: Tensor, direction: Direction) -> dict[str, float]:
    """How well puzzles ``(puzzles, n)`` are solved: shares, with 95% intervals.

    ``solved`` and ``pieces`` are the shares of the puzzles and of the pieces that are right; with
    ``_identical`` pieces with the same pixels count as equal. A solution that is no permutation solves
    nothing. The intervals, ``_low`` and ``_high``, are Wilson's for puzzles. The pieces of one puzzle are
    right or wrong together, so theirs come from the spread over the puzzles.
    """
    if solution.shape != order.shape:
        raise FactorankError(f"there are {tuple(order.shape)} truths but {tuple(solution.shape)} solutions")
    puzzles = len(order)
    if not puzzles:
        raise FactorankError("no puzzle was scored")
    right, alike = order == solution, pieces_alike(order, solution, pieces, direction)
    result: dict[str, float] = {"puzzles": puzzles}
    both = {"solved": right.all(-1), "solved_identical": alike.all(-1) & is_permutation(solution)}
    for name, solved in both.items():
        count = int(solved.sum())
        low, high = wilson(count, puzzles)
        result |= {name: count / puzzles, f"{name}_low": low, f"{name}_high": high}
    for name, entries in (("pieces", right), ("pieces_identical", alike)):
        shares = entries.double().mean(-1)
        mean, half = float(shares.mean()), 1.96 * float(shares.std(correction=0)) / math.sqrt(puzzles)
        result |= {name: mean, f"{name}_low": max(mean - half, 0.0), f"{name}_high": min(mean + half, 1.0)}
    return result


def pieces_alike(order: Tensor, solution: Tensor, pieces: Tensor, direction: Direction) -> Tensor:
    """Which entries of a solution give the pixels of the true picture: bool ``(*batch, n)``.

    A piece in another piece's slot counts as right if the two have the same pixels. ``order`` is the truth;
    it and the ``solution`` are read in the direction, ``(*batch, n)``. ``pieces``
    ``(*batch, n, piece, piece, channels)`` are in scrambled order.

    >>> pieces = torch.tensor([7, 7, 9]).view(3, 1, 1, 1)  # two pieces of one colour
    >>> pieces_alike(torch.tensor([0, 1, 2]), torch.tensor([1, 0, 2]), pieces, "slot-of-piece")
    tensor([True, True, True])
    """
    pixels = pieces.flatten(-3)

    def take(at: Tensor) -> Tensor:
        return pixels.gather(-2, at[..., None].expand(*at.shape, pixels.shape[-1]))

    if direction == "slot-of-piece":
        # Entry i: piece i was put into slot solution[i], where the piece of that slot belongs.
        placed, belongs = pixels, take(inverse(order, check=False).gather(-1, solution))
    else:
        placed, belongs = take(solution), take(order)
    return (placed == belongs).all(-1)


def wilson(count: int, total: int, z: float = 1.959964) -> tuple[float, float]:
    """The 95% interval of a share, by Wilson's score.

    Wilson, "Probable inference, the law of succession, and statistical inference", 1927.

    >>> [round(bound, 4) for bound in wilson(98, 100)]
    [0.93, 0.9945]
    """
    share = count / total
    middle = share + z * z / (2 * total)
    half = z * math.sqrt(share * (1 - share) / total + z * z / (4 * total * total))
    scale = 1 + z * z / total
    return max((middle - half) / scale, 0.0), min((middle + half) / scale, 1.0)


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
        measured = evaluate(solver, watched, encoder.grid, encoder.direction)
        return {name: measured[name] for name in ("solved", "pieces")}

    return watch


def batch_that_fits(batch_size: int, grid: int) -> int:
    """How many puzzles of that grid are solved at once, at most ``batch_size``.

    >>> batch_that_fits(1024, 8), batch_that_fits(1024, 32)
    (1024, 8)
    """
    return max(1, min(batch_size, PAIRS // grid**4))
