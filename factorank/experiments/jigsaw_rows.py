"""What the rows of a jigsaw run say of it: its setting, the command that makes it again, its training."""

from collections.abc import Sequence
from dataclasses import asdict, fields
from typing import Any

from factorank.experiments.record import provenance
from factorank.jigsaw.scores import time_to
from factorank.jigsaw.settings import PRESETS, Setting, filled, setting
from factorank.training import TrainResult

OPTIONS = (
    *("grid", "code", "objective", "direction", "masks", "encoder", "rounds", "hints", "augment", "width"),
    *("depth", "batch_size", "optimizer", "lr", "ema", "seconds", "steps", "seed", "label"),
)
"""What ``factorank jigsaw train`` has options for, beside the preset."""
SCORING = ("nfe", "unmask", "most", "split", "watch_every", "pictures")
"""What it has options for beside those of the setting."""
USUAL: dict[str, Any] = {
    "nfe": (1,),
    "unmask": "confident",
    "tries": 1,
    "split": "test",
    "watch_every": 1000,
    "pictures": "cifar-10",
}
"""How puzzles are scored unless it is said."""


def describe(chosen: Setting) -> dict[str, Any]:
    """The setting as it goes into each row of the results, flat."""
    row = asdict(filled(chosen))
    for old, new in (("seconds", "train_limit"), ("steps", "step_limit")):
        row[new] = row.pop(old)
    own = row.pop("model_options")
    if chosen.method != "factorank":
        row |= {"code": None, "objective": None, "masks": None, "aligned": None}
    return row | {f"model_{name}": value for name, value in own.items()}


def command_of(chosen: Setting, scored: dict[str, Any] | None = None) -> str:
    """The command line that trains a setting, or the call in Python where there are no such options.

    ``scored`` is how its puzzles are scored, and told where it is not as usual.
    """
    preset = next(name for name in (chosen.label, chosen.method, "default") if name in PRESETS)
    base = setting(preset)
    scored = {name: value for name, value in (scored or {}).items() if value != USUAL.get(name)}
    names = [one.name for one in fields(Setting)]
    changed = {name: getattr(chosen, name) for name in names if getattr(chosen, name) is not None}
    changed = {name: value for name, value in changed.items() if value != getattr(base, name)}
    if not {*changed, *scored} <= {*OPTIONS, *SCORING}:
        words = [repr(preset), *(f"{name}={value!r}" for name, value in changed.items())]
        how = [f"{'nfes' if name == 'nfe' else name}={value!r}" for name, value in scored.items()]
        return f"factorank.experiments.jigsaw.run([setting({', '.join(words)})], {', '.join(['out', *how])})"
    command = ["factorank jigsaw train"] + ([] if preset == "default" else [f"--preset {preset}"])
    for name, value in (changed | scored).items():
        option = "max-seconds" if name == "seconds" else name.replace("_", "-")
        command.append(f"--{option} {' '.join(map(str, value)) if isinstance(value, tuple) else value}")
    return " ".join(command)


def trained(
    chosen: Setting,
    result: TrainResult,
    watched: Sequence[dict[str, Any]] = (),
    scored: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """What training came to, with the lines of its ``metrics.jsonl``, and where the rows come from."""
    return {
        "trained_steps": result.steps,
        "train_seconds": round(result.seconds, 1),
        "seconds_to_90": time_to(watched, 0.9),
        "steps_to_90": time_to(watched, 0.9, "step"),
        **provenance(command_of(chosen, scored)),
    }
