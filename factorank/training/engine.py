"""The loop of a run: steps, logs, held-out scores, checkpoints, and when to stop."""

import math
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from torch import Tensor

from factorank.errors import TrainingError
from factorank.training import checkpoints
from factorank.training.checkpoints import Checkpoint
from factorank.training.held_out import Best, HeldOut
from factorank.training.optimizers.average import copy_into, holding
from factorank.training.processes import World
from factorank.training.progress import BITS, Bar, Metrics
from factorank.training.schedules import learning_rate
from factorank.training.settings import Settings
from factorank.training.sharded import part, part_of, whole
from factorank.training.step import Step

AGREE_EVERY = 8
"""How many steps several processes do between two agreements on whether to stop."""


class Engine:
    """A run in progress. ``restore`` takes a checkpoint, ``run`` goes on to the end and says why it ended."""

    def __init__(
        self,
        settings: Settings,
        model: Any,
        step: Step,
        held_out: HeldOut | None,
        watch: Callable[[Any], dict[str, float]] | None,
        streams: dict[str, torch.Generator],
        world: World,
        started: float,
    ) -> None:
        self.settings, self.model, self.work, self.world = settings, model, step, world
        self.held_out, self.watch, self.streams = held_out, watch, streams
        self.best = Best()
        self.step = 0
        self.loss = math.nan
        self.stopped: str | None = None
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
        writes = self.world.rank == 0
        if self.settings.out is not None and writes:
            self._metrics = Metrics(self.settings.out, self.step)
        bar = Bar(
            self.settings.progress if writes else False,
            self.step,
            self.settings.steps,
            self.settings.max_seconds,
        )
        try:
            with interruptions() as interrupted:
                self.work.model.train()
                if self._saved_step is None:
                    self.save()
                self._loop(bar, interrupted)
                self.save()
        finally:
            bar.close()
            if self._metrics is not None:
                self._metrics.close()

    def _loop(self, bar: Bar, interrupted: threading.Event) -> None:
        settings, work = self.settings, self.work
        agree_every = 1 if self.world.size == 1 else AGREE_EVERY
        first = self.step
        logged_at = saved_at = time.perf_counter()
        logged_step = self.step
        save_due = False
        while self.stopped is None and self.step < settings.steps:
            if (self.step - first) % agree_every == 0:
                save_due = self._agree(interrupted, time.perf_counter() - saved_at)
                if self.stopped is not None:
                    break
            lr = self._learning_rate()
            work.run(self.step, lr)
            self.step += 1
            bar.advance()
            last = self.step == settings.steps
            if self.step % settings.log_every == 0 or last:
                norm = self._read_loss()
                now = time.perf_counter()
                rate = (self.step - logged_step) / max(now - logged_at, 1e-9)
                logged_at, logged_step = now, self.step
                self._write(loss=self.loss, bits=self.loss * BITS, lr=lr, grad_norm=norm, rate=rate)
                bar.show(self.step, self.loss, rate, self.call_seconds, self.best.nats)
            if self.step % settings.held_out_steps == 0 or last:
                self._look()
                if self.held_out is not None:
                    self._score()
            every = settings.checkpoint_every
            if save_due or (every is not None and self.step % every == 0):
                self.save()
                save_due, saved_at = False, time.perf_counter()
        if self.stopped is None:
            self.stopped = "steps"
        if work.count:  # stopped between two logs: the sum stays, for the run that goes on
            summed, count = self.world.total([work.read()[0], float(work.count)])
            self._check_finite(summed)
            self.loss = summed / count

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
        elif spent >= 1.0:
            self.stopped = "max_seconds"
        return bool(any_due)

    def _learning_rate(self) -> float:
        s = self.settings
        return learning_rate(
            s.schedule, self.step, lr=s.lr, warmup=s.warmup_steps, steps=s.steps, share_of_time=self._share
        )

    def _read_loss(self) -> float:
        """Take the mean loss since the last log, and the gradient norm; this waits for the device."""
        total, norm = self.work.read()
        summed, count = self.world.total([total, float(self.work.count)])
        self._check_finite(summed)
        self.loss = summed / count
        self.work.reset()
        return norm

    def _check_finite(self, loss: float) -> None:
        if not math.isfinite(loss):
            raise TrainingError(
                f"the loss became {loss} before step {self.step}; lower lr (now {self.settings.lr:g}) or clip"
                f" (now {self.settings.clip})"
                + ("" if self._saved_step is None else f"; checkpoint {self._saved_step} is from before")
            )

    # Held-out likelihood.

    def averaged(self) -> list[Tensor]:
        """The weights that count: the moving average where there is one."""
        return list(self.work.weights) if self.work.average is None else self.work.average.tensors

    def held_out_now(self) -> float:
        """The held-out loss of the weights that count, in nats."""
        assert self.held_out is not None
        with self._counting():
            return self.held_out.nats(self.model)

    @contextmanager
    def _counting(self) -> Iterator[None]:
        """Let the model hold the weights that count."""
        if self.model is not self.work.model:
            self._give(self.averaged())
            yield
        elif self.work.average is None:
            yield
        else:
            with holding(self.work.weights, self.averaged()):
                yield

    def _give(self, weights: Sequence[Tensor]) -> None:
        """Give the model these weights, of which this process may hold a part, and the trained buffers."""
        if self.model is self.work.model:
            copy_into(self.work.weights, weights)
            return
        tensors, trained = weights_and_buffers(self.model), weights_and_buffers(self.work.model)
        values = trained | dict(zip((name for name, _ in self.work.named), weights, strict=True))
        copy_into(list(tensors.values()), [whole(values[name], trained[name]) for name in tensors])

    def _look(self) -> None:
        """Write down what the watcher measures of the weights that count."""
        if self.watch is None:
            return
        self.model.eval()
        with self._counting():
            seen = self.watch(self.model) if self.world.rank == 0 else {}
        self.work.model.train()
        if self.world.rank == 0:
            self._write(**seen)

    def _score(self) -> None:
        nats = self.held_out_now()
        is_best = self.best.offer(nats, self.step, self.averaged())
        self._write(held_out=nats, held_out_bits=nats * BITS, best=is_best)
        patience = self.settings.patience
        if patience is not None and self.best.since >= patience:
            self.stopped = "patience"

    def settle(self) -> None:
        """Give the model the weights that the run is for: the best on held-out orders, else the average.

        Weights between two scores compete too, but leave no trace in the checkpoint: a run that goes on must
        not depend on where it was stopped.
        """
        weights, best = self.averaged(), self.best
        if self.held_out is not None and self.stopped in ("interrupted", "max_seconds"):
            best = Best()
            best.__dict__.update(self.best.__dict__)
            best.offer(self.held_out_now(), self.step, weights)
            self.best = best
        self._give(weights if best.weights is None else best.weights)
        self.model.eval()

    # Checkpoints.

    def save(self) -> None:
        """Write a checkpoint of this step, unless there is one or no folder to write to."""
        out, work = self.settings.out, self.work
        if out is None or self._saved_step == self.step:
            return
        loss_sum = work.read()[0]
        self._check_finite(loss_sum)
        gathered = {name: self.world.gather(stream.get_state()) for name, stream in self.streams.items()}
        sums = self.world.gather(torch.tensor(loss_sum, dtype=torch.float64))
        self._saved_step = self.step
        tensors = self._whole_tensors()
        if self.world.rank != 0:
            return
        tensors["generators"] = {
            f"{name}/{i}": s for name, states in gathered.items() for i, s in enumerate(states)
        }
        state = {
            "seconds": self.seconds,
            "share_of_time": self._share,
            "loss": None if math.isnan(self.loss) else self.loss,
            "loss_sums": [float(one) for one in sums],
            "loss_count": work.count,
            "best": {"nats": self.best.nats, "step": self.best.step, "since": self.best.since},
            "stopped": self.stopped if self.stopped in ("steps", "patience") else None,
        }
        if self._metrics is not None:
            self._metrics.sync()
        checkpoints.write(out / "checkpoints", Checkpoint(self.step, tensors, state))

    def _whole_tensors(self) -> dict[str, dict[str, Tensor]]:
        """Weights, optimizer, average and best weights by name; all processes make them together."""
        work, weights = self.work, dict(self.work.named)

        def gathered(values: Iterable[tuple[str, Tensor]]) -> dict[str, Tensor]:
            # The optimizer's names say what of the weight it is, before a slash.
            return {name: whole(value, weights.get(name.split("/")[-1], value)) for name, value in values}

        tensors = {
            "weights": gathered(weights_and_buffers(work.model).items()),
            "optimizer": gathered(work.update.state().items()),
        }
        if work.average is not None:
            tensors["ema"] = gathered(zip(weights, work.average.tensors, strict=True))
        if self.best.weights is not None:
            tensors["best"] = gathered(zip(weights, self.best.weights, strict=True))
        return tensors

    def restore(self, found: Checkpoint, path: Path) -> None:
        """Become what the checkpoint says."""
        work, state, rank = self.work, found.state, self.world.rank

        def parts(file: str, weights: dict[str, Tensor]) -> list[Tensor]:
            return [part_of(found.tensors[file][name], weight) for name, weight in weights.items()]

        try:
            tensors = weights_and_buffers(work.model)
            copy_into([part(one) for one in tensors.values()], parts("weights", tensors))
            work.update.load_state(found.tensors["optimizer"])
            if work.average is not None:
                copy_into(work.average.tensors, parts("ema", dict(work.named)))
            if "best" in found.tensors:
                device = self.world.device
                self.best.weights = [one.to(device) for one in parts("best", dict(work.named))]
            for name, stream in self.streams.items():
                stream.set_state(found.tensors["generators"][f"{name}/{rank}"])
            best = state["best"]
            self.best.nats, self.best.step, self.best.since = best["nats"], best["step"], best["since"]
            work.loss_sum.fill_(state["loss_sums"][rank])
            work.count = state["loss_count"]
            self.loss = math.nan if state["loss"] is None else state["loss"]
            self._seconds_before, self._share_before = state["seconds"], state["share_of_time"]
            if state["stopped"] == "patience" or found.step >= self.settings.steps:
                self.stopped = state["stopped"] or "steps"  # nothing is left to do
        except (KeyError, RuntimeError, ValueError) as error:
            raise TrainingError(f"{path} does not fit this model and run: {error!r}") from error
        self.step = self._saved_step = found.step
        self._share = self._share_before

    def _write(self, **values: Any) -> None:
        if self._metrics is not None:
            self._metrics.write({"step": self.step, "seconds": round(self.seconds, 3), **values})


def weights_and_buffers(model: Any) -> dict[str, Tensor]:
    """Every weight once (tied ones share a name) and every buffer that belongs to the state."""
    kept = model.state_dict(keep_vars=True)
    buffers = {name: buffer for name, buffer in model.named_buffers() if name in kept}
    return {**dict(model.named_parameters()), **buffers}


@contextmanager
def interruptions() -> Iterator[threading.Event]:
    """Turn the first Ctrl-C or SIGTERM into a set event; a second one acts as it did before.

    Only the main thread may set handlers; elsewhere the event is never set.
    """
    event = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield event
        return
    before = {int(number): signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    before = {number: handler for number, handler in before.items() if handler is not signal.SIG_IGN}

    def stop(number: int, frame: FrameType | None) -> None:
        event.set()
        signal.signal(number, before[number] or signal.SIG_DFL)

    for number in before:
        signal.signal(number, stop)
    try:
        yield event
    finally:
        for number, handler in before.items():
            signal.signal(number, handler or signal.SIG_DFL)
