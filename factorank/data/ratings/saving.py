"""Ratings as one safetensors file: the arrays, with ids and titles as JSON. Nothing is pickled.

The file holds a SHA-256 of its arrays, their types and what is said about them: a change is noticed.
"""

import hashlib
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from factorank.errors import RatingsError
from factorank.files import write_whole
from factorank.reading import expect, matches, parse_json

if TYPE_CHECKING:
    from factorank.data.ratings.ratings import Ratings

FORMAT, VERSION = "factorank ratings", 4
ARRAYS = {"starts": torch.int64, "items": torch.int32, "values": torch.float32}
TEXTS = ("ids", "user_ids", "titles", "feature_names", "feature_scales")
NUMBERS = ("shift", "scale", "source", "implicit")


def save(ratings: "Ratings", file: str | os.PathLike[str]) -> None:
    """Write ratings to a file, whole or not at all."""
    from safetensors.torch import save as pack

    tensors, about = _parts(ratings)
    Path(file).parent.mkdir(parents=True, exist_ok=True)
    write_whole(file, pack(tensors, {FORMAT: json.dumps(about | {"sha256": _digest(tensors, about)})}))


def fingerprint(ratings: "Ratings") -> str:
    """The checksum that ratings have in a file: other ratings have another one."""
    return _digest(*_parts(ratings))


def load(file: str | os.PathLike[str]) -> dict[str, Any]:
    """The fields of the ratings in a file."""
    from safetensors import SafetensorError, safe_open

    if not Path(file).is_file():
        raise RatingsError(f"there is no file {file}")
    try:
        with safe_open(os.fspath(file), "pt") as opened:
            text = (opened.metadata() or {}).get(FORMAT, "{}")
            tensors = {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118
    except (SafetensorError, ValueError, KeyError, TypeError, RuntimeError) as error:
        raise RatingsError(f"{file}: damaged, or no safetensors file: {error}") from None
    about = expect(dict[str, Any], parse_json(text, file, RatingsError), file, RatingsError)
    if about.get("version") != VERSION:
        version = about.get("version", "no ratings of this library")
        raise RatingsError(f"{file}: version {VERSION} of saved ratings is read; this is {version}")
    if about.pop("sha256", None) != _digest(tensors, about):
        raise RatingsError(f"{file}: damaged: its SHA-256 is not the one that was written with it")
    fields = {name: about.get(name) for name in NUMBERS}
    fields |= {name: _unpacked(tensors[name], file) for name in TEXTS if name in tensors}
    fields |= {name: tensors[name] for name in (*ARRAYS, "features", "times") if name in tensors}
    if fault := _fault(fields):
        raise RatingsError(f"{file}: damaged: {fault}")
    return fields


def _parts(ratings: "Ratings") -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The tensors of a file of ratings, and what it says about them."""
    tensors = {name: getattr(ratings, name) for name in ARRAYS}
    tensors |= {name: part for name in ("features", "times") if (part := getattr(ratings, name)) is not None}
    for name in TEXTS:
        if (value := getattr(ratings, name)) is not None:
            tensors[name] = _packed(value)
    about = {"version": VERSION} | {name: getattr(ratings, name) for name in NUMBERS}
    return {name: tensor.cpu().contiguous() for name, tensor in tensors.items()}, about


def _digest(tensors: dict[str, Tensor], about: dict[str, Any]) -> str:
    """A SHA-256 of the arrays, their types and shapes, and what is said about them."""
    kinds = [[name, str(tensors[name].dtype), list(tensors[name].shape)] for name in sorted(tensors)]
    digest = hashlib.sha256(json.dumps([about, kinds], sort_keys=True).encode())
    for name in sorted(tensors):
        digest.update(tensors[name].contiguous().view(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def _packed(value: Sequence[Any]) -> Tensor:
    """Whole numbers as int64, other values as the bytes of JSON."""
    if value and all(isinstance(each, int) for each in value):
        return torch.tensor(value, dtype=torch.int64)
    return torch.frombuffer(bytearray(json.dumps(list(value)).encode()), dtype=torch.uint8)


def _unpacked(tensor: Tensor, file: str | os.PathLike[str]) -> list[Any]:
    if tensor.dtype == torch.int64 and tensor.ndim == 1:
        return tensor.tolist()
    if tensor.dtype != torch.uint8:
        raise RatingsError(f"{file}: damaged: names are whole numbers or text, not {tensor.dtype}")
    values = parse_json(bytes(tensor.numpy()), file, RatingsError)
    return expect(list[Any], values, file, RatingsError)


def _fault(fields: dict[str, Any]) -> str:
    if not {"ids", "user_ids"} <= fields.keys():
        return "there are no ids"
    if not matches([fields["shift"], fields["scale"]], list[float]) or not matches(
        fields["source"], str | None
    ):
        return "shift, scale and source are two numbers and a text"
    for name in ("ids", "user_ids", "feature_names", "titles"):
        if name in fields and not matches(fields[name], list[int | float | str]):
            return f"{name} are names or numbers"
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
    if "titles" in fields and len(fields["titles"]) != len(fields["ids"]):
        return "the numbers of ids and titles do not agree"
    names = len(fields.get("feature_names") or ())
    if "features" in fields and fields["features"].shape != (len(fields["ids"]), names):
        return "the numbers of ids and features do not agree"
    return ""
