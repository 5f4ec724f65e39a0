"""``train``: the one call that trains a model."""

import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import Dataset

from factorank.errors import TrainingError, short_of_memory
from factorank.training import data as sources
from factorank.training import run_folder as folder
from factorank.training.checks import Batch, check_table, fingerprint
from factorank.training.data import Shape, stream_seed
from factorank.training.engine import Engine
from factorank.training.held_out import HeldOut
from factorank.training.prepare import probe, split
from factorank.training.processes import World, checked_device, world
from factorank.training.result import TrainResult
from factorank.training.settings import Settings
from factorank.training.step import Step

Data = Tensor | tuple[Tensor, Any] | Dataset[Any] | Callable[[int, torch.Generator], Any]


def train(
    model: nn.Module,
    data: Data,
    *,
    steps: int,
    max_seconds: float | None = None,
    batch_size: int | None = None,
    optimizer: str = "adamw",
    lr: float = 3e-4,
    warmup: int | None = None,
    schedule: str = "cosine",
    weight_decay: float = 0.01,
    betas: tuple[float, float] = (0.9, 0.98),
    clip: float | None = 1.0,
    ema: float | None = 0.999,
    precision: str = "fp32",
    compile: bool = False,
    capture: bool | str = "auto",
    accumulate: int = 1,
    held_out: Tensor | tuple[Tensor, Any] | float | None = None,
    held_out_every: int | None = None,
    patience: int | None = None,
    watch: Callable[[Any], dict[str, float]] | None = None,
    out: str | Path | None = None,
    checkpoint_every: int | None = None,
    checkpoint_seconds: float | None = 60.0,
    resume: bool | str = True,
    seed: int = 0,
    device: torch.device | str | None = None,
    devices: int | None = None,
    num_nodes: int = 1,
    strategy: Any = None,
    log_every: int = 50,
    progress: bool | None = None,
) -> TrainResult:
    r"""Train a model in place on orders, and leave it in eval mode on the device it was trained on.

    The loss is the mean of ``model.loss(order, context, generator=…)``, in nats. AdamW with decay on matrices
    only (Loshchilov and Hutter, 2019, https://arxiv.org/abs/1711.05101); Muon for the hidden matrices where
    it is asked for (Jordan, 2024, https://kellerjordan.github.io/posts/muon/), at a scale for which AdamW's
    learning rate and decay serve as well (Liu et al., 2025, https://arxiv.org/abs/2502.16982).

    Args:
        model: a :class:`factorank.PermutationModel`, or any module with ``loss``, ``config`` and
            ``save_pretrained`` like its.
        data: orders ``(rows, n)`` or a pair (orders, context), kept whole on the device; a Dataset with a
            length, whose items are orders ``(n,)`` or pairs; or a function ``data(batch_size, generator)``
            that makes orders ``(batch_size, n)`` or pairs on the generator's device. Rows are drawn in epochs
            without replacement.
        steps: optimizer steps of the whole run.
        max_seconds: stop after this much time *in this call*, set-up included, with a checkpoint; a later
            call has as much time again.
        batch_size: rows of one pass on one process; a step averages over ``batch_size × accumulate ×
            processes`` of them. By default 1,024, or fewer if the data are.
        optimizer: "adamw", or "muon": Muon for the linear layers inside an ``nn.ModuleList``, such as the
            blocks of a transformer, and AdamW for all other weights, both with ``lr`` and
            ``weight_decay``.
        lr: the highest learning rate.
        warmup: steps over which it rises; by default a tenth of ``steps``, at most 1,000.
        schedule: "cosine" (falls to 0 at ``steps``), "constant", or "time" (falls to 0 at ``max_seconds``).
        weight_decay: of the matrices.
        betas: of AdamW.
        clip: the largest norm of the gradient; None for no limit.
        ema: decay of the moving average of the weights, which is what is scored and exported; None for none.
        precision: "fp32", or "bf16" for autocast.
        compile: pass the loss through ``torch.compile``.
        capture: on one CUDA device, record the whole step as a graph and replay it: "auto" does so where it
            can, True insists.
        accumulate: passes whose gradients make one step.
        held_out: orders, or (orders, context), or the share of the rows (0 to 1) to hold out. The weights
            that score best on them are the ones the model ends with.
        held_out_every: steps between two scores; by default a fiftieth of ``steps``.
        patience: stop after this many scores without a better one.
        watch: measures the model every ``held_out_every`` steps, with the averaged weights: a function that
            gives named numbers, which go to ``metrics.jsonl`` and decide nothing.
        out: the run's folder; None writes nothing.
        checkpoint_every: steps between two checkpoints.
        checkpoint_seconds: seconds between two checkpoints.
        resume: True goes on with the run in ``out`` if there is one, "must" insists, False refuses. A run of
            other settings, model or data is refused. On the CPU the weights come out as if the run had never
            stopped, bit for bit, unless the schedule follows the time.
        seed: of everything random here; torch's own generators are left as they were.
        device: by default a CUDA device where there is one.
        devices: processes on this machine, one device each, by Lightning Fabric; torchrun and SLURM are
            noticed by themselves. Only the first process writes.
        num_nodes: machines.
        strategy: "ddp" (the default): every process has all weights; "fsdp": each has a part of them, of the
            optimizer's state and of the average, and gathers them for a pass.
        log_every: steps between two lines of ``metrics.jsonl``.
        progress: show a progress bar; by default only on a terminal.

    Ctrl-C and SIGTERM end the run after the step in hand, with a checkpoint and ``stopped="interrupted"``.

    >>> import factorank as fr
    >>> model = fr.PermutationModel(n=4, code="lehmer", objective="masked", width=16, depth=1, heads=2)
    >>> result = fr.train(model, fr.random_cyclic(4, (64,)), steps=3, batch_size=16, device="cpu")
    >>> result.steps, result.stopped
    (3, 'steps')
    """
    started = time.perf_counter()
    settings = Settings(
        steps=steps,
        max_seconds=max_seconds,
        batch_size=batch_size,
        optimizer=optimizer,
        lr=lr,
        warmup=warmup,
        schedule=schedule,
        weight_decay=weight_decay,
        betas=tuple(betas),  # type: ignore[arg-type]
        clip=clip,
        ema=ema,
        precision=precision,
        compile=compile,
        capture=capture,
        accumulate=accumulate,
        held_out_every=held_out_every,
        patience=patience,
        out=None if out is None else Path(out),
        checkpoint_every=checkpoint_every,
        checkpoint_seconds=checkpoint_seconds,
        resume=resume,
        seed=seed,
        log_every=log_every,
        progress=progress,
    )
    if not callable(getattr(model, "loss", None)):
        raise TrainingError(
            f"a {type(model).__name__} cannot be trained: it has no loss(order, context, generator=…)"
        )
    if optimizer == "muon" and strategy == "fsdp":
        raise TrainingError(
            "optimizer='muon' needs whole matrices, of which strategy='fsdp' leaves each process a part;"
            " strategy='ddp' keeps them whole"
        )
    if patience is not None and held_out is None:
        raise TrainingError("patience counts scores on held-out orders; pass held_out")
    table = sources.tabulate(data)
    n = getattr(model, "n", None)
    if table is not None:
        check_table(table, n, "the data")
    table, kept = split(table, held_out, n, seed)
    where = checked_device(device)
    if where.type == "cuda" and where.index is None:
        where = torch.device("cuda", torch.cuda.current_device())
    with torch.random.fork_rng([where] if where.type == "cuda" else []), ExitStack() as held:
        here = world(where, devices, num_nodes, strategy)
        held.callback(here.close)
        return _train(model, data, table, kept, watch, settings, here, started, held)


def _train(
    model: nn.Module,
    data: Any,
    table: Batch | None,
    kept: Batch | None,
    watch: Callable[[Any], dict[str, float]] | None,
    settings: Settings,
    here: World,
    started: float,
    held: ExitStack,
) -> TrainResult:
    device, seed, n = here.device, settings.seed, getattr(model, "n", None)
    rows = (
        len(data) if table is None and hasattr(data, "__len__") else None if table is None else len(table[0])
    )
    size = settings.batch_size
    if size is None:
        size = 1024 if rows is None else max(1, min(1024, rows // (settings.accumulate * here.size)))
    shape = Shape(size, settings.accumulate, here.rank, here.size)
    streams = _streams(seed, here, one_draw=callable(getattr(model, "noise", None)))
    source: sources.Source
    if table is not None:
        source = sources.Table(*table, shape, seed, device)
    elif rows is not None:
        source = sources.Rows(data, n, shape, seed, device)
    else:
        source = sources.Made(data, n, shape, streams["draws"], device)
    model.to(device)
    probe(model, data, table, kept, device, n)

    identity = {"format": 1, "model": _config(model), **settings.identity(size, here.size, device)}
    identity["data"] = {"rows": rows} if table is None else fingerprint(table)
    identity["held_out"] = None if kept is None else fingerprint(kept)
    step = Step(
        model,
        source,
        shape,
        here,
        streams["masks"],
        [stream for stream in streams.values() if stream.device.type == "cuda"],
        optimizer=settings.optimizer,
        lr=settings.lr,
        betas=settings.betas,
        weight_decay=settings.weight_decay,
        clip=settings.clip,
        ema=settings.ema,
        bf16=settings.precision == "bf16",
        compile=settings.compile,
        capture=settings.capture,
    )
    found = None if settings.out is None else _open_folder(settings, identity, model, here, held)
    scorer = None if kept is None else HeldOut(kept, size, seed, settings.precision == "bf16", here)
    engine = Engine(settings, model, step, scorer, watch, streams, here, started)
    if found is not None and settings.out is not None:
        engine.restore(found, settings.out / "checkpoints" / str(found.step))
    was_padded = getattr(model, "padded", None)
    try:
        if was_padded and table is not None and not any((one[0] < 0).any() for one in (table, kept) if one):
            for one in (model, step.model):
                one.padded = False  # type: ignore[assignment]  # no list is short: attention needs no mask
        with short_of_memory(f"lower batch_size (now {size}); accumulate makes up for it"):
            if engine.stopped is None:
                engine.run()
            engine.settle()
    finally:
        model.eval()
        if was_padded:
            model.padded = was_padded
    if settings.out is not None and here.rank == 0:
        folder.export(settings.out, model)
    here.total([0.0])  # nobody returns before the files are there
    return TrainResult(
        steps=engine.step,
        seconds=engine.seconds,
        loss=engine.loss,
        held_out=engine.best.nats,
        held_out_step=engine.best.step,
        stopped=engine.stopped or "steps",
        out=settings.out,
        history=None if settings.out is None else settings.out / "metrics.jsonl",
    )


def _streams(seed: int, here: World, one_draw: bool) -> dict[str, torch.Generator]:
    """Every stream of random numbers of this process: masks, made data, and torch's own (dropout).

    With ``one_draw`` every process draws the masks of the whole step and takes its rows of them.
    """
    streams = {name: torch.Generator(here.device) for name in ("masks", "draws")}
    streams["cpu"] = torch.default_generator
    if here.device.type == "cuda":
        streams["cuda"] = torch.cuda.default_generators[here.device.index]
    for name, stream in streams.items():
        rank = 0 if name == "masks" and one_draw else here.rank
        stream.manual_seed(stream_seed(seed, name, rank))
    return streams


def _config(model: Any) -> Any:
    config = getattr(model, "config", None)
    return {"class": type(model).__name__, "config": config() if callable(config) else config}


def _open_folder(
    settings: Settings, identity: dict[str, Any], model: Any, here: World, held: ExitStack
) -> Any:
    """Find or begin the run: the first process decides, the others read what it has chosen.

    ``held`` keeps other runs out of the folder until it is closed.
    """
    assert settings.out is not None
    found, failed = None, None
    if here.rank == 0:
        try:
            if settings.out.is_dir():
                held.enter_context(folder.alone(settings.out))
            found = folder.find_run(settings.out, identity, settings.resume)
            if not settings.out.is_dir():
                settings.out.mkdir(parents=True)
                held.enter_context(folder.alone(settings.out))
            folder.begin(settings.out, identity, model)
        except (TrainingError, OSError) as error:
            failed = error
    chosen, refused = here.most([-1.0 if found is None else float(found.step), float(failed is not None)])
    if failed is not None:
        raise failed
    if refused:
        raise TrainingError(f"the first process refused the run in {settings.out}; its message says why")
    if here.rank != 0 and chosen >= 0:
        found = folder.checkpoints.read(settings.out / "checkpoints" / str(int(chosen)))
    return found
