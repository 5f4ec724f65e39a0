"""The settings of a run, as one object that is checked when it is made."""

import ast
import inspect
import math
import textwrap
from collections.abc import Callable
from dataclasses import MISSING, dataclass, fields
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal, TypedDict, TypeVar, get_args

import torch

from factorank.errors import TrainingError

Optimizer = Literal["adamw", "muon"]
Schedule = Literal["cosine", "constant", "time"]
Precision = Literal["fp32", "bf16"]


@dataclass(frozen=True, kw_only=True)
class TrainSettings:
    """How a model is trained: what :func:`factorank.train` takes besides the model and the data.

    >>> settings = TrainSettings(steps=100, lr=1e-3)
    >>> settings.warmup_steps, settings.held_out_steps
    (10, 2)
    """

    steps: int
    """Optimizer steps of the whole run."""
    max_seconds: float | None = None
    """Stop after this much time *in this call*, set-up included, with a checkpoint. A later call has as much
    time again."""
    batch_size: int | None = None
    """Rows of one pass on one process. A step averages over ``batch_size × accumulate × processes`` rows. By
    default 1,024, or fewer if the data are."""
    optimizer: Optimizer = "adamw"
    """"adamw", or "muon": Muon for the linear layers inside an ``nn.ModuleList``, such as the blocks of a
    transformer, and AdamW for all other weights, both with ``lr`` and ``weight_decay``."""
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
    progress: bool | None = None
    """Show a progress bar. By default only on a terminal."""

    def __post_init__(self) -> None:
        for name in ("steps", "accumulate", "log_every", "num_nodes"):
            _check_whole(name, getattr(self, name), 1)
        for name in ("batch_size", "held_out_every", "patience", "checkpoint_every", "devices"):
            if getattr(self, name) is not None:
                _check_whole(name, getattr(self, name), 1)
        _check_whole("seed", self.seed, 0)
        if self.warmup is not None:
            _check_whole("warmup", self.warmup, 0)
        _check_real("lr", self.lr, above=0.0)
        _check_real("weight_decay", self.weight_decay, least=0.0)
        for name in ("max_seconds", "checkpoint_seconds", "clip"):
            if getattr(self, name) is not None:
                _check_real(name, getattr(self, name), above=0.0)
        if self.ema is not None:
            _check_real("ema", self.ema, least=0.0, below=1.0)
        if len(self.betas) != 2:
            raise TrainingError(f"{{parameter}} are two numbers, not {self.betas!r}", parameter="betas")
        for beta in self.betas:
            _check_real("betas", beta, least=0.0, below=1.0)
        _check_choice("optimizer", self.optimizer, get_args(Optimizer))
        _check_choice("schedule", self.schedule, get_args(Schedule))
        _check_choice("precision", self.precision, get_args(Precision))
        _check_choice("capture", self.capture, ("auto", True, False))
        _check_choice("resume", self.resume, (True, False, "must"))
        _check_choice("strategy", self.strategy, ("ddp", None))

    def check_complete(self, held_out: bool) -> None:
        """Refuse settings that need another which is not set, or held-out data where there are none."""
        if self.schedule == "time" and self.max_seconds is None:
            raise TrainingError(
                "schedule='time' anneals over {parameter}, which is not set", parameter="max_seconds"
            )
        if self.resume == "must" and self.out is None:
            raise TrainingError("resume='must' needs the run's folder in {parameter}", parameter="out")
        if self.patience is not None and not held_out:
            raise TrainingError(
                "{parameter} counts scores on held-out orders; pass held_out", parameter="patience"
            )

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
        same |= {"seed": self.seed, "batch_size": batch_size, "warmup": self.warmup_steps}
        same |= {"betas": list(self.betas), "processes": processes, "device": device.type}
        if self.schedule == "cosine":
            same["steps"] = self.steps
        return same


class TrainOptions(TypedDict, total=False):
    """The fields of :class:`TrainSettings` as keyword options, for editors and type checkers."""

    steps: int
    max_seconds: float | None
    batch_size: int | None
    optimizer: Optimizer
    lr: float
    warmup: int | None
    schedule: Schedule
    weight_decay: float
    betas: tuple[float, float]
    clip: float | None
    ema: float | None
    precision: Precision
    compile: bool
    capture: bool | Literal["auto"]
    accumulate: int
    held_out_every: int | None
    patience: int | None
    out: str | Path | None
    checkpoint_every: int | None
    checkpoint_seconds: float | None
    resume: bool | Literal["must"]
    seed: int
    device: torch.device | str | None
    devices: int | None
    num_nodes: int
    strategy: Literal["ddp"] | None
    log_every: int
    progress: bool | None


F = TypeVar("F", bound=Callable[..., Any])


def shows_options(function: F) -> F:
    """List the settings in the signature and the docstring of a function that takes them as ``**options``.

    ``{options}`` in the docstring becomes the names of the fields and their docstrings.
    """
    signature = inspect.signature(function)
    own = [p for p in signature.parameters.values() if p.kind is not inspect.Parameter.VAR_KEYWORD]
    options = [
        inspect.Parameter(
            field.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=inspect.Parameter.empty if field.default is MISSING else field.default,
            annotation=field.type,
        )
        for field in fields(TrainSettings)
    ]
    function.__signature__ = signature.replace(parameters=own + options)  # type: ignore[attr-defined]
    lines = [
        textwrap.fill(f"{name}: {text}", 110, initial_indent=" " * 8, subsequent_indent=" " * 12)
        for name, text in _field_docstrings(TrainSettings).items()
    ]
    function.__doc__ = (function.__doc__ or "").replace("        {options}", "\n".join(lines))
    return function


def _field_docstrings(kind: type) -> dict[str, str]:
    """The string below each field of a class; none where the source is not at hand."""
    try:
        (body,) = ast.parse(inspect.getsource(kind)).body
    except OSError:
        return {}
    assert isinstance(body, ast.ClassDef)
    return {
        field.target.id: " ".join(below.value.value.split())
        for field, below in pairwise(body.body)
        if isinstance(field, ast.AnnAssign)
        and isinstance(field.target, ast.Name)
        and isinstance(below, ast.Expr)
        and isinstance(below.value, ast.Constant)
        and isinstance(below.value.value, str)
    }


def _check_whole(name: str, value: Any, least: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise TrainingError(
            f"{{parameter}} is a whole number of at least {least}, not {value!r}", parameter=name
        )


def _check_real(
    name: str, value: Any, *, above: float = -math.inf, least: float = -math.inf, below: float = math.inf
) -> None:
    real = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    if not real or not (above < value < below and value >= least):
        bounds = [f"above {above:g}"] * (above > -math.inf) + [f"at least {least:g}"] * (least > -math.inf)
        bounds += [f"below {below:g}"] * (below < math.inf)
        raise TrainingError(
            f"{{parameter}} is a finite number {' and '.join(bounds)}, not {value!r}", parameter=name
        )


def _check_choice(name: str, value: Any, allowed: tuple[Any, ...]) -> None:
    if not any(type(value) is type(choice) and value == choice for choice in allowed):
        raise TrainingError(
            f"{{parameter}} is one of {', '.join(map(repr, allowed))}, not {value!r}", parameter=name
        )
