"""The result of a training run."""

from dataclasses import dataclass
from pathlib import Path

from factorank.training.progress import BITS


@dataclass(frozen=True)
class TrainResult:
    """The result of a call of :func:`train`. ``str`` of it is one line for people."""

    steps: int
    """Steps done, earlier calls included."""
    seconds: float
    """Seconds of training, earlier calls included."""
    loss: float
    """Mean training loss since the last log, in nats."""
    held_out: float | None
    """The best held-out loss, in nats; the model has its weights."""
    held_out_step: int | None
    """The step of the best held-out loss."""
    stopped: str
    """Why it ended: "steps", "max_seconds", "patience" or "interrupted"."""
    out: Path | None
    """The run's folder."""
    history: Path | None
    """Its ``metrics.jsonl``."""

    def __str__(self) -> str:
        plural = "" if self.steps == 1 else "s"
        text = f"{self.steps:,} step{plural} in {self.seconds:.1f} s, loss {self.loss * BITS:.4f} bits"
        if self.held_out is not None:
            text += f", best held-out {self.held_out * BITS:.4f} bits at step {self.held_out_step:,}"
        reasons = {"max_seconds": "the time is up", "patience": "held-out likelihood no longer improves"}
        text += f"; stopped: {reasons.get(self.stopped, self.stopped)}"
        if self.stopped in ("interrupted", "max_seconds") and self.out is not None:
            text += f"; the same call goes on from {self.out}"
        return text
