"""``train``: the one call that trains a model."""

import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from factorank.errors import TrainingError, short_of_memory
from factorank.models import PermutationModel
from factorank.models.context import warn_of_mismatch
from factorank.training import checkpoints, run_folder
from factorank.training.batches import Shape
from factorank.training.checkpoints import Checkpoint
from factorank.training.data import Data, HeldOutData, TrainingData
from factorank.training.held_out import BITS, HeldOut
from factorank.training.loop import Callback, Loop, Watch
from factorank.training.processes import World, checked_device, world_of
from factorank.training.random_streams import random_streams
from factorank.training.settings import TrainSettings, shows_options
from factorank.training.step import Step


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
    """Why it ended: "steps", "max_seconds", "patience", "callback" or "interrupted"."""
    out: Path | None
    """The run's folder."""
    history: Path | None
    """Its ``metrics.jsonl``."""
    unit: str = "nats per order"
    """Of ``loss`` and ``held_out``. A list shorter than n is an order, and counts as much as a longer one."""

    def __str__(self) -> str:
        plural = "" if self.steps == 1 else "s"
        text = (
            f"{self.steps:,} step{plural} in {self.seconds:.1f} s, loss {self.loss * BITS:.4f} bits per order"
        )
        if self.held_out is not None:
            text += f", best held-out {self.held_out * BITS:.4f} bits at step {self.held_out_step:,}"
        reasons = {"max_seconds": "the time is up", "patience": "held-out likelihood no longer improves"}
        text += f"; stopped: {reasons.get(self.stopped, self.stopped)}"
        if self.stopped in ("interrupted", "max_seconds") and self.out is not None:
            text += f"; the same call goes on from {self.out}"
        return text


@shows_options
def train(
    model: nn.Module,
    data: Data,
    settings: TrainSettings | None = None,
    *,
    held_out: HeldOutData = None,
    watch: Watch | None = None,
    callbacks: Sequence[Callback] = (),
    **options: Any,
) -> TrainResult:
    r"""Train a model in place on orders, and leave it in eval mode on the device it was trained on.

    The loss is the mean of ``model.loss(order, context, generator=…)``, in nats. The optimizer is AdamW with
    decay on matrices only (Loshchilov and Hutter, 2019, https://arxiv.org/abs/1711.05101), or Muon for the
    hidden matrices (Jordan, 2024, https://kellerjordan.github.io/posts/muon/), at a scale for which AdamW's
    learning rate and decay serve as well (Liu et al., 2025, https://arxiv.org/abs/2502.16982).

    Ctrl-C and SIGTERM end the run after the current step, with a checkpoint and ``stopped="interrupted"``.

    Args:
        model: a :class:`factorank.PermutationModel`, or any module that has ``loss``, ``config`` and
            ``save_pretrained`` as it does.
        data: orders ``(rows, n)`` or a pair (orders, context), kept whole on the device; a Dataset with a
            length, whose items are orders ``(n,)`` or pairs; or a function ``data(batch_size, generator)``
            that makes orders ``(batch_size, n)`` or pairs on the generator's device; one that is tensor
            operations only may say ``capturable = True``. Rows are drawn in epochs without replacement. Or
            batches of either kind: a DataLoader, or any iterable; it begins again where it ends. A run in
            ``out`` is resumed with the same data only: tensors are compared whole, others by what their
            method ``fingerprint()`` returns, or by 1,024 of their rows.
        settings: the settings as one object. Options change some of them.
        held_out: orders, or (orders, context), or the share of the rows (0 to 1) to hold out. The model ends
            with the weights that score best on them.
        watch: measures the model every ``held_out_every`` steps, with the averaged weights: a function that
            returns named numbers, which go to ``metrics.jsonl`` and decide nothing.
        callbacks: functions that are called after every step with the run: ``run.done`` (steps),
            ``run.last_loss``, ``run.model``, ``run.seconds``. One that returns "stop" ends the run.
        {options}

    >>> import factorank as fr
    >>> model = fr.PermutationModel(n=4, code="lehmer", objective="masked", width=16, depth=1, heads=2)
    >>> result = fr.train(model, fr.random_cyclic(4, (64,)), steps=3, batch_size=16, device="cpu")
    >>> result.steps, result.stopped
    (3, 'steps')
    >>> settings = fr.TrainSettings(steps=3, batch_size=16, device="cpu")
    >>> fr.train(model, fr.random_cyclic(4, (64,)), settings, lr=1e-3).steps
    3

    A DataLoader, an optimizer with groups of weights, and a loop of one's own that does nothing else:

    >>> from torch.utils.data import DataLoader
    >>> loader = DataLoader(fr.random_cyclic(4, (64,)), batch_size=16, shuffle=True)
    >>> groups = [{"params": model.network.head.parameters(), "lr": 1e-2}, {"params": [model.network.places]}]
    >>> fr.train(model, loader, steps=3, optimizer=torch.optim.Adam(groups, lr=1e-3), device="cpu").unit
    'nats per order'
    >>> optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    >>> for orders in loader:
    ...     optimizer.zero_grad()
    ...     model.loss(orders).mean().backward()  # model.loss(orders, context) with a context
    ...     optimizer.step()
    """
    started = time.perf_counter()
    settings = TrainSettings(**options) if settings is None else replace(settings, **options)
    if not callable(getattr(model, "loss", None)):
        why = f"a {type(model).__name__} cannot be trained: it has no loss(order, context, generator=…)"
        raise TrainingError(why, parameter="model")
    settings.check_complete(held_out is not None)
    if isinstance(model, PermutationModel):
        warn_of_mismatch(model)
    checked = TrainingData(data, held_out, getattr(model, "n", None), settings.seed)
    device = checked_device(settings.device)
    with torch.random.fork_rng([device] if device.type == "cuda" else []), ExitStack() as locks:
        return _train(
            model, checked, settings, (watch, callbacks), world_of(device, settings), started, locks
        )


def _train(
    model: Any,
    data: TrainingData,
    settings: TrainSettings,
    watching: tuple[Watch | None, Sequence[Callback]],
    world: World,
    started: float,
    locks: ExitStack,
) -> TrainResult:
    size, out = settings.batch_size, settings.folder
    loaded = data.load(settings.accumulate, settings.seed, size, world.device)
    size = size if loaded is None else loaded
    if size is None:
        size = (
            1024 if data.rows is None else max(1, min(1024, data.rows // (settings.accumulate * world.size)))
        )
    shape = Shape(size, settings.accumulate, world.rank, world.size)
    noisy = loaded is None and callable(getattr(model, "noise", None))
    streams = random_streams(settings.seed, world, whole_step=noisy)
    source = data.batches(shape, settings.seed, streams["draws"], world.device)
    model.to(world.device)
    data.probe(model, world.device)
    step = Step(model, source, shape, streams, world, settings)
    scorer = None
    if data.held_out is not None:
        scorer = HeldOut(data.held_out, size, settings.seed, settings.precision == "bf16", world)
    loop = Loop(step, scorer, *watching, started)
    if out is not None:
        config = getattr(model, "config", None)
        described = {"class": type(model).__name__, "config": config() if callable(config) else config}
        identity: dict[str, Any] = {"format": 1, "model": described}
        identity |= settings.identity(size, world.size, world.device) | data.identity(world.device)
        checkpoint = _open_folder(out, settings.resume, identity, model, world, locks)
        if checkpoint is not None:
            loop.restore(checkpoint, out / "checkpoints" / str(checkpoint.step))
    padded = getattr(model, "padded", None)
    try:
        if padded and data.full_length:
            model.padded = False  # attention needs no mask
        with short_of_memory(f"lower batch_size (now {size}); accumulate makes up for it"):
            if loop.stopped is None:
                loop.run()
            loop.settle()
    finally:
        model.eval()
        if padded:
            model.padded = padded
    if out is not None and settings.export and world.rank == 0:
        run_folder.export(out, model)
    world.total([0.0])  # no process returns before the files are there
    return TrainResult(
        steps=loop.done,
        seconds=loop.seconds,
        loss=loop.loss,
        held_out=loop.best.nats,
        held_out_step=loop.best.step,
        stopped=loop.stopped or "steps",
        out=out,
        history=None if out is None else out / "metrics.jsonl",
    )


def _open_folder(
    out: Path, resume: bool | str, identity: dict[str, Any], model: Any, world: World, locks: ExitStack
) -> Checkpoint | None:
    """Begin the run in its folder, or find the checkpoint to resume from; the first process decides."""
    checkpoint, failed = None, None
    if world.rank == 0:
        try:
            run_folder.check_place(out, resume)
            locks.enter_context(run_folder.locked(out))
            checkpoint = run_folder.find_run(out, identity, resume)
            run_folder.begin(out, identity, model)
        except (TrainingError, OSError) as error:
            failed = error
    step, refused = world.most([-1.0 if checkpoint is None else checkpoint.step, float(failed is not None)])
    if failed is not None:
        raise failed
    if refused:
        raise TrainingError(f"the first process refused the run in {out}; its message says why")
    if world.rank != 0 and step >= 0:
        checkpoint = checkpoints.read(out / "checkpoints" / str(int(step)))
    return checkpoint
