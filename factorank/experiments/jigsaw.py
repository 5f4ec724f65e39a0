"""Jigsaw puzzles (the paper's first experiment): CIFAR-10 pictures, cut, scrambled, and put together again.

A model reads the pieces and gives a law over permutations; its most likely permutation is the solution. A
puzzle has one right answer, so a single network evaluation is enough. The default model differs from earlier
work in these points:

* one token for each piece, which predicts the slot of that piece (the directions in
  :mod:`factorank.jigsaw.puzzles`);
* a perceptron on all pixels of a piece instead of convolutions with pooling;
* rounds of attention between pieces whose edges match (:class:`factorank.jigsaw.edges.EdgeAttention`);
* hints from which the encoder learns the slots, and a draft of the code that it gives the network
  (:class:`factorank.jigsaw.HintedModel`);
* crops and flips, and one right order for identical pieces;
* a high learning rate that falls to zero, with a moving average of the weights;
* training with everything masked, which is the state at one evaluation.

Choices are made on 5,000 training pictures that are held out; the 10,000 test pictures are for the results.

    run([setting("default", grid=grid, seed=seed) for grid in (3, 4) for seed in range(3)], "runs/jigsaw")

trains one setting after the other and resumes where it was stopped. The baselines are presets as well.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

from torch import Tensor

from factorank.baselines.ordering import OrderingModel
from factorank.data.picture_sets import Pictures, cifar10
from factorank.errors import FactorankError
from factorank.experiments import record
from factorank.files import read_json_lines
from factorank.jigsaw import (
    JigsawSetting,
    Search,
    evaluate,
    learn,
    puzzles_per_second,
    setting,
    solve_puzzles,
)
from factorank.jigsaw.model import JigsawModel
from factorank.jigsaw.settings import PRESETS
from factorank.jigsaw.solving import assigns
from factorank.jigsaw.training import begin_run, history
from factorank.training import TrainResult

SPLITS = ("test", "held_out")
ABLATIONS: dict[str, dict[str, Any]] = {
    "all": {},
    "no-neighbours": {"encoder": "mlp"},
    "one-round": {"rounds": 1},
    "no-hints": {"hints": 0.0},
    "no-neighbours-no-hints": {"encoder": "mlp", "hints": 0.0},
    "convolution": {"encoder": "convolution", "hints": 0.0},
    "other-direction": {"direction": "piece-of-slot"},
    "all-masks": {"masks": "any"},
    "no-crop-no-flip": {"augment": "none"},
    "light": {"augment": "crop+flip+light"},
    "no-ties": {"ties": False},
    "no-average": {"ema": 0.0},
    "lr-3e-4": {"lr": 3e-4},
    "muon": {"optimizer": "muon"},
    "contrast": {"encoder": "mlp+neighbours+contrast"},
    "means": {"encoder": "mlp+neighbours+means"},
}
"""What each ablation changes in the default setting, trained by AdamW, by label."""


def ablations(**common: Any) -> list[JigsawSetting]:
    """The default setting by AdamW with one thing changed at a time; ``common`` holds for all."""
    base = {"optimizer": "adamw"} | common
    return [setting(**(base | {"label": label} | change)) for label, change in ABLATIONS.items()]


@dataclass(frozen=True)
class Scoring:
    """How trained models are scored."""

    split: Literal["test", "held_out"] = "test"
    """The pictures; choices are made on the held-out ones."""
    nfes: tuple[int, ...] = (1,)
    """For masked models: the numbers of evaluations, a row for each."""
    unmask: str = "confident"
    """For masked models: which positions are revealed first."""
    beam: int | None = None
    """See :class:`factorank.jigsaw.Search`, also for the next one."""
    assign: bool | None = None
    most: int | None = None
    """The most puzzles that are scored."""

    def __post_init__(self) -> None:
        if self.split not in SPLITS:
            raise FactorankError(f"pictures are of the 'test' or the 'held_out' split, not {self.split!r}")


def score(
    chosen: JigsawSetting, model: JigsawModel, pictures: Tensor, scoring: Scoring | None = None
) -> Iterator[dict[str, Any]]:
    """A flat row for each number of evaluations: how well, and how fast, the model solves the pictures.

    Autoregressive models take n evaluations, baselines as many as they need.
    """
    scoring = scoring or Scoring()
    pictures = pictures[: scoring.most].to(next(model.parameters()).device)
    search = Search(beam=scoring.beam, assign=scoring.assign)
    masked = chosen.method == "factorank" and chosen.objective == "masked"
    nfes, unmask, beam = scoring.nfes, None, None
    if isinstance(model, OrderingModel):
        nfes, beam = (model.nfe,), model.default_beam
    elif masked:
        unmask = scoring.unmask
    else:
        nfes, unmask, beam = (model.n,), "left-to-right", 8
    for nfe in nfes:
        started = time.perf_counter()
        if masked:
            search = replace(search, nfe=nfe, unmask=unmask, beam=None)
        solver = partial(solve_puzzles, model, search=search)
        scores = evaluate(solver, pictures, chosen.grid, chosen.direction_used)
        yield {
            "experiment": "jigsaw",
            **described(chosen),
            "unmask": unmask,
            "nfe": nfe,
            "beam": scoring.beam or beam,
            "assign": assigns(model, search),
            "parameters": sum(weight.numel() for weight in model.parameters()),
            **scores,
            "per_second": round(puzzles_per_second(solver, pictures, chosen.grid), 1),
            "seconds": round(time.perf_counter() - started, 2),
        }


def run(
    settings: Sequence[JigsawSetting],
    out: str | Path,
    scoring: Scoring | None = None,
    *,
    pictures: Pictures | None = None,
    command: str | None = None,
    say: Callable[[str], None] = lambda text: None,
    **options: Any,
) -> list[dict[str, Any]]:
    """Train and score settings one after the other, and give their rows.

    Each setting has a folder under ``out``, and ``out/jigsaw.jsonl`` holds the rows of all that are there. A
    setting whose rows are there is not run again, and refused if they were scored in another way; a run that
    was stopped is resumed. ``pictures`` are those of CIFAR-10 unless given. ``command`` is what rows call
    this call unless it is written in Python. ``options`` go to :func:`factorank.jigsaw.learn`.
    """
    out, scoring = Path(out), scoring or Scoring()
    record.check_names([chosen.name for chosen in settings])
    rows: list[dict[str, Any]] = []
    for chosen in settings:
        folder = out / chosen.name
        if (folder / "setting.json").exists():
            begin_run(folder, chosen, options.get("start"), pictures)
        if record.measured_already(folder, asdict(scoring), scoring.split):
            say(f"{chosen.name}: finished already, nothing is trained; these are its results")
            rows += read_json_lines(folder / f"{scoring.split}.jsonl")
            continue
        pictures = pictures or cifar10()
        say(f"{chosen.name}: training")
        model, result = learn(chosen, pictures, folder, **options)
        say(f"{chosen.name}: {outcome(chosen, result)}")
        if result.stopped == "interrupted":
            break
        if chosen.steps is not None and result.steps < chosen.steps:
            continue
        about = {
            "split": scoring.split,
            "data": pictures.source,
            "trained_steps": result.steps,
            "train_seconds": round(result.seconds, 1),
            "seconds_to_90": _reached_90(folder, "seconds"),
            "steps_to_90": _reached_90(folder, "step"),
            **record.provenance(command or call_of(chosen, scoring, **options)),
        }
        scored = [row | about for row in score(chosen, model, getattr(pictures, scoring.split), scoring)]
        for row in scored:
            say(f"{chosen.name}: nfe {row['nfe']}, solved {row['solved']:.4f}, pieces {row['pieces']:.4f}")
        record.write_measured(folder, asdict(scoring), scored, scoring.split)
        rows += scored
        _gather(out)
    if rows:
        _gather(out)
    return rows


def described(chosen: JigsawSetting) -> dict[str, Any]:
    """The setting as it goes into each row of the results, flat."""
    row = asdict(chosen.filled())
    for old, new in (("seconds", "train_limit"), ("steps", "step_limit")):
        row[new] = row.pop(old)
    own = row.pop("model_options")
    if chosen.method != "factorank":
        row |= {"code": None, "objective": None, "masks": None, "aligned": None}
    return row | {f"model_{name}": value for name, value in own.items()}


def call_of(chosen: JigsawSetting, scoring: Scoring, **options: Any) -> str:
    """The call in Python that trains and scores a setting.

    >>> call_of(setting("paper", grid=4), Scoring(most=100))
    "factorank.experiments.jigsaw.run([setting('paper', grid=4)], out, Scoring(most=100))"
    """
    preset = next(name for name in (chosen.label, chosen.method, "default") if name in PRESETS)
    changed = record.keywords(record.changes(chosen, setting(preset)))
    scored = record.keywords(record.changes(scoring, Scoring()))
    arguments = [f"[setting({', '.join([repr(preset), *changed])})]", "out"]
    arguments += [f"Scoring({', '.join(scored)})"] if scored else []
    return f"factorank.experiments.jigsaw.run({', '.join([*arguments, *record.keywords(options)])})"


def outcome(chosen: JigsawSetting, result: TrainResult) -> str:
    """A line for people: what training came to, and whether the run is finished."""
    # Short enough for a terminal after the name of the run.
    text = str(result).partition("; stopped: ")[0].replace(" per order", "")
    if result.stopped == "interrupted" or (chosen.steps is not None and result.steps < chosen.steps):
        return f"{text}; stopped before its end"
    return f"{text}; finished" + ("" if chosen.steps else f": its {chosen.seconds:g} seconds are up")


def _gather(out: Path) -> None:
    """Write the rows of all settings under a folder, on test and on held-out pictures, to one file."""
    rows = [row for split in SPLITS for row in record.gather_rows(out, split)]
    record.write_results(out / "jigsaw.jsonl", rows)


def _reached_90(folder: Path, unit: str) -> float | None:
    """After how many seconds, or steps, of training 90% of the watched puzzles were solved; None if never."""
    return next((line[unit] for line in history(folder) if (line.get("solved") or 0) >= 0.9), None)
