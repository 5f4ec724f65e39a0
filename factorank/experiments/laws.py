"""Law × encoder: what the law of the permutation adds when everything else is equal.

Jigsaw puzzles have one right answer, so a method's share of solved puzzles tells of its encoder as much as of
its law. Here several laws are crossed with two encoders, at equal steps, batches, augmentation, averaging and
optimizer, without hints:

* a Lehmer code, masked at one evaluation, decoded by its mode and by *marginals*: the slots that maximise the
  expected number of right pieces, which is an assignment under the place marginals of the law;
* a Lehmer code, autoregressive;
* the inline code at one evaluation, decoded by assignment;
* Gumbel-Sinkhorn and riffle diffusion.

Two more laws have hints, which the others lack: the Lehmer and the inline code, *drafted*. Their encoder
learns the slot of each piece, and the network corrects the code of that draft.

Every one is trained with several learning rates, and the rows are of the one that solves the most of the
held-out pictures; or the rate is chosen once for each law and encoder, on one grid (:func:`at_rates`).
Beside the shares, a row has the bits of the right order and how well the law knows itself: ``stated`` is the
mean probability that it gives to its own answer, and ``calibration_error`` the mean distance between that and
the share that is right, over ten groups of equal size.
"""

import math
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from statistics import mean
from typing import Any

import torch
from torch import Tensor

from factorank.assignment import best_assignment
from factorank.baselines import RiffleDiffusion
from factorank.data.picture_sets import Pictures
from factorank.errors import FactorankError
from factorank.experiments import record
from factorank.experiments.jigsaw import Scoring, described, score
from factorank.files import read_json_lines
from factorank.jigsaw import JigsawSetting, Search, learn, load_any, puzzles_per_second, setting
from factorank.jigsaw.evaluation import pieces_alike, scores
from factorank.jigsaw.model import JigsawModel
from factorank.jigsaw.puzzles import scrambled
from factorank.jigsaw.solving import law_of, precision_of, solve_puzzles
from factorank.models import PermutationModel

LAWS: dict[str, dict[str, Any]] = {
    "lehmer-masked": {"code": "lehmer", "objective": "masked"},
    "lehmer-autoregressive": {"code": "lehmer", "objective": "autoregressive"},
    "inline-assignment": {"code": "inline", "objective": "masked"},
    "gumbel-sinkhorn": {"method": "gumbel-sinkhorn"},
    "riffle-diffusion": {"method": "riffle-diffusion"},
    "lehmer-drafted": {"code": "lehmer", "objective": "masked", "hints": 1.0},
    "inline-drafted": {"code": "inline", "objective": "masked", "hints": 1.0},
}
ENCODERS = ("convolution", "mlp+neighbours")
EQUAL: dict[str, Any] = {"hints": 0.0, "optimizer": "adamw", "augment": "crop+flip", "ema": 0.999}
AT_ONCE = 500
"""Puzzles whose law is asked at once."""


def settings(
    laws: Sequence[str] = tuple(LAWS),
    encoders: Sequence[str] = ENCODERS,
    grids: Sequence[int] = (3, 4, 5, 6),
    lrs: Sequence[float] = (1e-3, 2e-3, 4e-4),
    seeds: Sequence[int] = (0,),
    steps: int = 3000,
    **changes: Any,
) -> list[JigsawSetting]:
    """Every law with every encoder, grid, learning rate and seed: the first rate of all comes first."""
    return [
        setting(
            label=f"{law}-{encoder}-lr{lr:g}",
            encoder=encoder,
            grid=grid,
            lr=lr,
            seed=seed,
            steps=steps,
            **(EQUAL | LAWS[law] | changes),
        )
        for seed in seeds
        for lr in lrs
        for grid in grids
        for encoder in encoders
        for law in laws
    ]


LAW = ("method", "code", "objective", "hints")
"""The entries of a row that name its law."""


def at_rates(listed: Sequence[JigsawSetting], rows: Sequence[dict[str, Any]]) -> list[JigsawSetting]:
    """Each setting once, at the learning rate that the rows of an earlier call have for its law and encoder.

    The rows are those of :func:`best_rates`, of one grid.
    """
    grids = sorted({row["grid"] for row in rows})
    if len(grids) != 1:
        raise FactorankError(f"{{parameter}} holds rows of one grid, not of {grids}", parameter="rates")
    rates = {tuple(row[key] for key in (*LAW, "encoder")): row["lr"] for row in rows}
    chosen: dict[str, JigsawSetting] = {}
    for each in listed:
        named = described(each)
        kind = tuple(named[key] for key in (*LAW, "encoder"))
        if kind not in rates:
            raise FactorankError(
                f"{{parameter}} holds no rate of {', '.join(map(str, kind))}", parameter="rates"
            )
        label = each.label.rpartition("-lr")[0] + f"-lr{rates[kind]:g}"
        at_rate = replace(each, lr=rates[kind], label=label)
        chosen[at_rate.name] = at_rate
    return list(chosen.values())


def chosen_at(rows: Sequence[dict[str, Any]]) -> str:
    """Where the rates of these rows were chosen, in words.

    >>> chosen_at([{"grid": 4, "trained_steps": 1000}])
    '4x4, 1000 steps'
    """
    return f"{rows[0]['grid']}x{rows[0]['grid']}, {rows[0]['trained_steps']} steps"


def run(
    chosen: JigsawSetting,
    out: Path,
    pictures: Pictures,
    *,
    most: int | None = None,
    until: float | None = None,
    shared: bool = False,
    command: str = "factorank.experiments.laws.run",
    **options: Any,
) -> list[dict[str, Any]]:
    """Train and score a setting in ``out/NAME``; the same call resumes it, or gives the rows it has.

    There are no rows of a run that has not come to its end: it stops at the time ``until`` (as
    ``time.time()`` tells it), with a checkpoint, and does not begin after it. ``most`` pictures of each split
    are scored at most. ``shared`` tells the rows that other runs use the device. ``options`` go to
    :func:`factorank.jigsaw.learn`.
    """
    folder, facts = out / chosen.name, {"setting": chosen, "most": most}
    if not record.measured_already(folder, facts):
        left = None if until is None else until - time.time()
        if left is not None and left < 1:
            return []
        model, result = learn(chosen, pictures, folder / "run", max_seconds=left, watch_every=None, **options)
        if chosen.steps is not None and result.steps < chosen.steps:
            return []
        about: dict[str, Any] = {"trained_steps": result.steps, "train_seconds": round(result.seconds, 1)}
        about |= {"shared_gpu": shared, "data": pictures.source} | record.provenance(command)
        rows = []
        for split in ("held_out", "test"):
            tested = getattr(pictures, split)[:most].to(next(model.parameters()).device)
            rows += [row | about | {"split": split} for row in measure(chosen, model, tested)]
        record.write_measured(folder, facts, rows)
        shutil.rmtree(folder / "run" / "checkpoints", ignore_errors=True)
    return read_json_lines(folder / "rows.jsonl")


def time_alone(chosen: JigsawSetting, out: Path, pictures: Pictures) -> list[dict[str, Any]]:
    """Measure the puzzles a second of a finished run again, now that nothing else uses the device.

    Gives its rows, which are rewritten; none if it has not come to its end.
    """
    file = out / chosen.name / "rows.jsonl"
    if not file.exists():
        return []
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    model, tested = load_any(chosen.grid, file.parent / "run").to(device), pictures.test.to(device)
    rows = [row | {"shared_gpu": False} for row in read_json_lines(file)]
    for way in sorted({row["decode"] == "marginals" for row in rows}):
        solver: Callable[[Tensor], Tensor] = partial(solve_puzzles, model)
        if way:
            assert isinstance(model, PermutationModel)
            solver = partial(by_marginals, model)
        rate = round(puzzles_per_second(solver, tested, chosen.grid, batch_size=AT_ONCE), 1)
        for row in rows:
            if (row["decode"] == "marginals") == way:
                row |= {"per_second": rate, "solve_batch": AT_ONCE}
    record.write_results(file, rows)
    return rows


def best_rates(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The test rows of each law at the learning rate that solves the most held-out puzzles.

    It is the mean over the seeds that counts; ``lr_tried`` lists all rates.
    """
    solved: dict[tuple[Any, ...], dict[float, list[float]]] = {}

    def kind(row: dict[str, Any]) -> tuple[Any, ...]:
        return tuple(row[key] for key in (*LAW, "encoder", "grid"))

    for row in rows:
        if row["split"] == "held_out":
            solved.setdefault(kind(row), {}).setdefault(row["lr"], []).append(row["solved_identical"])
    best = {each: max(rates, key=lambda rate: mean(rates[rate])) for each, rates in solved.items()}
    tried = {each: ", ".join(f"{rate:g}" for rate in sorted(rates)) for each, rates in solved.items()}
    return [
        row | {"lr_tried": tried[kind(row)]}
        for row in rows
        if row["split"] == "test" and row["lr"] == best[kind(row)]
    ]


def measure(chosen: JigsawSetting, model: JigsawModel, pictures: Tensor) -> Iterator[dict[str, Any]]:
    """A flat row of a trained model, or two where its law can be decoded by marginals as well."""
    for row in score(chosen, model, pictures, Scoring()):
        decode = "assignment" if row["assign"] else "mode"
        row = row | {"experiment": "laws", "decode": decode} | likelihood(chosen, model, pictures)
        yield row
    if isinstance(model, PermutationModel) and model.code.factorized and model.objective == "masked":
        started = time.perf_counter()
        order, pieces = scrambled(pictures, chosen.grid, direction=chosen.direction_used)
        solution = torch.cat([by_marginals(model, some) for some in pieces.split(AT_ONCE)])
        seconds = time.perf_counter() - started
        other: dict[str, Any] = {"decode": "marginals", "stated": None, "calibration_error": None}
        other |= {"per_second": round(len(order) / seconds, 1), "seconds": round(seconds, 2)}
        yield row | other | scores(order, solution, pieces, chosen.direction_used)


@torch.no_grad()
def by_marginals(model: PermutationModel, pieces: Tensor) -> Tensor:
    """The orders ``(batch, n)`` of the largest expected number of right entries, at one evaluation."""
    with precision_of(pieces.device):
        law = law_of(model, pieces, Search())
    return best_assignment(law.marginals().mT.float())


@torch.no_grad()
def likelihood(chosen: JigsawSetting, model: JigsawModel, pictures: Tensor) -> dict[str, float | None]:
    """Bits of the right order, and how well the stated probability of the answer agrees with the truth."""
    order, pieces = scrambled(pictures, chosen.grid, direction=chosen.direction_used)
    row: dict[str, float | None] = dict.fromkeys(("bits", "bits_bound", "stated", "calibration_error"))
    nats, stated, right = [], [], []
    for truth, some in zip(order.split(AT_ONCE), pieces.split(AT_ONCE), strict=True):
        if isinstance(model, RiffleDiffusion):
            nats.append(model.eval().loss(truth, some, generator=torch.Generator(some.device).manual_seed(0)))
        elif isinstance(model, PermutationModel):
            with precision_of(some.device):
                law = law_of(model, some, Search())
                answer = solve_puzzles(model, some)
                nats.append(-law.log_prob(truth))
                stated.append(law.log_prob(answer).exp())
            right.append(pieces_alike(truth, answer, some, chosen.direction_used).all(-1))
    if nats:
        bits = float(torch.cat(nats).double().mean()) / math.log(2)
        row["bits_bound" if isinstance(model, RiffleDiffusion) else "bits"] = bits
    if stated:
        row["stated"] = float(torch.cat(stated).double().mean())
        row["calibration_error"] = calibration_error(torch.cat(stated), torch.cat(right))
    return row


def calibration_error(stated: Tensor, right: Tensor, groups: int = 10) -> float:
    """The mean distance of the stated probability from the share that is right, over groups of equal size.

    >>> calibration_error(torch.tensor([0.0, 0.0, 1.0, 1.0]), torch.tensor([False, True, True, True]), 2)
    0.25
    """
    by_probability = stated.argsort(stable=True)
    parts = zip(
        stated[by_probability].double().tensor_split(groups),
        right[by_probability].tensor_split(groups),
        strict=True,
    )
    gaps = [(float((p.mean() - r.double().mean()).abs()), len(p)) for p, r in parts if len(p)]
    return sum(gap * count for gap, count in gaps) / len(stated)
