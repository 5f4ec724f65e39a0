"""The files of a ranker: the model's, and ``ranker.json`` with its items, features, gains and setting."""

import json
import os
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from factorank.errors import ModelError
from factorank.files import write_json
from factorank.models import PermutationModel
from factorank.rerank.catalogue import Catalogue
from factorank.rerank.settings import Setting

if TYPE_CHECKING:
    from factorank.rerank.ranker import Ranker

FILE, FORMAT, VERSION = "ranker.json", "factorank-ranker", 2


def write_ranker(ranker: "Ranker", folder: str | os.PathLike[str]) -> None:
    """Write a ranker into a folder."""
    ranker.model.save_pretrained(folder)
    write_json(
        Path(folder) / FILE,
        {
            "format": FORMAT,
            "version": VERSION,
            "setting": None if ranker.setting is None else asdict(ranker.setting),
            "features": list(ranker.catalogue.features),
            "gains": ranker.gains.tolist(),
            "units": list(ranker.units),
            "rating_range": None if ranker.rating_range is None else list(ranker.rating_range),
            "ids": list(ranker.catalogue.ids),
            "titles": ranker.catalogue.titles,
        },
    )


def read_ranker(folder: str | os.PathLike[str]) -> dict[str, Any]:
    """The arguments of :class:`factorank.Ranker` that :func:`write_ranker` wrote."""
    path = Path(folder) / FILE
    if not path.is_file():
        raise ModelError(f"there is no ranker in {folder}: {FILE} is missing")
    try:
        facts = json.loads(path.read_bytes())
    except ValueError as error:
        raise ModelError(f"{path} is not JSON: {error}") from None
    if not isinstance(facts, dict) or facts.get("format") != FORMAT:
        raise ModelError(f"{path} does not describe a ranker")
    if facts.get("version") != VERSION:
        raise ModelError(
            f"{path} is of format version {facts.get('version')!r}; this factorank reads {VERSION}"
        )
    setting, rating_range = facts["setting"], facts["rating_range"]
    return {
        "model": PermutationModel.from_pretrained(folder),
        "catalogue": Catalogue(facts["ids"], facts["titles"], facts["features"]),
        "gains": torch.tensor(facts["gains"]),
        "setting": None if setting is None else Setting(**setting | {"features": tuple(setting["features"])}),
        "units": tuple(facts["units"]),
        "rating_range": None if rating_range is None else tuple(rating_range),
    }
