"""Several right answers: what a law is for.

Where an input has one right order, a good encoder and any decoder find it. Here inputs have two right orders,
or a whole known law of them (the tasks in :mod:`factorank.experiments.ambiguous_tasks`), and the target of
each training case is one of them, by a coin. A method must give each answer its share.

Every method has the same encoder, a transformer of the same size over its tokens, the same optimizer and
number of steps, and the learning rate that is best for it on held-out cases:

* models of every code, masked and autoregressive. Masked ones are asked at 1, 2, 4, … n evaluations, left to
  right, and by the entropy bound, which reveals at once only what is almost independent;
* Gumbel-Sinkhorn and riffle diffusion.

The columns of the rows are those of :mod:`factorank.experiments.ambiguous_scores`.
"""

import math
import shutil
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import mean
from typing import Any, Literal

import torch
from torch import Tensor, nn

from factorank.baselines import GumbelSinkhorn, RiffleDiffusion
from factorank.baselines.ordering import OrderingModel
from factorank.data.digits import mnist
from factorank.errors import FactorankError
from factorank.experiments import record
from factorank.experiments.ambiguous_scores import score
from factorank.experiments.ambiguous_tasks import (
    BlendedDigits,
    CoinSort,
    GivenScores,
    Split,
    Task,
)
from factorank.experiments.assignment_task import SymmetricAssignment
from factorank.files import read_json_lines
from factorank.models import PermutationModel
from factorank.training import TrainResult, train

TaskName = Literal["blended-digits", "symmetric-assignment", "coin-sort", "plackett-luce"]
CODES = ("inline", "lehmer", "left-lehmer", "fisher-yates", "insertion")
BASELINES = {"gumbel-sinkhorn": GumbelSinkhorn, "riffle-diffusion": RiffleDiffusion}


@dataclass(frozen=True)
class AmbiguousSetting:
    """A method on a task, and its training."""

    task: TaskName
    n: int
    method: str = "factorank"
    code: str | None = None
    objective: Literal["masked", "autoregressive"] | None = None
    lr: float = 1e-3
    seed: int = 0
    steps: int = 2000
    batch_size: int = 256
    width: int = 128
    depth: int = 4
    heads: int = 8
    weight_decay: float = 0.01

    @property
    def name(self) -> str:
        """The name of the run's folder."""
        kind = self.method if self.code is None else f"{self.code}-{self.objective}"
        return f"{self.task}-{self.n}-{kind}-lr{self.lr:g}-{self.seed}"

    @property
    def by_rank(self) -> bool:
        """Whether the model's permutation lists the place of each item, or the item of each place.

        Position j of a code is about item j in the first direction, of an insertion code in the second.
        """
        return self.code not in (None, "insertion")


SIZES: dict[tuple[TaskName, int], dict[str, Any]] = {
    ("blended-digits", 10): {"steps": 6000, "batch_size": 256, "weight_decay": 0.05},
    ("symmetric-assignment", 20): {"steps": 3000, "batch_size": 256},
    ("symmetric-assignment", 100): {"steps": 2500, "batch_size": 64},
    ("coin-sort", 10): {"steps": 4000, "batch_size": 512},
    ("plackett-luce", 6): {"steps": 3000, "batch_size": 512},
}
"""The tasks with their sizes, and the training of all methods on each."""


def settings(
    tasks: Sequence[tuple[TaskName, int]] = tuple(SIZES),
    lrs: Sequence[float] = (1e-3,),
    seeds: Sequence[int] = (0,),
    codes: Sequence[str] = CODES,
    methods: Sequence[str] = ("masked", "autoregressive", *BASELINES),
    **changes: Any,
) -> list[AmbiguousSetting]:
    """All methods on some tasks, the first learning rate of all first."""
    kinds: list[dict[str, Any]] = []
    for objective in ("masked", "autoregressive"):
        if objective in methods:
            kinds += [{"code": code, "objective": objective} for code in codes]
    kinds += [{"method": method} for method in BASELINES if method in methods]
    return [
        AmbiguousSetting(task=task, n=n, lr=lr, seed=seed, **(SIZES[task, n] | kind | changes))
        for seed in seeds
        for lr in lrs
        for task, n in tasks
        for kind in kinds
    ]


def run(
    setting: AmbiguousSetting,
    out: Path,
    *,
    data: Path | None = None,
    cases: int | None = None,
    matrices: int | None = None,
    until: float | None = None,
    command: str = "factorank.experiments.ambiguous.run",
    device: torch.device | str | None = None,
) -> list[dict[str, Any]]:
    """Train and score a setting in ``out/NAME``; the same call resumes it, or gives the rows it has.

    There are no rows of a run that has not come to its end: it stops at the time ``until`` (as
    ``time.time()`` tells it), with a checkpoint, and does not begin after it.

    Args:
        setting: the method, the task and the training.
        out: the folder of all runs.
        data: the data folder, for MNIST.
        cases: how many test cases; 2,000, or 400 of 100 items, unless given.
        matrices: how many solved matrices to train on.
        until: when to stop.
        command: what rows call this call.
        device: a CUDA device where there is one, unless given.
    """
    folder = out / setting.name
    cases = cases or (2000 if setting.n < 100 else 400)
    facts = {"setting": setting, "cases": cases}
    if not record.measured_already(folder, facts):
        left = math.inf if until is None else until - time.time()
        if left < 1:
            return []
        place = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
        task = task_of(setting, place, data=data, kept=out / "matrices", matrices=matrices)
        limit = None if until is None else max(until - time.time(), 1.0)
        precision = "bf16" if place.type == "cuda" else "fp32"
        options = {"max_seconds": limit, "device": place, "precision": precision, "progress": False}
        model, result = learn(setting, task, folder / "run", **options)
        if result.steps < setting.steps:
            return []
        about = {"experiment": "ambiguous", **asdict(setting)}
        about |= {"held_out": held_out_loss(setting, model, task, place)}
        about |= {"train_seconds": round(result.seconds, 1)} | record.provenance(command)
        rows = [about | row for row in score(model, task, by_rank=setting.by_rank, cases=cases)]
        record.write_measured(folder, facts, rows)
        shutil.rmtree(folder / "run")
    return read_json_lines(folder / "rows.jsonl")


def best_rates(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows of each method at the learning rate with the least held-out loss, in mean over the seeds.

    ``lr_tried`` lists all rates.
    """
    losses: dict[tuple[Any, ...], dict[float, dict[int, float]]] = {}

    def kind(row: dict[str, Any]) -> tuple[Any, ...]:
        return tuple(row[key] for key in ("task", "n", "method", "code", "objective"))

    for row in rows:  # all rows of a run have its loss
        losses.setdefault(kind(row), {}).setdefault(row["lr"], {})[row["seed"]] = row["held_out"]
    chosen = {each: min(rates, key=lambda rate: mean(rates[rate].values())) for each, rates in losses.items()}
    tried = {each: ", ".join(f"{rate:g}" for rate in sorted(rates)) for each, rates in losses.items()}
    return [row | {"lr_tried": tried[kind(row)]} for row in rows if row["lr"] == chosen[kind(row)]]


def task_of(
    setting: AmbiguousSetting,
    device: torch.device | str,
    *,
    data: Path | None = None,
    kept: Path | None = None,
    matrices: int | None = None,
) -> Task:
    """The task of a setting. ``data`` is the data folder of MNIST, ``kept`` a folder for solved matrices."""
    if setting.task == "blended-digits":
        return BlendedDigits(mnist(data), device)
    if setting.task == "symmetric-assignment":
        trained = matrices or (40_000 if setting.n <= 20 else 10_000)
        return SymmetricAssignment(setting.n, trained, trained // 8, device, kept)
    chosen: dict[str, Task] = {task.name: task for task in (CoinSort(), GivenScores())}
    if setting.n != chosen[setting.task].n:
        raise FactorankError(f"{setting.task} has {chosen[setting.task].n} items, not {setting.n}")
    return chosen[setting.task]


class Targets:
    """Makes batches of cases, each with one of its answers by a coin, as the method of a setting lists them.

    Tensor operations only, on the generator's device.
    """

    capturable = True

    def __init__(self, task: Task, setting: AmbiguousSetting, split: Split = "train") -> None:
        self.task, self.by_rank, self.split = task, setting.by_rank, split

    def __call__(self, batch_size: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        cases = self.task.cases(batch_size, generator, self.split)
        coin = torch.rand((batch_size, 1), generator=generator, device=generator.device) < 0.5
        rank = torch.where(coin, cases.ranks[:, 0], cases.ranks[:, 1])
        return (rank if self.by_rank else rank.argsort(-1)), cases.context


def new_model(setting: AmbiguousSetting, task: Task) -> PermutationModel | OrderingModel:
    """The model of a setting, its weights drawn by the seed."""
    torch.manual_seed(setting.seed)
    size: dict[str, Any] = {name: getattr(setting, name) for name in ("width", "depth", "heads")}
    encoder = task.encoder(setting.width)
    if setting.method in BASELINES:
        return BASELINES[setting.method](task.n, encoder=encoder, **size)
    if setting.method != "factorank" or setting.code is None or setting.objective is None:
        raise FactorankError(f"a method is factorank with a code, or {', '.join(BASELINES)}, not {setting}")
    # "order": the targets are listed by rank already, for the inline code as well.
    size |= {"target": "order", "context": encoder}
    model = PermutationModel(task.n, setting.code, setting.objective, **size)
    model.padded = False
    return model


def learn(
    setting: AmbiguousSetting, task: Task, out: Path | None = None, **options: Any
) -> tuple[PermutationModel | OrderingModel, TrainResult]:
    """Train the model of a setting; the same call resumes the run in ``out``. ``options`` go to ``train``."""
    model = new_model(setting, task)
    shared = {name: getattr(setting, name) for name in ("steps", "batch_size", "lr", "weight_decay", "seed")}
    shared |= {"ema": None, "out": out}
    return model, train(model, Targets(task, setting), **(shared | options))


def held_out_loss(
    setting: AmbiguousSetting, model: nn.Module, task: Task, device: torch.device, cases: int = 2048
) -> float:
    """The mean loss, in nats, on held-out cases: learning rates are chosen by it."""
    generator = torch.Generator(device).manual_seed(10**6 + setting.seed)
    data, total, at_once = Targets(task, setting, "held_out"), 0.0, min(cases, 256)
    model.eval()
    for _ in range(cases // at_once):
        order, context = data(at_once, generator)
        with torch.no_grad():
            total += float(model(order, context, generator=generator).mean())
    return total / (cases // at_once)
