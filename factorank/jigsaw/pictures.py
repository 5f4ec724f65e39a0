"""Puzzles from a picture of the user's, and the trained models that are shipped."""

import json
import math
import os
import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from factorank.baselines import GumbelSinkhorn, RiffleDiffusion, best_assignment
from factorank.baselines.ordering import OrderingModel
from factorank.data.pictures import read_picture, resized, square
from factorank.errors import FactorankError
from factorank.jigsaw.certainty import among_permutations
from factorank.jigsaw.encoder import Pieces
from factorank.jigsaw.puzzles import cut, join
from factorank.jigsaw.solving import assigns, direction_of, of_each_piece, pieces_of, solution
from factorank.models import PermutationModel
from factorank.permutations import inverse, is_permutation, random_permutations

BASELINES: dict[str | None, type[OrderingModel]] = {
    kind.kind: kind for kind in (GumbelSinkhorn, RiffleDiffusion)
}
WEIGHTS = Path(__file__).parents[1] / "weights" / "jigsaw"
SHOWN = 1024
"""The side of a panel in the figure, at most, in pixels."""


def shipped() -> dict[int, Path]:
    """The folders of the models that come with the package, by grid."""
    found = {path: re.fullmatch(r"(\d+)x\1", path.name) for path in sorted(WEIGHTS.glob("*x*"))}
    return {
        int(match[1]): path for path, match in found.items() if match and (path / "config.json").is_file()
    }


def load(grid: int | None = None, folder: str | os.PathLike[str] | None = None) -> PermutationModel:
    """A trained jigsaw model of ours: the one in a folder, or the one that is shipped for a grid."""
    model = load_any(grid, folder)
    if not isinstance(model, PermutationModel):
        raise FactorankError(f"{folder} holds a baseline, {model.kind}; a model of factorank is needed here")
    return model


def load_any(
    grid: int | None = None, folder: str | os.PathLike[str] | None = None
) -> PermutationModel | OrderingModel:
    """The same, or a baseline that was trained on puzzles."""
    if folder is None:
        models = shipped()
        if grid not in models:
            there = ", ".join(f"{g}×{g}" for g in models) or "none"
            raise FactorankError(
                f"no trained model is shipped for a grid of {grid}×{grid} (there are {there});"
                " `factorank jigsaw train` trains others, whose folder can be given instead"
            )
        folder = models[grid]
    elif runs := _runs_in(Path(folder)):
        raise FactorankError(f"{folder} is not a run, but holds some: {', '.join(map(str, runs))}")
    kind = BASELINES.get(_kind(Path(folder)))
    model = PermutationModel.from_pretrained(folder) if kind is None else kind.from_pretrained(folder)
    try:
        its = pieces_of(model).grid
    except FactorankError:
        raise FactorankError(f"the model in {folder} does not solve jigsaw puzzles") from None
    if grid not in (None, its):
        raise FactorankError(f"the model in {folder} solves {its}×{its} puzzles, not {grid}×{grid}")
    return model


def _kind(folder: Path) -> str | None:
    """What a baseline's folder calls it."""
    try:
        config = json.loads((folder / "config.json").read_bytes())
    except (OSError, ValueError):
        return None  # who reads the model will say what is wrong
    return config.get("kind") if isinstance(config, dict) else None


def _runs_in(folder: Path) -> list[Path]:
    """The runs in the subfolders of a folder that is none itself."""
    if (folder / "config.json").exists():
        return []
    return sorted(path.parent for path in folder.glob("*/config.json"))


def save(model: PermutationModel, folder: str | os.PathLike[str]) -> None:
    """Save a model with its weights in bfloat16, the precision it was trained with: half the size."""
    weights = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    model.bfloat16().save_pretrained(folder)
    model.float().load_state_dict(weights)


@dataclass(frozen=True)
class Solved:
    """A solved puzzle, as pictures uint8 ``(side, side, 3)``."""

    grid: int
    scrambled: np.ndarray
    solved: np.ndarray
    truth: np.ndarray
    wrong: list[int]
    """The slots, 0..n-1 row by row, that do not look as they should."""
    probability: float
    """What the model gives its solution, among the permutations."""

    @property
    def summary(self) -> str:
        """A line for people."""
        n = self.grid**2
        right = f"all {n} pieces right" if not self.wrong else f"{n - len(self.wrong)} of {n} pieces right"
        return f"{right}, probability of the solution {_percent(self.probability)}"


def solve_picture(
    model: PermutationModel, path: str | os.PathLike[str], *, nfe: int | None = None, seed: int = 0
) -> Solved:
    """Cut the middle square of a picture, scramble it by the seed, and let the model put it together.

    The model sees the picture scaled down to the size that it knows; what is returned is cut from the picture
    as it is, scaled to at most 1,024 pixels.
    """
    context = model.context
    assert isinstance(context, Pieces)
    grid, direction = context.grid, direction_of(model)
    whole = square(read_picture(path))
    if len(whole) < grid * 2:
        raise FactorankError(
            f"{path}: the picture has {len(whole)} pixels on its shorter side, too few for {grid} pieces of"
            " at least 2"
        )
    side = min(len(whole), SHOWN) // grid * grid
    shown = whole if len(whole) == side else resized(whole, side)
    small = resized(whole, grid * context.piece)
    slot = random_permutations(grid**2, generator=torch.Generator().manual_seed(seed))
    pieces = cut(torch.from_numpy(small), grid)[slot]

    with torch.no_grad():
        if assigns(model, None, nfe):
            log_probs = of_each_piece(model, pieces[None])
            found = best_assignment(log_probs)
            probability = among_permutations(log_probs[0], found[0])
        else:
            found, log_prob = solution(model, pieces[None], nfe=nfe)
            assert log_prob is not None
            probability = math.exp(float(log_prob[0]))
    if not bool(is_permutation(found)[0]):
        raise FactorankError(
            "the model's solution uses a slot twice: inline codes can leave the permutations"
        )
    piece_of_slot = inverse(found[0], check=False) if direction == "slot-of-piece" else found[0]

    by_slot = cut(torch.from_numpy(np.ascontiguousarray(shown)), grid)
    laid = by_slot[slot][piece_of_slot]
    wrong = (laid != by_slot).flatten(1).any(-1).nonzero()[:, 0].tolist()
    mixed, solved, truth = (join(part, grid).numpy() for part in (by_slot[slot], laid, by_slot))
    return Solved(grid, mixed, solved, truth, wrong, probability)


def _percent(share: float) -> str:
    """
    >>> _percent(0.99996), _percent(0.873), _percent(2e-7)
    ('over 99.9%', '87.3%', 'below 0.1%')
    """
    return "over 99.9%" if share > 0.9995 else "below 0.1%" if share < 0.0005 else f"{100 * share:.1f}%"
