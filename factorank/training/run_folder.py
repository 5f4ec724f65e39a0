"""The folder of a run.

``config.json`` and ``model.safetensors`` are the exported model, which ``from_pretrained`` reads.
``training.json`` says how it was trained, ``metrics.jsonl`` is the history, and a run resumes from
``checkpoints/<step>/``.
"""

import json
import math
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from factorank.errors import TrainingError, warn
from factorank.files import alone, write_json
from factorank.reading import expect, read_object
from factorank.sealed import move_sealed
from factorank.training import checkpoints
from factorank.training.checkpoints import Checkpoint

_OURS = ("training.json", "config.json", "model.safetensors", "metrics.jsonl", "checkpoints")
"""The files of a run."""


def check_place(out: Path, resume: bool | str) -> None:
    """Refuse a file in the place of the folder, and a folder that is not there but must be."""
    if out.exists() and not out.is_dir():
        raise TrainingError(f"{{parameter={str(out)!r}}} is a file; a run needs a folder", parameter="out")
    if resume == "must" and not out.exists():
        raise TrainingError(f"{{parameter='must'}}, but {out} holds no run", parameter="resume")


def find_run(out: Path, identity: dict[str, Any], resume: bool | str) -> Checkpoint | None:
    """The checkpoint to resume from, None to begin; refuses a folder that holds anything else."""
    present = [name for name in _OURS if (out / name).exists()]
    if "training.json" not in present:
        if present:
            held = f"{out} holds {', '.join(present)} but no training run"
            raise TrainingError(f"{held}; choose another folder as {{parameter}}", parameter="out")
        if resume == "must":
            raise TrainingError(f"{{parameter='must'}}, but {out} holds no run", parameter="resume")
        return None
    if resume is False:
        how = "{parameter=True} resumes it, another folder as out begins another"
        raise TrainingError(f"{out} holds a run already; {how}", parameter="resume")
    theirs = read_object(out / "training.json", error=TrainingError)
    ours = json.loads(json.dumps(identity))
    planned = expect(int | None, theirs.get("steps"), out / "training.json: steps", TrainingError)
    if planned is not None and ours.get("steps", 0) > planned:  # a longer plan of the same run
        theirs |= {name: ours[name] for name in ("steps", "warmup")}
    if differences := _readable_first(_differences(theirs, ours)):
        held = f"{out} holds another run: {'; '.join(differences)}"
        raise TrainingError(f"{held}; choose another folder as {{parameter}}", parameter="out")
    checkpoint = checkpoints.newest(out / "checkpoints")
    if checkpoint is None and resume == "must":
        raise TrainingError(f"{{parameter='must'}}, but {out} holds no checkpoint", parameter="resume")
    return checkpoint


@contextmanager
def locked(out: Path) -> Iterator[None]:
    """Keep other runs out of a folder."""
    with alone(out) as free:
        if not free:
            why = f"another run is training in {out}; wait for it, or choose another {{parameter}}"
            raise TrainingError(why, parameter="out")
        yield


def begin(out: Path, identity: dict[str, Any], model: Any) -> None:
    """Make the folder, or tidy up after a run that was killed, and write into it what is being trained."""
    out.mkdir(parents=True, exist_ok=True)
    checkpoints.tidy(out / "checkpoints")
    for path in out.glob(".exporting-*"):
        shutil.rmtree(path, ignore_errors=True)
    for path in out.glob(".training.json.*"):
        path.unlink(missing_ok=True)
    write_json(out / "training.json", identity)  # first: this file makes the folder a run
    if not (out / "config.json").exists():
        export(out, model, True)


def export(out: Path, model: Any, described: bool = False) -> None:
    """Write the model for ``from_pretrained``; the one that was there is replaced whole.

    If it is only ``described``, its weights are left out: nobody takes a model for trained that is not.
    """
    aside = out / f".exporting-{os.getpid()}"
    shutil.rmtree(aside, ignore_errors=True)
    aside.mkdir()
    model.save_pretrained(aside)
    if described:
        for path in [*aside.iterdir()]:
            if path.name != "config.json":
                path.unlink()
    move_sealed(aside, out, "config.json")
    shutil.rmtree(aside)


class Metrics:
    """``metrics.jsonl``: one flat object a line, each with its step; also for TensorBoard where installed."""

    def __init__(self, folder: Path, step: int) -> None:
        self.path = folder / "metrics.jsonl"
        cut_back(self.path, step)
        self._file = open(self.path, "a", encoding="utf-8")  # noqa: SIM115
        self._board = _tensorboard(folder, step)

    def write(self, line: dict[str, Any]) -> None:
        """Add a line; numbers that JSON lacks (nan, infinity) become null."""
        plain = {k: None if isinstance(v, float) and not math.isfinite(v) else v for k, v in line.items()}
        self._file.write(json.dumps(plain) + "\n")
        self._file.flush()
        if self._board is not None:
            for name, value in line.items():
                if name != "step" and isinstance(value, int | float):
                    self._board.add_scalar(name, value, line["step"])

    def sync(self) -> None:
        """Wait until the disk has every line."""
        os.fsync(self._file.fileno())

    def close(self) -> None:
        self._file.close()
        if self._board is not None:
            self._board.close()


def cut_back(path: Path, step: int) -> None:
    """Drop the lines of ``metrics.jsonl`` after ``step``, and a last line that was cut short."""
    if not path.exists():
        return
    keep = 0
    with open(path, "rb") as file:
        for line in file:
            try:
                if not line.endswith(b"\n") or json.loads(line)["step"] > step:
                    break
            except (ValueError, KeyError, TypeError):
                break
            keep += len(line)
    os.truncate(path, keep)


def _differences(theirs: Any, ours: Any, path: str = "") -> list[str]:
    if isinstance(theirs, dict) and isinstance(ours, dict):
        return [
            difference
            for key in sorted(theirs.keys() | ours.keys())
            for difference in _differences(theirs.get(key), ours.get(key), f"{path}.{key}".lstrip("."))
        ]
    return [] if theirs == ours else [f"{path} is {_short(theirs)} there and {_short(ours)} here"]


def _readable_first(differences: list[str]) -> list[str]:
    """Settings first, then the data; a checksum that differs only says that the data are others."""
    ordered = sorted(differences, key=lambda text: text.startswith(("data.", "held_out.")))
    checksums = [text.partition(" ")[0] for text in ordered if ".checksum is " in text]
    readable = [text for text in ordered if ".checksum is " not in text]
    return readable + ([f"other data ({', '.join(checksums)})"] if checksums else [])


def _short(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 60 else text[:57] + "…"


def _tensorboard(folder: Path, step: int) -> Any:
    if find_spec("tensorboard") is None:
        return None
    try:
        from torch.utils.tensorboard import SummaryWriter  # type: ignore[attr-defined,unused-ignore]

        return SummaryWriter(str(folder / "tensorboard"), purge_step=step + 1)  # type: ignore[no-untyped-call,unused-ignore]
    except Exception as error:  # a broken TensorBoard must not stop a run that does not need it
        warn(f"TensorBoard is installed but cannot be used: {error}")
        return None
