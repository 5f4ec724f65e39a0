"""A ranker as files: the model, ``ranker.json``, which vouches for all of them, and the first stage."""

import os
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from safetensors.torch import save as pack

from factorank.errors import ModelError
from factorank.models import PermutationModel
from factorank.models.saving import read_facts
from factorank.reading import expect, fields_of, read_tensors
from factorank.rerank.catalogue import Catalogue
from factorank.rerank.first_stage import FirstStage
from factorank.rerank.settings import Setting
from factorank.sealed import write_sealed

if TYPE_CHECKING:
    from factorank.rerank.ranker import Ranker

FILE, FORMAT, VERSION = "ranker.json", "factorank-ranker", 6
FIRST_STAGE = "first-stage.safetensors"
FACTS = {
    "setting": dict[str, Any] | None,
    "features": list[str],
    "scales": list[list[float]],
    "gains": list[float],
    "units": list[float],
    "rating_range": list[float] | None,
    "blend": float,
    "implicit": bool,
    "ids": list[int | float | str],
    "titles": list[str] | None,
}
"""What ``ranker.json`` says, and of which types."""


def save(ranker: "Ranker", folder: str | os.PathLike[str]) -> None:
    """Write a ranker into a folder, all of its files or none."""
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
    files = ranker.model.files()
    if ranker.first_stage is not None:
        files[FIRST_STAGE] = pack(ranker.first_stage.state())
    write_sealed(folder, FILE, facts, files)


def load(folder: str | os.PathLike[str]) -> dict[str, Any]:
    """The arguments of the ranker in a folder."""
    where = Path(folder) / FILE
    facts, files = read_facts(Path(folder), FILE, FORMAT, VERSION, FACTS, "a ranker")
    for name, kind in FACTS.items():
        expect(kind, facts[name], f"{where}: {name}", ModelError)
    model = PermutationModel.from_pretrained(folder)
    setting, rating_range = facts["setting"], facts["rating_range"]
    scales = [tuple(scale) for scale in facts["scales"]]
    ids, titles = facts["ids"], facts["titles"]
    for name, count, wanted in (
        ("ids", len(ids), getattr(model.context, "items", None)),
        ("titles", len(ids) if titles is None else len(titles), len(ids)),
        ("features", len(facts["features"]), getattr(model.context, "features", None)),
        ("scales", len(scales), len(facts["features"])),
        ("gains", len(facts["gains"]), model.n),
    ):
        if count != wanted:
            raise ModelError(f"{where}: {count} {name}, but the model has {wanted}")
    if any(len(pair) != 2 for pair in (*scales, facts["units"], rating_range or (0, 0))):
        raise ModelError(f"{where}: scales, units and rating_range are pairs of numbers")
    return {
        "model": model,
        "catalogue": Catalogue(ids, titles, facts["features"], scales),
        "gains": torch.tensor(facts["gains"]),
        "setting": None if setting is None else Setting(**fields_of(Setting, setting, where, ModelError)),
        "units": tuple(facts["units"]),
        "rating_range": rating_range and tuple(rating_range),
        "first_stage": _first_stage(files.get(FIRST_STAGE), Path(folder) / FIRST_STAGE, len(ids)),
        "blend": facts["blend"],
        "implicit": facts["implicit"],
    }


def _first_stage(data: bytes | None, file: Path, items: int) -> FirstStage | None:
    if data is None:
        return None
    tensors = read_tensors(data, file, ModelError)
    if set(tensors) != set(FirstStage.NAMES) or tensors["counts"].shape != (items,):
        raise ModelError(f"{file}: no first stage of a ranker of {items} items")
    return FirstStage(**tensors)
