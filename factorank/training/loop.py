"""The loop of a run: steps, logs, held-out scores, checkpoints, and when to stop."""

import copy
import math
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from tqdm import tqdm

from factorank.errors import TrainingError
from factorank.signals import interruptions
from factorank.training import checkpoints
from factorank.training.checkpoints import Checkpoint
from factorank.training.held_out import BITS, Best, HeldOut
from factorank.training.optimizers.average import copy_into, holding
from factorank.training.progress import Lines, progress
from factorank.training.run_folder import Metrics
from factorank.training.step import Step

Watch = Callable[[Any], dict[str, float]]
Callback = Callable[["Loop"], object]
AGREE_EVERY = 8
"""How many steps several processes do between two agreements on whether to stop."""


class Loop:
    """A run in progress: :meth:`restore` reads a checkpoint, :meth:`run` trains until something stops it.

    ``watch`` measures the model at every score, ``callbacks`` are called with the loop after every step;
    ``started`` is when the call of ``train`` began.
    """

    def __init__(
        self,
        step: Step,
        held_out: HeldOut | None,
        watch: Watch | None,
        callbacks: Sequence[Callback],
        started: float,
    ) -> None:
        self.step, self.held_out, self.watch, self.callbacks = step, held_out, watch, callbacks
        self.settings, self.model, self.world = step.settings, step.model, step.world
        self.done = 0
        """Steps done, earlier calls included."""
        self.best = Best()
        self.loss = math.nan
        """Mean loss since the last log, in nats."""
        self.stopped: str | None = None
        """Why the run has ended."""
        self._started = started
        self._seconds_before = 0.0
        self._share_before = self._share = 0.0
        self._metrics: Metrics | None = None
        self._saved_step: int | None = None

    @property
    def call_seconds(self) -> float:
        """Seconds since this call of ``train`` began."""
        return time.perf_counter() - self._started

    @property
    def seconds(self) -> float:
        """Seconds of training, earlier calls included."""
        return self._seconds_before + self.call_seconds

    def run(self) -> None:
        """Train until something stops it, then checkpoint; the model is left with its last weights."""
        settings, writes = self.settings, self.world.rank == 0
        if settings.folder is not None and writes:
            self._metrics = Metrics(settings.folder, self.done)
        show = settings.progress if writes else False
        bar = progress(show, settings.steps, self.done)
        try:
            with interruptions() as interrupted:
                self.model.train()
                if self._saved_step is None:
                    self.save()
                self._run_steps(bar, interrupted)
                self.save()
        finally:
            bar.close()
            if self._metrics is not None:
                self._metrics.close()

    def _run_steps(self, bar: tqdm | Lines, interrupted: threading.Event) -> None:
        settings = self.settings
        agree_every = 1 if self.world.size == 1 else AGREE_EVERY
        first = logged_step = self.done
        logged_at = saved_at = time.perf_counter()
        save_due = False
        while self.stopped is None and self.done < settings.steps:
            if (self.done - first) % agree_every == 0:
                save_due = self._agree(interrupted, time.perf_counter() - saved_at)
                if self.stopped is not None:
                    break
            lr = settings.learning_rate(self.done, self._share)
            self.step.run(self.done, lr)
            self.done += 1
            bar.update()
            self._call_back()
            last = self.done == settings.steps
            if self.done % settings.log_every == 0 or last:
                norm = self._read_loss()
                self.step.reset()
                now = time.perf_counter()
                rate = (self.done - logged_step) / max(now - logged_at, 1e-9)
                logged_at, logged_step = now, self.done
                self._write(loss=self.loss, bits=self.loss * BITS, lr=lr, grad_norm=norm, rate=rate)
                bar.set_postfix_str(self._status(rate))
            if self.done % settings.held_out_steps == 0 or last:
                self._score()
            every = settings.checkpoint_every
            if save_due or (every is not None and self.done % every == 0):
                self.save()
                save_due, saved_at = False, time.perf_counter()
        if self.stopped is None:
            self.stopped = "steps"
        if self.step.count:  # stopped between two logs: the sum stays, for the run that resumes
            self._read_loss()

    @property
    def last_loss(self) -> float:
        """Mean loss of the steps since the last log, in nats; on a GPU reading it waits for the device."""
        return self.step.read()[0] / max(self.step.count, 1)

    def _call_back(self) -> None:
        for callback in self.callbacks:
            said = callback(self)
            if isinstance(said, str) and said != "stop":
                raise TrainingError(f"a callback returns 'stop' to end the run, or nothing, not {said!r}")
            if isinstance(said, str) and self.stopped is None:
                self.stopped = "callback"

    def _status(self, rate: float) -> str:
        """The loss in bits, the rate, and the time left until steps or seconds end."""
        left = (self.settings.steps - self.done) / rate
        if self.settings.max_seconds is not None:
            left = min(left, max(0.0, self.settings.max_seconds - self.call_seconds))
        held_out = "" if self.best.nats is None else f"held-out {self.best.nats * BITS:.3f}, "
        return f"{self.loss * BITS:.3f} bits, {held_out}{rate:.3g} steps/s, {tqdm.format_interval(left)} left"

    def _agree(self, interrupted: threading.Event, since_save: float) -> bool:
        """Let all processes stop together, and share one clock; whether a checkpoint is due."""
        settings = self.settings
        limit, every = settings.max_seconds, settings.checkpoint_seconds
        spent = 0.0 if limit is None else self.call_seconds / limit
        due = settings.out is not None and every is not None and since_save >= every
        any_interrupted, spent, any_due = self.world.most([interrupted.is_set(), spent, due])
        self._share = self._share_before + (1.0 - self._share_before) * min(1.0, spent)
        if any_interrupted:
            self.stopped = "interrupted"
        elif spent >= 1.0 or (settings.schedule == "time" and self._share >= 1.0):
            self.stopped = "max_seconds"
        return bool(any_due)

    def _read_loss(self) -> float:
        """Read the mean loss since the last log, and return the gradient norm; this waits for the device."""
        total, norm = self.step.read()
        summed, count = self.world.total([total, float(self.step.count)])
        self._check_finite(summed)
        self.loss = summed / count
        return norm

    def _check_finite(self, loss: float) -> None:
        if not math.isfinite(loss):
            advice = f"lower {{parameter}} (now {self.settings.lr:g}) or clip (now {self.settings.clip})"
            saved = "" if self._saved_step is None else f"; checkpoint {self._saved_step} is from before"
            text = f"the loss became {loss} before step {self.done}; {advice}{saved}"
            raise TrainingError(text, parameter="lr")

    def _write(self, **values: Any) -> None:
        if self._metrics is not None:
            self._metrics.write({"step": self.done, "seconds": round(self.seconds, 3), **values})

    # Held-out likelihood.

    def averaged(self) -> list[Tensor]:
        """The weights that are scored and exported: the moving average where there is one."""
        return self.step.weights if self.step.average is None else self.step.average.tensors

    def _held_out_nats(self) -> float:
        """The held-out loss of the averaged weights, in nats."""
        assert self.held_out is not None
        with holding(self.step.weights, self.averaged()):
            return self.held_out.nats(self.model)

    def _score(self) -> None:
        """Write down what the watcher and the held-out orders say of the averaged weights."""
        if self.watch is not None and self.world.rank == 0:
            self.model.eval()
            with holding(self.step.weights, self.averaged()):
                measured = self.watch(self.model)
            self.model.train()
            self._write(**measured)
        if self.held_out is None:
            return
        nats = self._held_out_nats()
        is_best = self.best.offer(nats, self.done, self.averaged())
        self._write(held_out=nats, held_out_bits=nats * BITS, best=is_best)
        patience = self.settings.patience
        if patience is not None and self.best.since >= patience:
            self.stopped = "patience"

    def settle(self) -> None:
        """Give the model the weights that the run is for: the best on held-out orders, else the average.

        Weights between two scores compete too, but leave no trace in the checkpoint: a resumed run must not
        depend on where it was stopped.
        """
        if self.held_out is not None and self.stopped in ("interrupted", "max_seconds"):
            self.best = copy.copy(self.best)
            self.best.offer(self._held_out_nats(), self.done, self.averaged())
        copy_into(self.step.weights, self.averaged() if self.best.weights is None else self.best.weights)
        self.model.eval()

    # Checkpoints.

    def save(self) -> None:
        """Write a checkpoint of this step, unless there is one or no folder to write to."""
        out, step = self.settings.folder, self.step
        if out is None or self._saved_step == self.done:
            return
        loss_sum = step.read()[0]
        self._check_finite(loss_sum)
        gathered = {name: self.world.gather(stream.get_state()) for name, stream in step.streams.items()}
        sums = self.world.gather(torch.tensor(loss_sum, dtype=torch.float64))
        self._saved_step = self.done
        if self.world.rank != 0:
            return
        names = [name for name, _ in step.named]
        tensors = {"weights": weights_and_buffers(self.model), "optimizer": step.update.state()}
        if step.average is not None:
            tensors["ema"] = dict(zip(names, step.average.tensors, strict=True))
        if self.best.weights is not None:
            tensors["best"] = dict(zip(names, self.best.weights, strict=True))
        tensors["generators"] = {
            f"{name}/{rank}": state for name, states in gathered.items() for rank, state in enumerate(states)
        }
        state = {
            "seconds": self.seconds,
            "share_of_time": self._share,
            "loss": None if math.isnan(self.loss) else self.loss,
            "loss_sums": [float(loss) for loss in sums],
            "loss_count": step.count,
            "best": {"nats": self.best.nats, "step": self.best.step, "since": self.best.since},
            "stopped": self.stopped if self.stopped in ("steps", "patience") else None,
        }
        if self._metrics is not None:
            self._metrics.sync()
        checkpoints.write(out / "checkpoints", Checkpoint(self.done, tensors, state))

    def restore(self, checkpoint: Checkpoint, path: Path) -> None:
        """Go back to the state of a checkpoint."""
        step, state, tensors, rank = self.step, checkpoint.state, checkpoint.tensors, self.world.rank
        names = [name for name, _ in step.named]
        try:
            weights = weights_and_buffers(self.model)
            copy_into(list(weights.values()), [tensors["weights"][name] for name in weights])
            step.update.load_state(tensors["optimizer"])
            if step.average is not None:
                copy_into(step.average.tensors, [tensors["ema"][name] for name in names])
            self.best = Best(**state["best"])
            if "best" in tensors:
                self.best.weights = [tensors["best"][name].to(self.world.device) for name in names]
            for name, stream in step.streams.items():
                stream.set_state(tensors["generators"][f"{name}/{rank}"])
            step.loss_sum.fill_(state["loss_sums"][rank])
            step.count = state["loss_count"]
            self.loss = math.nan if state["loss"] is None else state["loss"]
            self._seconds_before, self._share_before = state["seconds"], state["share_of_time"]
            if state["stopped"] == "patience" or checkpoint.step >= self.settings.steps:
                self.stopped = state["stopped"] or "steps"  # nothing is left to do
        except (KeyError, TypeError, RuntimeError, ValueError) as error:
            raise TrainingError(f"{path} does not fit this model and run: {error!r}") from error
        self.done = self._saved_step = checkpoint.step
        self._share = self._share_before


def weights_and_buffers(model: nn.Module) -> dict[str, Tensor]:
    """Every weight once (tied ones share a name) and every buffer that belongs to the state."""
    kept = model.state_dict(keep_vars=True)
    buffers = {name: buffer for name, buffer in model.named_buffers() if name in kept}
    return {**dict(model.named_parameters()), **buffers}
