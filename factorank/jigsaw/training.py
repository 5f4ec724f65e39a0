"""Training a jigsaw model: a setting, pictures, and a run's folder that the same call resumes."""

import json
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch

from factorank.data.picture_sets import Pictures
from factorank.errors import FactorankError
from factorank.files import write_json
from factorank.jigsaw.evaluation import watcher
from factorank.jigsaw.model import JigsawModel, new_model
from factorank.jigsaw.puzzles import Puzzles
from factorank.jigsaw.settings import JigsawSetting
from factorank.training import TrainResult, train


class OtherRunError(FactorankError):
    """A folder holds a run with another setting. ``stored`` has the differing values of that run."""

    def __init__(self, folder: Path, stored: dict[str, Any]) -> None:
        self.folder, self.stored = folder, stored
        values = ", ".join(f"{name}={value!r}" for name, value in stored.items())
        super().__init__(
            f"{folder} holds a run with another {', '.join(stored)}; choose another folder, or go on with"
            f" {values}"
        )


def learn(
    setting: JigsawSetting,
    pictures: Pictures,
    out: str | Path | None = None,
    *,
    call_seconds: float | None = None,
    start: str | Path | None = None,
    watch_every: int | None = 1000,
    device: torch.device | str | None = None,
    **options: Any,
) -> tuple[JigsawModel, TrainResult]:
    """Train the model of a setting; the same call resumes the run in ``out``.

    Args:
        setting: the model and its training.
        pictures: to train on, and held-out ones to watch.
        out: the run's folder.
        call_seconds: stop this call after so much time. For a setting with ``steps``, whose learning rate
            does not depend on when it was stopped.
        start: a folder with a trained model of the same shape to begin from.
        watch_every: steps between two evaluations on held-out puzzles, which go to ``metrics.jsonl`` as
            ``solved`` and ``pieces``; None for none.
        device: by default a CUDA device where there is one.
        options: go to :func:`factorank.train`. On CUDA the loss is compiled and in bfloat16 unless they say
            otherwise.
    """
    device = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
    on_cuda = device.type == "cuda"
    model = new_model(setting, pictures.side)
    if start is not None:
        model.load_state_dict(type(model).from_pretrained(start).state_dict())
    out = None if out is None else Path(out)
    if out is not None:
        begin_run(out, setting, start, pictures)
    puzzles = Puzzles(
        pictures.train.to(device),
        setting.grid,
        direction=setting.direction_used,
        augment=setting.augment,
        ties=setting.ties,
    )
    settings = replace(
        setting.train_settings,
        max_seconds=call_seconds if setting.steps else _time_of_call(setting, out, call_seconds),
        precision="bf16" if on_cuda else "fp32",
        compile=on_cuda,
        held_out_every=watch_every,
        device=device,
        out=out,
    )
    watch = None if watch_every is None else watcher(pictures.held_out, device)
    return model, train(model, puzzles, settings, **({"watch": watch} | options))


def begin_run(out: Path, setting: JigsawSetting, start: str | Path | None, pictures: Pictures | None) -> None:
    """Write the setting into the run's folder, or refuse to resume a run with another one.

    Pictures are compared if some are passed and the run has stored which it was trained on.
    """
    path = out / "setting.json"
    ours = asdict(setting.filled()) | {"start": None if start is None else str(start)}
    if not path.exists():
        out.mkdir(parents=True, exist_ok=True)
        write_json(path, ours | {"pictures": None if pictures is None else pictures.fingerprint})
        return
    stored = json.loads(path.read_bytes())
    ours = json.loads(json.dumps(ours))
    if differing := {name: stored.get(name) for name in ours if stored.get(name) != ours[name]}:
        raise OtherRunError(out, differing)
    trained_on = stored.get("pictures")
    if pictures is not None and trained_on is not None and trained_on != pictures.fingerprint:
        raise FactorankError(
            f"{out} holds a run on other pictures ({trained_on}), not on these ({pictures.fingerprint});"
            " choose another folder as {parameter}",
            parameter="out",
        )


def time_left(setting: JigsawSetting, out: Path | None) -> float:
    """The seconds that remain of a run whose time ends it."""
    assert setting.seconds is not None
    lines = history(out)
    return max(setting.seconds - (lines[-1]["seconds"] if lines else 0.0), 1e-3)


def _time_of_call(setting: JigsawSetting, out: Path | None, call_seconds: float | None) -> float:
    """The seconds of a call of such a run: all that remain."""
    left = time_left(setting, out)
    if call_seconds is not None and call_seconds < left:
        raise FactorankError(
            f"the learning rate falls over the {setting.seconds:g} seconds of this setting, of which"
            f" {left:.0f} are left: a call cannot stop after {call_seconds:g}; give {{parameter}} instead of"
            " seconds",
            parameter="steps",
        )
    return left


def history(out: str | Path | None) -> list[dict[str, Any]]:
    """The lines of a run's ``metrics.jsonl``; none if there is no such run."""
    path = None if out is None else Path(out) / "metrics.jsonl"
    if path is None or not path.exists():
        return []
    whole = path.read_text(encoding="utf-8").rpartition("\n")[0]  # a killed run may leave half a line
    return [json.loads(line) for line in whole.splitlines()]


def time_to(
    lines: Sequence[dict[str, float]], share: float, unit: str = "seconds", name: str = "solved"
) -> float | None:
    """After how many seconds, or steps, of training the watched share was first reached; None if never.

    >>> time_to([{"seconds": 3.0, "solved": 0.5}, {"seconds": 7.0, "solved": 0.93}], 0.9)
    7.0
    """
    return next((line[unit] for line in lines if line.get(name, -1.0) >= share), None)
