"""Checkpoints: folders ``<step>/`` that are either whole or refused.

A checkpoint is some files of tensors (safetensors), ``state.json``, and ``manifest.json`` with the format and
the length and SHA-256 of each of them: a sealed folder, which appears whole or not at all. No pickles.
"""

import json
import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors.torch import save
from torch import Tensor

from factorank.errors import TrainingError, warn
from factorank.files import folder_made_whole
from factorank.reading import expect, parse_json, read_tensors
from factorank.sealed import read_sealed, write_sealed

FORMAT = 2
KEEP = 2
MANIFEST, STATE = "manifest.json", "state.json"


@dataclass
class Checkpoint:
    """What a checkpoint holds: named files of named tensors, and the plain values of ``state.json``."""

    step: int
    tensors: dict[str, dict[str, Tensor]]
    state: dict[str, Any]


def write(folder: Path, checkpoint: Checkpoint) -> Path:
    """Write a checkpoint under ``folder``, keep the newest two, and return its path."""
    files = {STATE: _json(checkpoint.state)}
    for name, tensors in checkpoint.tensors.items():
        plain = {key: tensor.detach().cpu().contiguous().clone() for key, tensor in tensors.items()}
        files[f"{name}.safetensors"] = save(plain)
    path = folder / str(checkpoint.step)
    with folder_made_whole(path) as aside:
        write_sealed(aside, MANIFEST, {"format": FORMAT, "step": checkpoint.step}, files)
    for step in steps_in(folder)[:-KEEP]:
        _discard(folder / str(step))
    return path


def read(path: Path) -> Checkpoint:
    """Read a checkpoint, or raise a :class:`TrainingError` that names the file and what is wrong with it."""
    if not (path / MANIFEST).exists():
        raise TrainingError(f"{path / MANIFEST} is missing")
    try:
        manifest, files = read_sealed(path, MANIFEST, TrainingError, "a checkpoint", format=FORMAT)
    except OSError as error:
        raise TrainingError(f"{path / MANIFEST} cannot be read: {error.strerror}") from error
    step = manifest.get("step")
    if type(step) is not int or str(step) != path.name or STATE not in files:
        raise TrainingError(f"{path / MANIFEST} is damaged: it does not describe checkpoint {path.name}")
    state = parse_json(files.pop(STATE), path / STATE, TrainingError, infinite=True)
    expect(dict[str, Any], state, path / STATE, TrainingError)
    tensors = {
        name.removesuffix(".safetensors"): read_tensors(data, path / name, TrainingError)
        for name, data in files.items()
    }
    return Checkpoint(step, tensors, state)


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
            warn(text)
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


def _json(value: Any) -> bytes:
    """A value as readable JSON; Python floats come back as they were, bit for bit."""
    return (json.dumps(value, indent=1, sort_keys=True) + "\n").encode()


def _discard(path: Path) -> None:
    """Delete a folder such that a killed process cannot leave half of it under its name."""
    if path.exists():
        doomed = path.with_name(f".deleting-{path.name}-{os.getpid()}")
        path.rename(doomed)
        shutil.rmtree(doomed)
