"""Laws and models in folders, with the names of their items."""

import json
import os
from pathlib import Path
from typing import Any

from factorank.distributions import PermutationDistribution
from factorank.distributions.saving import is_law, law_items, load_law
from factorank.errors import FactorankError
from factorank.files import write_json
from factorank.models import PermutationModel

ITEMS = "items.json"
"""The file beside a model that names its items."""


def open_law(
    folder: str | os.PathLike[str], nfe: int | None = None, unmask: str | None = None
) -> tuple[PermutationDistribution, list[str]]:
    """The law in a folder, fitted or learnt, and the names of its items.

    The folder is that of :func:`factorank.save_law`, of ``factorank fit``, or of a trained model. ``nfe`` and
    ``unmask`` choose a law of a model, as in :meth:`factorank.PermutationModel.distribution`.

    >>> import tempfile
    >>> from factorank import Mallows, save_law
    >>> folder = tempfile.mkdtemp()
    >>> save_law(Mallows([2, 0, 1], phi=0.25), folder, items=["ann", "bob", "cat"])
    >>> open_law(folder)
    (Mallows(central=[2, 0, 1], phi=0.25), ['ann', 'bob', 'cat'])
    """
    path = Path(folder)
    if is_law(path):
        for name, value in (("nfe", nfe), ("unmask", unmask)):
            if value is not None:
                raise FactorankError(f"{{parameter}} is for models, but {path} holds a law", parameter=name)
        law, items = load_law(path), law_items(path)
        return law, list(items or map(str, range(law.n)))
    if not (path / "config.json").is_file():
        raise FactorankError(f"{path}: neither a law (law.json) nor a model (config.json) is there")
    model = PermutationModel.from_pretrained(path)
    if model.context is not None:
        raise FactorankError(
            f"the model in {path} is conditional on a context ({type(model.context).__name__}); in Python"
            " model.distribution(context) takes it"
        )
    return model.distribution(nfe=nfe, unmask=unmask), _model_items(path, model.n)


def write_items(folder: str | os.PathLike[str], items: list[str]) -> None:
    """Name the items of the model in a folder, for :func:`open_law`.

    >>> import tempfile
    >>> folder = tempfile.mkdtemp()
    >>> PermutationModel(3, "lehmer", width=8, depth=1, heads=1).save_pretrained(folder)
    >>> write_items(folder, ["ann", "bob", "cat"])
    >>> open_law(folder, nfe=1)[1]
    ['ann', 'bob', 'cat']
    """
    write_json(Path(folder) / ITEMS, items)


def _model_items(folder: Path, n: int) -> list[str]:
    path = folder / ITEMS
    if not path.exists():
        return [str(item) for item in range(n)]
    try:
        items: Any = json.loads(path.read_bytes())
    except ValueError as error:
        raise FactorankError(f"{path}: not JSON: {error}") from None
    if not isinstance(items, list) or len(items) != n or not all(isinstance(item, str) for item in items):
        raise FactorankError(f"{path}: not a list of the names of {n} items")
    return items
