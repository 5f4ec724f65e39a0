"""Trained jigsaw models: those that ship with the package, and those in the folders of runs."""

import json
import os
import re
from pathlib import Path

from factorank.baselines.ordering import FORMAT as BASELINE
from factorank.baselines.ordering import OrderingModel
from factorank.errors import FactorankError
from factorank.jigsaw.model import JigsawModel, pieces_of
from factorank.models import PermutationModel

WEIGHTS = Path(__file__).parents[1] / "weights" / "jigsaw"


def load(
    grid: int | None = None,
    folder: str | os.PathLike[str] | None = None,
    *,
    weights: str | os.PathLike[str] = WEIGHTS,
) -> PermutationModel:
    """A trained jigsaw model: the one in a folder, or the shipped one for a grid.

    ``weights`` is where shipped models are.

    >>> load(3).n
    9
    """
    model = load_any(grid, folder, weights=weights)
    if not isinstance(model, PermutationModel):
        raise FactorankError(f"{folder} holds a baseline, {model.kind}; a model of factorank is needed here")
    return model


def load_any(
    grid: int | None = None,
    folder: str | os.PathLike[str] | None = None,
    *,
    weights: str | os.PathLike[str] = WEIGHTS,
) -> JigsawModel:
    """The same, or a baseline that was trained on puzzles."""
    if folder is None:
        models = shipped_models(weights)
        if grid not in models:
            grids = ", ".join(f"{g}×{g}" for g in models) or "none"
            raise FactorankError(
                f"no trained model is shipped for a grid of {grid}×{grid} (there are {grids});"
                " `factorank jigsaw train` trains others, whose folder can be given instead",
                parameter="grid",
            )
        folder = models[grid]
    elif runs := _runs_in(Path(folder)):
        raise FactorankError(f"{folder} is not a run, but holds some: {', '.join(map(str, runs))}")
    kind = OrderingModel if _format(Path(folder)) == BASELINE else PermutationModel
    model: JigsawModel = kind.from_pretrained(folder)
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


def _format(folder: Path) -> str | None:
    try:
        config = json.loads((folder / "config.json").read_bytes())
    except (OSError, ValueError):
        return None  # whoever reads the model says what is wrong
    return config.get("format") if isinstance(config, dict) else None


def _runs_in(folder: Path) -> list[Path]:
    """The runs in the subfolders of a folder that is none itself."""
    if (folder / "config.json").exists():
        return []
    return sorted(path.parent for path in folder.glob("*/config.json"))
