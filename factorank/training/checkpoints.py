"""Checkpoints: folders ``<step>/`` that are either whole or refused.

A checkpoint is some files of tensors (safetensors), ``state.json``, and ``manifest.json`` with the format and
the length and SHA-256 of each of them. The folder appears whole or not at all. Nothing is pickled.
"""

import hashlib
import json
import os
import shutil
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors.torch import load, save
from torch import Tensor

from factorank.errors import TrainingError
from factorank.files import folder_made_whole

FORMAT = 1
KEEP = 2


@dataclass
class Checkpoint:
    """What a checkpoint holds: named files of named tensors, and the plain values of ``state.json``."""

    step: int
    tensors: dict[str, dict[str, Tensor]]
    state: dict[str, Any]


def write(folder: Path, checkpoint: Checkpoint) -> Path:
    """Write a checkpoint under ``folder``, keep the newest two, and return its path."""
    files = {"state.json": _json(checkpoint.state)}
    for name, tensors in checkpoint.tensors.items():
        plain = {key: tensor.detach().cpu().contiguous().clone() for key, tensor in tensors.items()}
        files[f"{name}.safetensors"] = save(plain)
    manifest = {
        "format": FORMAT,
        "step": checkpoint.step,
        "files": {name: {"bytes": len(data), "sha256": _sha256(data)} for name, data in files.items()},
    }
    path = folder / str(checkpoint.step)
    with folder_made_whole(path) as aside:
        for name, data in {**files, "manifest.json": _json(manifest)}.items():
            (aside / name).write_bytes(data)
    for step in steps_in(folder)[:-KEEP]:
        _discard(folder / str(step))
    return path


def read(path: Path) -> Checkpoint:
    """Read a checkpoint, or raise a :class:`TrainingError` that names the file and what is wrong with it."""
    manifest = _manifest(path)
    contents: dict[str, bytes] = {}
    for name, entry in manifest["files"].items():
        data = _bytes(path / name)
        if len(data) != entry["bytes"]:
            raise TrainingError(f"{path / name} has {len(data)} bytes and should have {entry['bytes']}")
        if _sha256(data) != entry["sha256"]:
            raise TrainingError(f"{path / name} is damaged: its SHA-256 is not the one in the manifest")
        contents[name] = data
    try:
        state = json.loads(contents.pop("state.json"))
        tensors = {name.removesuffix(".safetensors"): load(data) for name, data in contents.items()}
    except Exception as error:  # what the hash vouches for and still cannot be read was written wrongly
        raise TrainingError(f"{path} cannot be read: {error}") from error
    return Checkpoint(int(manifest["step"]), tensors, state)


def newest(folder: Path) -> Checkpoint | None:
    """The newest whole checkpoint; damaged ones that are newer are renamed, with a warning.

    None if there is no checkpoint; a :class:`TrainingError` if there are some and all are damaged.
    """
    refused = []
    for step in reversed(steps_in(folder)):
        try:
            checkpoint = read(folder / str(step))
        except TrainingError as error:
            refused.append((step, error))
            continue
        for bad, why in refused:
            text = f"checkpoint {bad} is refused: {why}; going on from checkpoint {step}"
            warnings.warn(text, UserWarning, stacklevel=2)
            _discard(folder / f"{bad}.refused")
            (folder / str(bad)).rename(folder / f"{bad}.refused")
        return checkpoint
    if not refused:
        return None
    reasons = "; ".join(str(why) for _, why in refused)
    raise TrainingError(f"no checkpoint in {folder} can be used: {reasons}")


def steps_in(folder: Path) -> list[int]:
    """The steps that ``folder`` has checkpoints of, in order, whole or not."""
    return sorted(int(path.name) for path in folder.glob("*") if path.name.isdecimal())


def tidy(folder: Path) -> None:
    """Remove folders that a killed process left half made or half deleted."""
    for path in folder.glob(".*"):
        shutil.rmtree(path, ignore_errors=True)


def _manifest(path: Path) -> dict[str, Any]:
    file = path / "manifest.json"
    try:
        manifest = json.loads(_bytes(file))
        if manifest["format"] != FORMAT:
            raise TrainingError(f"{file} has format {manifest['format']}; this version reads format {FORMAT}")
        complete = str(manifest["step"]) == path.name and "state.json" in manifest["files"]
        complete &= all({"bytes", "sha256"} <= entry.keys() for entry in manifest["files"].values())
    except (KeyError, TypeError, AttributeError, UnicodeDecodeError, json.JSONDecodeError) as error:
        raise TrainingError(f"{file} is damaged: {type(error).__name__} {error}") from error
    if not complete:
        raise TrainingError(f"{file} is damaged: it does not describe checkpoint {path.name}")
    return manifest


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise TrainingError(f"{path} cannot be read: {error.strerror}") from error


def _json(value: Any) -> bytes:
    """A value as readable JSON; Python floats come back as they were, bit for bit."""
    return (json.dumps(value, indent=1, sort_keys=True) + "\n").encode()


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _discard(path: Path) -> None:
    """Delete a folder such that a killed process cannot leave half of it under its name."""
    if path.exists():
        doomed = path.with_name(f".deleting-{path.name}-{os.getpid()}")
        path.rename(doomed)
        shutil.rmtree(doomed)
