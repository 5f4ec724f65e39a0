"""Ratings as one safetensors file: the arrays, with ids and titles as JSON. Nothing is pickled."""

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from factorank.errors import RatingsError
from factorank.files import write_whole

if TYPE_CHECKING:
    from factorank.data.ratings.ratings import Ratings

FORMAT, VERSION = "factorank ratings", 3
ARRAYS = {"starts": torch.int64, "items": torch.int32, "values": torch.float32}
TEXTS = ("ids", "user_ids", "titles", "feature_names", "feature_scales")
NUMBERS = ("shift", "scale", "source", "implicit")


def save(ratings: "Ratings", file: str | os.PathLike[str]) -> None:
    """Write ratings to a file, whole or not at all."""
    from safetensors.torch import save as pack

    tensors = {name: getattr(ratings, name) for name in ARRAYS}
    tensors |= {name: part for name in ("features", "times") if (part := getattr(ratings, name)) is not None}
    for name in TEXTS:
        if (value := getattr(ratings, name)) is not None:
            tensors[name] = _packed(value)
    about = {"version": VERSION} | {name: getattr(ratings, name) for name in NUMBERS}
    Path(file).parent.mkdir(parents=True, exist_ok=True)
    data = pack({name: t.cpu().contiguous() for name, t in tensors.items()}, {FORMAT: json.dumps(about)})
    write_whole(file, data)


def load(file: str | os.PathLike[str]) -> dict[str, Any]:
    """The fields of the ratings in a file."""
    from safetensors import SafetensorError, safe_open

    if not Path(file).is_file():
        raise RatingsError(f"there is no file {file}")
    try:
        with safe_open(os.fspath(file), "pt") as opened:
            about = json.loads((opened.metadata() or {}).get(FORMAT, "{}"))
            tensors = {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118
    except (SafetensorError, ValueError) as error:
        raise RatingsError(f"{file}: damaged, or no safetensors file: {error}") from None
    if about.get("version") != VERSION:
        version = about.get("version", "no ratings of this library")
        raise RatingsError(f"{file}: version {VERSION} of saved ratings is read; this is {version}")
    fields = {name: about[name] for name in NUMBERS}
    fields |= {name: _unpacked(tensors[name]) for name in TEXTS if name in tensors}
    fields |= {name: tensors[name] for name in (*ARRAYS, "features", "times") if name in tensors}
    if fault := _fault(fields):
        raise RatingsError(f"{file}: damaged: {fault}")
    return fields


def _packed(value: Sequence[Any]) -> Tensor:
    """Whole numbers as int64, other values as the bytes of JSON."""
    if value and all(isinstance(each, int) for each in value):
        return torch.tensor(value, dtype=torch.int64)
    return torch.frombuffer(bytearray(json.dumps(list(value)).encode()), dtype=torch.uint8)


def _unpacked(tensor: Tensor) -> list[Any]:
    return tensor.tolist() if tensor.dtype == torch.int64 else json.loads(bytes(tensor.numpy()))


def _fault(fields: dict[str, Any]) -> str:
    for name, dtype in ARRAYS.items():
        if name not in fields or fields[name].dtype != dtype or fields[name].ndim != 1:
            return f"there is no array {name!r} of {dtype}"
    starts, items, values = (fields[name] for name in ARRAYS)
    if not (len(starts) and starts[0] == 0 and starts[-1] == len(items) == len(values)):
        return "the numbers of rows do not agree"
    if not bool((starts.diff() >= 0).all()) or len(starts) - 1 != len(fields["user_ids"]):
        return "the rows are not grouped by user"
    if len(items) and not (int(items.min()) >= 0 and int(items.max()) < len(fields["ids"])):
        return "a row speaks of an item that has no id"
    if "times" in fields and len(fields["times"]) != len(items):
        return "the numbers of rows and times do not agree"
    return ""
