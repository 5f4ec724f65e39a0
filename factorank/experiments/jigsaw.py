"""Jigsaw puzzles (the paper's first experiment): CIFAR-10 pictures, cut, scrambled, and put together again.

A model reads the pieces and gives a law over permutations; its most likely permutation is the solution. There
is one right answer to a puzzle, so that a single network evaluation is enough. What the default model does
differently from earlier work: one token for each piece, which says what becomes of that piece (see the
directions in :mod:`factorank.jigsaw.puzzles`); a perceptron on all the pixels of a piece instead of
convolutions with pooling; rounds in which pieces listen to those whose edges match theirs
(:class:`factorank.jigsaw.edges.EdgeAttention`); hints that tell the encoder the slots, and a draft of the
code that it gives the network (:mod:`factorank.jigsaw.hints`); crops and flips; one right order for identical
pieces; a high learning rate that falls to zero, with a moving average of the weights; and training with
everything masked, which is how one evaluation is asked.

Choices are made on 5,000 training pictures that are held out; the 10,000 test pictures are for the results.

    run([setting("default", grid=grid, seed=seed) for grid in (3, 4) for seed in range(3)], "runs/jigsaw")

trains one setting after the other and goes on where it was stopped. The baselines are presets as well.
"""

import json
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from factorank.baselines import RiffleDiffusion
from factorank.baselines.ordering import OrderingModel
from factorank.errors import FactorankError
from factorank.experiments.jigsaw_rows import describe, trained
from factorank.experiments.record import write_results
from factorank.files import write_json
from factorank.jigsaw.puzzles import Pictures, Puzzles, cifar10
from factorank.jigsaw.settings import (
    EARLIER,
    PRESETS,
    Setting,
    ablations,
    build,
    every_code,
    filled,
    setting,
)
from factorank.jigsaw.solving import assigns, evaluate, puzzles_per_second, solve, watcher
from factorank.models import PermutationModel
from factorank.training import TrainResult, train

__all__ = [
    "PRESETS",
    "Setting",
    "ablations",
    "build",
    "evaluate",
    "every_code",
    "learn",
    "run",
    "score",
    "setting",
    "solve",
]

SPLITS = ("test", "held_out")
ENDLESS = 10_000_000
"""Steps of a run that its time ends."""


def learn(
    chosen: Setting,
    pictures: Pictures,
    out: str | Path | None = None,
    *,
    call_seconds: float | None = None,
    start: str | Path | None = None,
    watch_every: int | None = 1000,
    device: torch.device | str | None = None,
    **options: Any,
) -> tuple[PermutationModel | OrderingModel, TrainResult]:
    """Train the model of a setting; the same call goes on with the run in ``out``.

    Args:
        chosen: the setting.
        pictures: to train on, and the held-out ones that are watched.
        out: the run's folder.
        call_seconds: stop this call after so much time. For a setting with ``steps``, whose learning rate
            does not depend on when it was stopped.
        start: a folder with a trained model of the same shape to begin from.
        watch_every: steps between two looks at the held-out puzzles, written to ``metrics.jsonl`` as
            ``solved`` and ``pieces``; None for none.
        device: by default a CUDA device where there is one.
        options: go to :func:`factorank.train`. On CUDA the loss is compiled and in bfloat16 unless they say
            otherwise.
    """
    device = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
    on_cuda = device.type == "cuda"
    side = pictures.train.shape[1]
    model = build(chosen, side)
    if start is not None:
        model.load_state_dict(type(model).from_pretrained(start).state_dict())
    out = None if out is None else Path(out)
    if out is not None:
        _same_setting(out, chosen, start, pictures)
    puzzles = Puzzles(
        pictures.train.to(device),
        chosen.grid,
        direction=chosen.direction_used,
        augment=chosen.augment,
        ties=chosen.ties,
    )
    settings: dict[str, Any] = {
        "steps": chosen.steps or ENDLESS,
        "schedule": "cosine" if chosen.steps else "time",
        "max_seconds": call_seconds if chosen.steps else _time_of_call(chosen, out, call_seconds),
        "precision": "bf16" if on_cuda else "fp32",
        "compile": on_cuda,
        "log_every": 100,
    }
    if watch_every is not None:
        settings |= {"watch": watcher(pictures.held_out, device), "held_out_every": watch_every}
    result = train(
        model,
        puzzles,
        batch_size=chosen.batch_size,
        optimizer=chosen.optimizer,
        lr=chosen.lr_used,
        warmup=chosen.warmup,
        weight_decay=chosen.weight_decay,
        clip=chosen.clip or None,
        ema=chosen.ema or None,
        seed=chosen.seed,
        device=device,
        out=out,
        **(settings | options),
    )
    return model, result


def _same_setting(out: Path, chosen: Setting, start: str | Path | None, pictures: Pictures | None) -> None:
    """Write the setting into the run's folder, or refuse to go on with a run of another one.

    Pictures are compared if there are some, and if the run says which it has seen.
    """
    path = out / "setting.json"
    ours = asdict(filled(chosen)) | {"start": None if start is None else str(start)}
    if path.exists():
        theirs = asdict(filled(Setting())) | EARLIER | {"start": None} | json.loads(path.read_bytes())
        differing = [name for name in ours if theirs.get(name) != json.loads(json.dumps(ours[name]))]
        if differing:
            raise FactorankError(
                f"{out} holds a run with another {', '.join(differing)}; choose another folder, or go on with"
                f" {', '.join(f'{name}={theirs.get(name)!r}' for name in differing)}"
            )
        seen = theirs.get("pictures")
        if pictures is not None and seen is not None and seen != pictures.fingerprint:
            raise FactorankError(
                f"{out} holds a run on other pictures ({seen}), not on these ({pictures.fingerprint}); choose"
                " another folder"
            )
        return
    out.mkdir(parents=True, exist_ok=True)
    write_json(path, ours | {"pictures": None if pictures is None else pictures.fingerprint})


def _time_left(chosen: Setting, out: Path | None) -> float:
    """What is left of the time of a run that the time ends."""
    assert chosen.seconds is not None
    done = [line["seconds"] for line in history(out)]
    return max(chosen.seconds - (done[-1] if done else 0.0), 1e-3)


def _time_of_call(chosen: Setting, out: Path | None, call_seconds: float | None) -> float:
    """The time that a call of such a run takes: all that is left."""
    left = _time_left(chosen, out)
    if call_seconds is not None and call_seconds < left:
        raise FactorankError(
            f"the learning rate falls over the {chosen.seconds:g} seconds of this setting, of which"
            f" {left:.0f} are left: a call cannot stop after {call_seconds:g}; give steps instead of seconds"
        )
    return left


def history(out: str | Path | None) -> list[dict[str, Any]]:
    """The lines of a run's ``metrics.jsonl``; none if there is no such run."""
    path = None if out is None else Path(out) / "metrics.jsonl"
    if path is None or not path.exists():
        return []
    whole = path.read_text(encoding="utf-8").rpartition("\n")[0]  # a killed run may leave half a line
    return [json.loads(line) for line in whole.splitlines()]


def score(
    chosen: Setting,
    model: PermutationModel | OrderingModel,
    pictures: Tensor,
    *,
    nfes: Sequence[int] = (1,),
    unmask: str = "confident",
    beam: int | None = None,
    assign: bool | None = None,
    tries: int = 1,
    most: int | None = None,
) -> Iterator[dict[str, Any]]:
    """One flat row for each number of evaluations: how well, and how fast, the model solves the pictures.

    ``nfes`` and ``unmask`` are for masked models. Autoregressive ones take n evaluations and a ``beam``,
    baselines as many as they need. For the others see :func:`solve`; every try counts as evaluations.
    """
    device = next(model.parameters()).device
    pictures = pictures[:most].to(device)
    masked = isinstance(model, PermutationModel) and model.objective == "masked"
    riffle = isinstance(model, RiffleDiffusion)
    if isinstance(model, RiffleDiffusion):
        nfes = (model.steps,)
    elif not masked:
        nfes = (model.n if isinstance(model, PermutationModel) else 1,)
    for nfe in nfes:
        started = time.perf_counter()
        how: dict[str, Any] = {"assign": assign, "tries": tries}
        how |= {"nfe": nfe, "unmask": unmask} if masked else {"beam": beam}
        solver = partial(solve, model, **how)
        scores = evaluate(solver, pictures, chosen.grid, chosen.direction_used).summary()
        ways = "left-to-right" if isinstance(model, PermutationModel) else None
        yield {
            "experiment": "jigsaw",
            **describe(chosen),
            "unmask": unmask if masked else ways,
            "nfe": nfe * tries,
            "beam": beam or (200 if riffle else 8 if ways and not masked else None),
            "assign": assigns(model, assign, nfe),
            "tries": tries,
            "parameters": sum(weight.numel() for weight in model.parameters()),
            **scores,
            "per_second": round(puzzles_per_second(solver, pictures, chosen.grid), 1),
            "seconds": round(time.perf_counter() - started, 2),
        }


# One setting after the other.


def run(
    settings: Sequence[Setting],
    out: str | Path,
    data: str | Path | None = None,
    *,
    pictures: Pictures | None = None,
    split: str = "test",
    nfes: Sequence[int] = (1,),
    unmask: str = "confident",
    beam: int | None = None,
    assign: bool | None = None,
    tries: int = 1,
    most: int | None = None,
    call_seconds: float | None = None,
    say: Callable[[str], None] = lambda text: None,
    **options: Any,
) -> list[dict[str, Any]]:
    """Train and score settings one after the other, and give their rows.

    Each setting has a folder under ``out``, and ``out/jigsaw.jsonl`` holds the rows of all that lie there. A
    setting whose rows are there is not done again, and refused if they were scored in another way; one that
    was stopped goes on. ``call_seconds`` is the time of the whole call: settings with ``steps`` stop in time
    and go on with the next call, and those with ``seconds`` are begun only if there is time for them.
    ``split`` is "test", or "held_out" to choose by; ``most`` bounds the pictures that are scored. ``options``
    go to :func:`learn`.
    """
    out, started = Path(out), time.perf_counter()
    names = [chosen.name for chosen in settings]
    if doubled := [name for name in dict.fromkeys(names) if names.count(name) > 1]:
        raise FactorankError(f"two settings have the name {doubled[0]}; give them labels")
    if split not in SPLITS:
        raise FactorankError(f"pictures are scored from the 'test' or the 'held_out' split, not {split!r}")
    how: dict[str, Any] = {"unmask": unmask, "beam": beam, "assign": assign, "tries": tries, "most": most}
    rows: list[dict[str, Any]] = []
    for chosen in settings:
        folder = out / chosen.name
        done = folder / f"{split}.jsonl"
        if (folder / "setting.json").exists():
            _same_setting(folder, chosen, options.get("start"), pictures)
        if done.exists():
            _same_scoring(done, {"nfes": list(nfes)} | how)
            say(f"{chosen.name}: finished already, nothing is trained; these are its results")
            rows += [json.loads(line) for line in done.read_text(encoding="utf-8").splitlines()]
            continue
        left = None if call_seconds is None else call_seconds - (time.perf_counter() - started)
        if left is not None and left <= (0 if chosen.steps else _time_left(chosen, folder)):
            say(f"{chosen.name}: not enough time left in this call")
            continue
        pictures = pictures or cifar10(data)
        say(f"{chosen.name}: training")
        model, result = learn(chosen, pictures, folder, call_seconds=left, **options)
        say(f"{chosen.name}: {told(chosen, result)}")
        if result.stopped == "interrupted":
            break
        if chosen.steps is not None and result.steps < chosen.steps:
            continue
        scored = {"nfe": tuple(nfes), **how, "split": split, "pictures": pictures.source}
        scored |= {name: options[name] for name in ("watch_every",) if name in options}
        about = {"split": split, "data": pictures.source} | trained(chosen, result, history(folder), scored)
        rows_here = [row | about for row in score(chosen, model, getattr(pictures, split), nfes=nfes, **how)]
        for row in rows_here:
            say(f"{chosen.name}: nfe {row['nfe']}, solved {row['solved']:.4f}, pieces {row['pieces']:.4f}")
        write_json(done.with_suffix(".json"), {"nfes": list(nfes)} | how)
        write_results(done, rows_here)
        rows += rows_here
        gather(out)
    if rows:
        gather(out)
    return rows


def gather(out: str | Path) -> list[dict[str, Any]]:
    """The rows of all settings under a folder, on test and on held-out pictures, written to one file."""
    files = [file for split in SPLITS for file in sorted(Path(out).glob(f"*/{split}.jsonl"))]
    rows = [json.loads(line) for file in files for line in file.read_text(encoding="utf-8").splitlines()]
    write_results(Path(out) / "jigsaw.jsonl", rows)
    return rows


def _same_scoring(done: Path, ours: dict[str, Any]) -> None:
    """Refuse rows that were scored in another way, of fewer puzzles perhaps."""
    path = done.with_suffix(".json")
    theirs = json.loads(path.read_bytes()) if path.exists() else ours
    if differing := [name for name in ours if theirs.get(name) != ours[name]]:
        told = ", ".join(f"{name}={theirs.get(name)!r}" for name in differing)
        raise FactorankError(f"{done} was scored with {told}; remove it to score the model again")


def told(chosen: Setting, result: TrainResult) -> str:
    """A line for people: what training came to, and whether the run is finished."""
    text = str(result).partition("; stopped: ")[0]
    if result.stopped == "interrupted" or (chosen.steps is not None and result.steps < chosen.steps):
        return f"{text}; stopped before its end"
    if chosen.steps is not None:
        return f"{text}; finished"
    return f"{text}; finished: its {chosen.seconds:g} seconds are up"
