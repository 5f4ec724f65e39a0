"""The names of the items of a model: a file beside it that vouches for itself."""

import os
from pathlib import Path
from typing import Any

from factorank.errors import FactorankError
from factorank.reading import matches
from factorank.sealed import read_head, write_sealed

ITEMS = "items.json"
"""The file beside a model that names its items."""


def write_items(folder: str | os.PathLike[str], items: list[str]) -> None:
    """Name the items of the model in a folder, for :func:`factorank.votes.open_law`.

    >>> import tempfile
    >>> from factorank import PermutationModel
    >>> from factorank.votes import open_law
    >>> folder = tempfile.mkdtemp()
    >>> PermutationModel(3, "lehmer", width=8, depth=1, heads=1).save_pretrained(folder)
    >>> write_items(folder, ["ann", "bob", "cat"])
    >>> open_law(folder, nfe=1)[1]
    ['ann', 'bob', 'cat']
    """
    write_sealed(folder, ITEMS, {"items": items}, {})


def read_items(folder: Path, n: int) -> list[str]:
    """The names of the items of a model in a folder, numbers if it has none."""
    path = folder / ITEMS
    if not path.exists():
        return [str(item) for item in range(n)]
    items: Any = read_head(path, FactorankError, "the names of items")[0].get("items")
    if not matches(items, list[str]) or len(items) != n:
        raise FactorankError(f"{path}: not a list of the names of {n} items")
    return list(items)
