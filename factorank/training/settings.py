"""The settings of a run, as one object that is checked when it is made."""

import inspect
import math
import re
import textwrap
from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path
from types import NoneType
from typing import Any, Literal, TypeVar, get_args

import torch

from factorank.errors import TrainingError

Optimizer = Literal["adamw", "muon"]
Schedule = Literal["cosine", "constant", "time"]
Precision = Literal["fp32", "bf16"]
ENDLESS = 10_000_000
"""Steps of a run that its time ends."""


@dataclass(frozen=True, kw_only=True)
class TrainSettings:
    """How a model is trained: what :func:`factorank.train` takes besides the model and the data.

    >>> settings = TrainSettings(steps=100, lr=1e-3)
    >>> settings.warmup_steps, settings.held_out_steps
    (10, 2)
    """

    steps: int
    """Optimizer steps of the whole run. More than a run in ``out`` was planned for: it goes on from where it
    was, with the learning rates of the longer plan."""
    max_seconds: float | None = None
    """Stop after this much time *in this call*, set-up included, with a checkpoint. A later call has as much
    time again."""
    batch_size: int | None = None
    """Rows of one pass on one process. A step averages over ``batch_size × accumulate × processes`` rows. By
    default 1,024, or fewer if the data are."""
    optimizer: Optimizer | torch.optim.Optimizer | Callable[[Any], torch.optim.Optimizer] = "adamw"
    """"adamw", or "muon": Muon for the linear layers inside an ``nn.ModuleList``, such as the blocks of a
    transformer, and AdamW for all other weights, both with ``lr`` and ``weight_decay``. Or an optimizer of
    your own, or a function of the model that makes one, with any groups of weights: the schedule then scales
    the learning rate of each group, which is its highest; ``lr``, ``weight_decay``, ``betas`` do nothing."""
    lr: float = 3e-4
    """The highest learning rate."""
    warmup: int | None = None
    """Steps over which the learning rate rises. By default a tenth of ``steps``, at most 1,000."""
    schedule: Schedule = "cosine"
    """"cosine" (falls to 0 at ``steps``), "constant", or "time" (falls to 0 at ``max_seconds``)."""
    weight_decay: float = 0.01
    """Decay of the matrices."""
    betas: tuple[float, float] = (0.9, 0.98)
    """Decay of AdamW's two moments."""
    clip: float | None = 1.0
    """The largest norm of the gradient. None sets no limit."""
    ema: float | None = 0.999
    """Decay of the moving average of the weights, which is scored and exported. None for no average."""
    precision: Precision = "fp32"
    """"fp32", or "bf16" for autocast."""
    compile: bool = False
    """Pass the loss through ``torch.compile``."""
    capture: bool | Literal["auto"] = "auto"
    """On one CUDA device, record the whole step as a graph and replay it. "auto" does so where it can, True
    insists."""
    accumulate: int = 1
    """Passes whose gradients make one step."""
    held_out_every: int | None = None
    """Steps between two held-out scores. By default a fiftieth of ``steps``."""
    patience: int | None = None
    """Stop after this many held-out scores without a better one."""
    out: str | Path | None = None
    """The run's folder. None writes nothing."""
    export: bool = True
    """Leave the model in the run's folder at the end, for ``from_pretrained``. False where the caller saves
    it there, together with what belongs to it."""
    checkpoint_every: int | None = None
    """Steps between two checkpoints."""
    checkpoint_seconds: float | None = 60.0
    """Seconds between two checkpoints."""
    resume: bool | Literal["must"] = True
    """True resumes the run in ``out`` if there is one, "must" insists, False refuses. A run of another model,
    other settings or other data is refused. On the CPU the weights are bit for bit those of a run that never
    stopped, unless the schedule follows the time."""
    seed: int = 0
    """Seed of everything random in the run. Torch's own generators are left as they were."""
    device: torch.device | str | None = None
    """The device to train on. By default a CUDA device where there is one."""
    devices: int | None = None
    """Processes on this machine, one device each, by Lightning Fabric. Processes that torchrun or SLURM has
    started are joined without it. Only the first process writes."""
    num_nodes: int = 1
    """Machines."""
    strategy: Literal["ddp"] | None = None
    """"ddp", also the default of several processes: every process holds all weights."""
    log_every: int = 50
    """Steps between two lines of ``metrics.jsonl``."""
    progress: bool | Literal["lines"] | None = None
    """Show a progress bar. By default only on a terminal. "lines": a bar on a terminal, else plain lines."""

    def __post_init__(self) -> None:
        optional = {field.name for field in fields(self) if NoneType in get_args(field.type)}
        for names, allowed, right in _RULES:
            for name in names.split():
                value = getattr(self, name)
                if not right(value) and not (value is None and name in optional):
                    raise TrainingError(f"{{parameter}} is {allowed}, not {value!r}", parameter=name)
        if isinstance(self.optimizer, type):
            kind = self.optimizer.__name__
            made = f"lambda model: {kind}(model.parameters())"
            raise TrainingError(f"{{parameter}} is not the class {kind}, but {made}", parameter="optimizer")
        for name, choices in _CHOICES.items():
            value = getattr(self, name)
            if name == "optimizer" and (isinstance(value, torch.optim.Optimizer) or callable(value)):
                continue
            if not any(type(value) is type(choice) and value == choice for choice in choices):
                allowed = ", ".join(map(repr, choices))
                raise TrainingError(f"{{parameter}} is one of {allowed}, not {value!r}", parameter=name)

    def check_complete(self, held_out: bool) -> None:
        """Refuse settings that need another which is not set, or held-out data where there are none."""
        if self.schedule == "time" and self.max_seconds is None:
            raise TrainingError("schedule='time' needs {parameter}", parameter="max_seconds")
        if self.resume == "must" and self.out is None:
            raise TrainingError("resume='must' needs the run's folder in {parameter}", parameter="out")
        if self.patience is not None and not held_out:
            raise TrainingError("{parameter} counts held-out scores; pass held_out", parameter="patience")

    @property
    def folder(self) -> Path | None:
        """The run's folder as a path."""
        return None if self.out is None else Path(self.out)

    @property
    def warmup_steps(self) -> int:
        """The steps of the warm-up, the default filled in."""
        return min(1000, self.steps // 10) if self.warmup is None else self.warmup

    @property
    def held_out_steps(self) -> int:
        """The steps between two held-out scores, the default filled in."""
        return max(1, self.steps // 50) if self.held_out_every is None else self.held_out_every

    def learning_rate(self, step: int, share_of_time: float = 0.0) -> float:
        """The learning rate of a step, counted from 0.

        The warm-up rises linearly. "cosine" then falls to 0 at ``steps``; "time" falls to 0 as
        ``share_of_time`` goes from 0 to 1, or at ``steps`` if they end first; "constant" stays.

        >>> settings = TrainSettings(steps=6, lr=1.0, warmup=2)
        >>> [round(settings.learning_rate(step), 2) for step in range(7)]
        [0.5, 1.0, 1.0, 0.85, 0.5, 0.15, 0.0]
        """
        warmup = self.warmup_steps
        ramp = min(1.0, (step + 1) / warmup) if warmup else 1.0
        if self.schedule == "constant":
            return self.lr * ramp
        done = (step - warmup) / max(1, self.steps - warmup)
        if self.schedule == "time":
            done = max(done, share_of_time)
        return self.lr * ramp * 0.5 * (1.0 + math.cos(math.pi * min(max(done, 0.0), 1.0)))

    def identity(self, batch_size: int, processes: int, device: torch.device) -> dict[str, Any]:
        """The settings that the weights depend on; a run is resumed only with the same ones."""
        names = ("optimizer", "lr", "schedule", "weight_decay", "clip", "ema", "precision", "accumulate")
        same: dict[str, Any] = {name: getattr(self, name) for name in names}
        if not isinstance(self.optimizer, str):
            same["optimizer"] = _described(self.optimizer)
        same |= {"seed": self.seed, "batch_size": batch_size, "warmup": self.warmup_steps}
        same |= {"betas": list(self.betas), "processes": processes, "device": device.type}
        if self.schedule == "cosine":
            same["steps"] = self.steps
        return same


F = TypeVar("F", bound=Callable[..., Any])


def shows_options(function: F) -> F:
    """List the settings in the signature and the docstring of a function that takes them as ``**options``.

    ``{options}`` in the docstring becomes the names of the fields and their docstrings.
    """
    signature, settings = inspect.signature(function), inspect.signature(TrainSettings)
    own = [p for p in signature.parameters.values() if p.kind is not inspect.Parameter.VAR_KEYWORD]
    listed = own + list(settings.parameters.values())
    function.__signature__ = signature.replace(parameters=listed)  # type: ignore[attr-defined]
    try:
        source = inspect.getsource(TrainSettings)
    except OSError:  # installed without sources
        source = ""
    field = r'^    (\w+): [^\n]*\n    """(.*?)"""$'
    described = re.findall(field, source, re.MULTILINE | re.DOTALL)
    texts = (textwrap.fill(f"{name}: {' '.join(text.split())}", 98) for name, text in described)
    lines = [" " * 4 + text.replace("\n", "\n" + " " * 8) for text in texts]
    # Python 3.13 takes the indentation off docstrings by itself, those before do not.
    function.__doc__ = inspect.cleandoc(function.__doc__ or "").replace("    {options}", "\n".join(lines))
    return function


def _described(optimizer: Any) -> str:
    """What training.json says of an optimizer of the user's own."""
    if not isinstance(optimizer, torch.optim.Optimizer):
        return getattr(optimizer, "__qualname__", type(optimizer).__name__)
    numbers = (
        {name: value for name, value in group.items() if isinstance(value, int | float | str)}
        for group in optimizer.param_groups
    )
    return f"{type(optimizer).__name__} {list(numbers)}"


def _whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _finite(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _decay(value: Any) -> bool:
    return _finite(value) and 0 <= value < 1


_COUNTS = "steps accumulate log_every num_nodes batch_size held_out_every patience checkpoint_every devices"
_RULES: tuple[tuple[str, str, Callable[[Any], bool]], ...] = (
    (_COUNTS, "a whole number of at least 1", lambda v: _whole(v) and v >= 1),
    ("seed warmup", "a whole number of at least 0", lambda v: _whole(v) and v >= 0),
    ("lr max_seconds checkpoint_seconds clip", "a finite number above 0", lambda v: _finite(v) and v > 0),
    ("weight_decay", "a finite number at least 0", lambda v: _finite(v) and v >= 0),
    ("ema", "a finite number at least 0 and below 1", _decay),
    ("betas", "two numbers at least 0 and below 1", lambda v: len(v) == 2 and all(map(_decay, v))),
)
_CHOICES: dict[str, tuple[Any, ...]] = {
    "optimizer": get_args(Optimizer),
    "schedule": get_args(Schedule),
    "precision": get_args(Precision),
    "capture": ("auto", True, False),
    "resume": (True, False, "must"),
    "export": (True, False),
    "strategy": ("ddp", None),
}
