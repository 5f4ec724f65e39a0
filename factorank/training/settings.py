"""The settings of a run, checked before anything is touched."""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from factorank.errors import TrainingError
from factorank.training.schedules import SCHEDULES

OPTIMIZERS = ("adamw", "muon")


@dataclass(frozen=True)
class Settings:
    """What :func:`factorank.train` takes besides the model and the data; its docstring explains them."""

    steps: int
    max_seconds: float | None
    batch_size: int | None
    optimizer: str
    lr: float
    warmup: int | None
    schedule: str
    weight_decay: float
    betas: tuple[float, float]
    clip: float | None
    ema: float | None
    precision: str
    compile: bool
    capture: bool | str
    accumulate: int
    held_out_every: int | None
    patience: int | None
    out: Path | None
    checkpoint_every: int | None
    checkpoint_seconds: float | None
    resume: bool | str
    seed: int
    log_every: int
    progress: bool | None

    def __post_init__(self) -> None:
        for name in ("steps", "accumulate", "log_every"):
            _whole(name, getattr(self, name), 1)
        for name in ("batch_size", "held_out_every", "patience", "checkpoint_every"):
            if getattr(self, name) is not None:
                _whole(name, getattr(self, name), 1)
        _whole("seed", self.seed, 0)
        if self.warmup is not None:
            _whole("warmup", self.warmup, 0)
        _real("lr", self.lr, above=0.0)
        _real("weight_decay", self.weight_decay, least=0.0)
        for name in ("max_seconds", "checkpoint_seconds", "clip"):
            if getattr(self, name) is not None:
                _real(name, getattr(self, name), above=0.0)
        if self.ema is not None:
            _real("ema", self.ema, least=0.0, below=1.0)
        if len(self.betas) != 2:
            raise TrainingError(f"betas are two numbers, not {self.betas!r}")
        for beta in self.betas:
            _real("betas", beta, least=0.0, below=1.0)
        _one_of("optimizer", self.optimizer, OPTIMIZERS)
        _one_of("schedule", self.schedule, SCHEDULES)
        _one_of("precision", self.precision, ("fp32", "bf16"))
        _one_of("capture", self.capture, ("auto", True, False))
        _one_of("resume", self.resume, (True, False, "must"))
        if self.schedule == "time" and self.max_seconds is None:
            raise TrainingError("schedule='time' anneals over max_seconds; set it")
        if self.resume == "must" and self.out is None:
            raise TrainingError("resume='must' needs the run's folder in out")

    @property
    def warmup_steps(self) -> int:
        """The warm-up: a tenth of the steps but at most 1,000, unless it was given."""
        return min(1000, self.steps // 10) if self.warmup is None else self.warmup

    @property
    def held_out_steps(self) -> int:
        """How often the held-out orders are scored: fifty times in a run, unless it was given."""
        return max(1, self.steps // 50) if self.held_out_every is None else self.held_out_every

    def identity(self, batch_size: int, ranks: int, device: torch.device) -> dict[str, Any]:
        """The settings that the weights depend on; a run goes on only with the same ones."""
        names = ("lr", "schedule", "weight_decay", "clip", "ema", "precision", "accumulate", "seed")
        same: dict[str, Any] = {name: getattr(self, name) for name in names}
        same |= {"batch_size": batch_size, "warmup": self.warmup_steps, "betas": list(self.betas)}
        same |= {"processes": ranks, "device": device.type}
        if self.optimizer != OPTIMIZERS[0]:  # runs begun when there was no other do not name it
            same["optimizer"] = self.optimizer
        if self.schedule == "cosine":
            same["steps"] = self.steps
        return same


def _whole(name: str, value: Any, least: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise TrainingError(f"{name} is a whole number of at least {least}, not {value!r}")


def _real(
    name: str, value: Any, *, above: float = -math.inf, least: float = -math.inf, below: float = math.inf
) -> None:
    real = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    if not real or not (above < value < below and value >= least):
        bounds = [f"above {above:g}"] * (above > -math.inf) + [f"at least {least:g}"] * (least > -math.inf)
        bounds += [f"below {below:g}"] * (below < math.inf)
        raise TrainingError(f"{name} is a finite number {' and '.join(bounds)}, not {value!r}")


def _one_of(name: str, value: Any, allowed: tuple[Any, ...]) -> None:
    if not any(type(value) is type(one) and value == one for one in allowed):
        raise TrainingError(f"{name} is one of {', '.join(map(repr, allowed))}, not {value!r}")
