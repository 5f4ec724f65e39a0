"""A ranker as files: the model, ``ranker.json`` and the first stage. Nothing is pickled."""

import os
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from safetensors.torch import save as pack

from factorank.errors import ModelError
from factorank.files import write_json, write_whole
from factorank.models import PermutationModel
from factorank.models.saving import read_config
from factorank.rerank.catalogue import Catalogue
from factorank.rerank.first_stage import FirstStage
from factorank.rerank.settings import Setting

if TYPE_CHECKING:
    from factorank.rerank.ranker import Ranker

FILE, FORMAT, VERSION = "ranker.json", "factorank-ranker", 5
FIRST_STAGE = "first-stage.safetensors"
FACTS = (
    *("setting", "features", "scales", "gains", "units", "rating_range", "blend", "implicit", "ids"),
    "titles",
)


def save(ranker: "Ranker", folder: str | os.PathLike[str]) -> None:
    """Write a ranker into a folder, each file whole or not at all."""
    ranker.model.save_pretrained(folder)
    facts = {
        "format": FORMAT,
        "version": VERSION,
        "setting": None if ranker.setting is None else asdict(ranker.setting),
        "features": list(ranker.catalogue.features),
        "scales": list(ranker.catalogue.scales),
        "gains": ranker.gains.tolist(),
        "units": list(ranker.units),
        "rating_range": None if ranker.rating_range is None else list(ranker.rating_range),
        "blend": ranker.blend,
        "implicit": ranker.implicit,
        "ids": list(ranker.catalogue.ids),
        "titles": ranker.catalogue.titles,
    }
    if ranker.first_stage is not None:
        write_whole(Path(folder) / FIRST_STAGE, pack(ranker.first_stage.state()))
    write_json(Path(folder) / FILE, facts)


def load(folder: str | os.PathLike[str]) -> dict[str, Any]:
    """The arguments of the ranker in a folder."""
    facts = read_config(Path(folder), FORMAT, VERSION, FACTS, "a ranker", FILE)
    setting, rating_range = facts["setting"], facts["rating_range"]
    scales = [tuple(scale) for scale in facts["scales"]]
    return {
        "model": PermutationModel.from_pretrained(folder),
        "catalogue": Catalogue(facts["ids"], facts["titles"], facts["features"], scales),
        "gains": torch.tensor(facts["gains"]),
        "setting": setting and Setting(**setting | {"features": tuple(setting["features"] or ())}),
        "units": tuple(facts["units"]),
        "rating_range": rating_range and tuple(rating_range),
        "first_stage": _first_stage(Path(folder) / FIRST_STAGE),
        "blend": facts["blend"],
        "implicit": facts["implicit"],
    }


def _first_stage(file: Path) -> FirstStage | None:
    if not file.exists():
        return None
    try:
        return FirstStage(**load_file(file))
    except (SafetensorError, KeyError) as error:
        raise ModelError(f"{file}: damaged, or no first stage of a ranker: {error}") from None
