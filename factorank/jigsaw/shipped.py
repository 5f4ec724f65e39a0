"""Trained jigsaw models: those that ship with the package, and those in the folders of runs."""

import os
import re
from pathlib import Path

from factorank.baselines.ordering import FORMAT as BASELINE
from factorank.baselines.ordering import OrderingModel
from factorank.errors import FactorankError
from factorank.jigsaw.model import JigsawModel, pieces_of
from factorank.models import PermutationModel
from factorank.sealed import is_sealed

WEIGHTS = Path(__file__).parents[1] / "weights" / "jigsaw"


def load(grid: int | None = None, folder: str | os.PathLike[str] | None = None) -> PermutationModel:
    """A trained jigsaw model: the one in a folder, or the shipped one for a grid.

    >>> load(3).n
    9
    """
    model = load_any(grid, folder)
    if not isinstance(model, PermutationModel):
        raise FactorankError(f"{folder} holds a baseline, {model.kind}; a model of factorank is needed here")
    return model


def load_any(grid: int | None = None, folder: str | os.PathLike[str] | None = None) -> JigsawModel:
    """The same, or a baseline that was trained on puzzles."""
    if folder is None:
        if grid not in shipped_models():
            raise not_shipped(grid, grid)
        folder = shipped_models()[grid]
    config = Path(folder) / "config.json"
    if not config.exists() and (runs := sorted(Path(folder).glob("*/config.json"))):
        listed = ", ".join(str(path.parent) for path in runs)
        raise FactorankError(f"{folder} is not a run, but holds some: {listed}")
    own = is_sealed(folder, "config.json", format=BASELINE)
    model: JigsawModel = (OrderingModel if own else PermutationModel).from_pretrained(folder)
    try:
        its = pieces_of(model).grid
    except FactorankError:
        raise FactorankError(f"the model in {folder} does not solve jigsaw puzzles") from None
    if grid not in (None, its):
        raise FactorankError(f"the model in {folder} solves {its}×{its} puzzles, not {grid}×{grid}")
    return model


def shipped_models(weights: str | os.PathLike[str] = WEIGHTS) -> dict[int, Path]:
    """The folders of the models that ship with the package, by grid."""
    names = {path: re.fullmatch(r"(\d+)x\1", path.name) for path in sorted(Path(weights).glob("*x*"))}
    return {int(name[1]): path for path, name in names.items() if name and (path / "config.json").is_file()}


def not_shipped(rows: int | None, columns: int | None) -> FactorankError:
    """That there are no weights for a grid."""
    grids = ", ".join(f"{g}×{g}" for g in shipped_models())
    return FactorankError(
        f"no trained model is shipped for a grid of {rows}×{columns} (there are {grids}); `factorank jigsaw"
        " train` trains others, whose folder can be given instead",
        parameter="grid",
    )
