"""The folder of a run.

``config.json`` and ``model.safetensors`` are the exported model (``from_pretrained`` reads them),
``training.json`` says how it was trained, ``metrics.jsonl`` is the history, ``checkpoints/<step>/`` what a
run resumes from.
"""

import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from factorank.errors import TrainingError
from factorank.files import write_json
from factorank.training import checkpoints
from factorank.training.checkpoints import Checkpoint

_OURS = ("training.json", "config.json", "model.safetensors", "metrics.jsonl", "checkpoints")
_UNNAMED = {"optimizer": "adamw"}
"""Settings that ``training.json`` names only where they are others."""


def find_run(out: Path, identity: dict[str, Any], resume: bool | str) -> Checkpoint | None:
    """The checkpoint to go on from, None to begin; refuses a folder that holds anything else.

    Only a damaged checkpoint is touched: it is renamed, if the one before it can be used.
    """
    if out.exists() and not out.is_dir():
        raise TrainingError(f"out = {out} is a file; a run needs a folder")
    present = [name for name in _OURS if (out / name).exists()]
    if "training.json" not in present:
        if present:
            raise TrainingError(
                f"{out} holds {', '.join(present)} but no training run; choose another folder as out"
            )
        if resume == "must":
            raise TrainingError(f"resume='must', but {out} holds no run")
        return None
    if resume is False:
        raise TrainingError(
            f"{out} holds a run already; resume=True goes on with it, another folder as out starts a new one"
        )
    try:
        theirs = json.loads((out / "training.json").read_bytes())
    except ValueError as error:
        raise TrainingError(f"{out / 'training.json'} is damaged: {error}") from error
    ours = json.loads(json.dumps(identity))
    differences = _readable_first(_differences(_UNNAMED | theirs, _UNNAMED | ours))
    if differences:
        raise TrainingError(
            f"{out} holds another run: {'; '.join(differences)}; choose another folder as out"
        )
    found = checkpoints.newest(out / "checkpoints")
    if found is None and resume == "must":
        raise TrainingError(f"resume='must', but {out} holds no checkpoint")
    return found


@contextmanager
def alone(out: Path) -> Iterator[None]:
    """Keep other runs out of a folder: the system ends the hold with the process, however that ends.

    Not on systems without ``flock``, such as Windows.
    """
    try:
        import fcntl
    except ImportError:
        yield
        return
    handle = os.open(out, os.O_RDONLY)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise TrainingError(
                f"another run is training in {out}; wait for it, or choose another out"
            ) from None
        yield
    finally:
        os.close(handle)


def begin(out: Path, identity: dict[str, Any], model: Any) -> None:
    """Make the folder, or tidy up after a run that was killed, and say in it what is being trained."""
    out.mkdir(parents=True, exist_ok=True)
    checkpoints.tidy(out / "checkpoints")
    for path in out.glob(".exporting-*"):
        shutil.rmtree(path, ignore_errors=True)
    for path in out.glob(".training.json.*"):
        path.unlink(missing_ok=True)
    write_json(
        out / "training.json", identity
    )  # first: it is what makes the folder a run, whatever happens next
    _export(out, model, ("config.json",))


def export(out: Path, model: Any) -> None:
    """Write the model as it stands for ``from_pretrained``; each file is replaced whole."""
    _export(out, model, None)


def _export(out: Path, model: Any, names: tuple[str, ...] | None) -> None:
    aside = out / f".exporting-{os.getpid()}"
    shutil.rmtree(aside, ignore_errors=True)
    aside.mkdir()
    model.save_pretrained(aside)
    for path in sorted(aside.iterdir()):
        if names is None or path.name in names:
            path.replace(out / path.name)
    shutil.rmtree(aside)


def _differences(theirs: Any, ours: Any, path: str = "") -> list[str]:
    if isinstance(theirs, dict) and isinstance(ours, dict):
        keys = sorted(theirs.keys() | ours.keys())
        return [
            d
            for key in keys
            for d in _differences(theirs.get(key), ours.get(key), f"{path}.{key}".lstrip("."))
        ]
    return [] if theirs == ours else [f"{path} is {_short(theirs)} there and {_short(ours)} here"]


def _readable_first(differences: list[str]) -> list[str]:
    """Settings, then what is told of the data; that checksums differ says only that the data are others."""
    told = sorted(differences, key=lambda text: text.startswith(("data.", "held_out.")))
    checksums = [text.partition(" ")[0] for text in told if ".checksum is " in text]
    told = [text for text in told if ".checksum is " not in text]
    return told + ([f"other data ({', '.join(checksums)})"] if checksums else [])


def _short(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 60 else text[:57] + "…"
