"""Training a jigsaw model: a setting, pictures, and a run's folder that the same call resumes."""

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch

from factorank.data.picture_sets import Pictures
from factorank.errors import FactorankError
from factorank.files import read_history, write_json
from factorank.jigsaw.evaluation import watcher
from factorank.jigsaw.model import JigsawModel, new_model
from factorank.jigsaw.puzzles import Puzzles
from factorank.jigsaw.settings import JigsawSetting
from factorank.reading import read_object
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
        start: a folder with a trained model of the same shape to begin from.
        watch_every: steps between two evaluations on held-out puzzles, which go to ``metrics.jsonl`` as
            ``solved`` and ``pieces``; None for none.
        device: by default a CUDA device where there is one.
        options: go to :func:`factorank.train`, such as ``max_seconds`` to stop a setting with ``steps``
            early. On CUDA the loss is compiled and in bfloat16 unless they say otherwise.
    """
    device = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
    on_cuda = device.type == "cuda"
    model = new_model(setting, pictures.side)
    if start is not None:
        model.load_state_dict(type(model).from_pretrained(start).state_dict())
    out = None if out is None else Path(out)
    if out is not None:
        begin_run(out, setting, start, pictures)
    seconds_left = None  # of a run that its time ends
    if setting.steps is None and setting.seconds is not None:
        lines = history(out)
        seconds_left = max(setting.seconds - (lines[-1]["seconds"] if lines else 0.0), 1e-3)
    puzzles = Puzzles(
        pictures.train.to(device),
        setting.grid,
        direction=setting.direction_used,
        augment=setting.augment,
        ties=setting.ties,
    )
    settings = replace(
        setting.train_settings,
        max_seconds=seconds_left,
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
    stored = read_object(path)
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


def history(out: str | Path | None) -> list[dict[str, Any]]:
    """The lines of a run's ``metrics.jsonl``; none if there is no such run."""
    path = None if out is None else Path(out) / "metrics.jsonl"
    return [] if path is None or not path.exists() else read_history(path)
