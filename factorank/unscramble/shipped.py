"""The trained model that ships with the package, and others in folders."""

import os
from pathlib import Path

from factorank.data.words import LETTERS
from factorank.errors import FactorankError
from factorank.models import PermutationModel, TokenContext

WEIGHTS = Path(__file__).parents[1] / "weights" / "unscramble"


def load(folder: str | os.PathLike[str] = WEIGHTS) -> PermutationModel:
    """A trained model of letters: the one in a folder, or in ``model`` there; the shipped one by default."""
    folder = Path(folder)
    if not (folder / "config.json").exists() and (folder / "model" / "config.json").exists():
        folder = folder / "model"  # the folder of a whole run
    model = PermutationModel.from_pretrained(folder)
    if not isinstance(model.context, TokenContext) or "".join(model.context.vocabulary) != LETTERS:
        raise FactorankError(f"the model in {folder} does not order letters")
    return model
