"""What ``factorank fit`` or ``factorank train`` left in a folder, with the names of the items."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro

from factorank.errors import FactorankError

if TYPE_CHECKING:
    from factorank.distributions.base import PermutationDistribution
    from factorank.models.law import PermutationLaw

ITEMS = "items.json"
"""The file beside a model that names its items."""


@dataclass(kw_only=True)
class Saved:
    """A folder that holds a law or a model, and which law of the model is meant."""

    source: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="FOLDER")]
    """What `factorank fit` saved, or the run of a trained model."""
    nfe: int | None = None
    """For a model: network evaluations per order, from 1 to n; n unless given."""
    unmask: Literal["random", "left-to-right", "right-to-left", "confident"] | None = None
    """For a masked model: which positions of the code are revealed first; random unless given."""

    def open(self) -> "tuple[PermutationDistribution | PermutationLaw, list[str]]":
        """The law, classical or learnt, and the names of its items."""
        from factorank.distributions.saving import is_law, law_items, load_law
        from factorank.models import PermutationModel

        if is_law(self.source):
            if self.nfe is not None or self.unmask is not None:
                raise FactorankError(f"--nfe and --unmask are for models, but {self.source} holds a law")
            law, items = load_law(self.source), law_items(self.source)
            return law, numbers(law.n) if items is None else list(items)
        if not (self.source / "config.json").is_file():
            raise FactorankError(
                f"{self.source}: neither a law (law.json) nor a model (config.json) is there"
            )
        model = PermutationModel.from_pretrained(self.source)
        if model.context is not None:
            raise FactorankError(
                f"the model in {self.source} is conditional on a context ({type(model.context).__name__}),"
                " which only model.distribution(context) in Python can be given"
            )
        return model.distribution(nfe=self.nfe, unmask=self.unmask), model_items(self.source, model.n)


def write_items(folder: Path, items: list[str]) -> None:
    """Name the items of the model in a folder."""
    from factorank.files import write_json

    write_json(folder / ITEMS, items)


def model_items(folder: Path, n: int) -> list[str]:
    """The names beside a model; 0..n-1 if there are none."""
    path = folder / ITEMS
    if not path.exists():
        return numbers(n)
    try:
        items: Any = json.loads(path.read_bytes())
    except ValueError as error:
        raise FactorankError(f"{path}: not JSON: {error}") from None
    if not isinstance(items, list) or len(items) != n or not all(isinstance(item, str) for item in items):
        raise FactorankError(f"{path}: not a list of the names of {n} items")
    return items


def numbers(n: int) -> list[str]:
    """Names for items that have none."""
    return [str(item) for item in range(n)]
