"""Jigsaw puzzles (the paper's first experiment): CIFAR-10 pictures, cut, scrambled, and put together again.

A model reads the pieces and gives a law over permutations; its most likely permutation is the solution. A
puzzle has one right answer, so a single network evaluation is enough. The default model differs from earlier
work in these points:

* one token for each piece, which predicts the slot of that piece (the directions in
  :mod:`factorank.jigsaw.puzzles`);
* a perceptron on all pixels of a piece instead of convolutions with pooling;
* rounds of attention between pieces whose edges match (:class:`factorank.jigsaw.edges.EdgeAttention`);
* hints from which the encoder learns the slots, and a draft of the code that it gives the network
  (:mod:`factorank.jigsaw.hints`);
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
from factorank.experiments.record import (
    changes,
    gather_rows,
    keywords,
    measured_already,
    provenance,
    write_measured,
    write_results,
)
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
from factorank.jigsaw.training import begin_run, history, time_left, time_to
from factorank.models.model import Objective
from factorank.training import TrainResult

SPLITS = ("test", "held_out")
OPTIONS = (
    *("grid", "code", "objective", "direction", "masks", "encoder", "rounds", "hints", "augment", "width"),
    *("depth", "batch_size", "optimizer", "lr", "ema", "seconds", "steps", "seed", "label"),
)
"""The fields of a setting for which ``factorank jigsaw train`` has options, beside the preset."""
SCORING_OPTIONS = ("split", "nfes", "unmask", "most", "watch_every", "pictures")
"""What it has options for beside those of the setting."""
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
    base = {"optimizer": "adamw"}
    return [setting(**(base | {"label": label} | change | common)) for label, change in ABLATIONS.items()]


def every_code(**common: Any) -> list[JigsawSetting]:
    """All codes with both objectives, for the paper's comparison."""
    codes = ("inline", "lehmer", "left-lehmer", "fisher-yates", "insertion")
    objectives: tuple[Objective, ...] = ("masked", "autoregressive")
    return [
        setting(**({"label": "codes", "code": code, "objective": objective} | common))
        for code in codes
        for objective in objectives
    ]


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
    """See :class:`factorank.jigsaw.Search`, also for the next two."""
    assign: bool | None = None
    tries: int = 1
    most: int | None = None
    """The most puzzles that are scored."""

    def __post_init__(self) -> None:
        if self.split not in SPLITS:
            raise FactorankError(
                f"pictures are scored from the 'test' or the 'held_out' split, not {self.split!r}"
            )


def score(
    chosen: JigsawSetting, model: JigsawModel, pictures: Tensor, scoring: Scoring | None = None
) -> Iterator[dict[str, Any]]:
    """A flat row for each number of evaluations: how well, and how fast, the model solves the pictures.

    Autoregressive models take n evaluations, baselines as many as they need. Every try counts as evaluations.
    """
    scoring = scoring or Scoring()
    pictures = pictures[: scoring.most].to(next(model.parameters()).device)
    search = Search(beam=scoring.beam, assign=scoring.assign, tries=scoring.tries)
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
        scores = evaluate(solver, pictures, chosen.grid, chosen.direction_used).summary()
        yield {
            "experiment": "jigsaw",
            **described(chosen),
            "unmask": unmask,
            "nfe": nfe * scoring.tries,
            "beam": scoring.beam or beam,
            "assign": assigns(model, search),
            "tries": scoring.tries,
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
    call_seconds: float | None = None,
    say: Callable[[str], None] = lambda text: None,
    **options: Any,
) -> list[dict[str, Any]]:
    """Train and score settings one after the other, and give their rows.

    Each setting has a folder under ``out``, and ``out/jigsaw.jsonl`` holds the rows of all that are there. A
    setting whose rows are there is not run again, and refused if they were scored in another way; a run that
    was stopped is resumed. ``call_seconds`` is the time of the whole call: settings with ``steps`` stop in
    time and go on with the next call, and those with ``seconds`` are begun only if there is time for them.
    ``pictures`` are those of CIFAR-10 unless given. ``options`` go to :func:`factorank.jigsaw.learn`.
    """
    out, started, scoring = Path(out), time.perf_counter(), scoring or Scoring()
    names = [chosen.name for chosen in settings]
    if doubled := [name for name in dict.fromkeys(names) if names.count(name) > 1]:
        raise FactorankError(f"two settings have the name {doubled[0]}; give them labels")
    rows: list[dict[str, Any]] = []
    for chosen in settings:
        folder = out / chosen.name
        if (folder / "setting.json").exists():
            begin_run(folder, chosen, options.get("start"), pictures)
        if measured_already(folder, asdict(scoring), scoring.split):
            say(f"{chosen.name}: finished already, nothing is trained; these are its results")
            rows += read_json_lines(folder / f"{scoring.split}.jsonl")
            continue
        left = None if call_seconds is None else call_seconds - (time.perf_counter() - started)
        if left is not None and left <= (0 if chosen.steps else time_left(chosen, folder)):
            say(f"{chosen.name}: not enough time left in this call")
            continue
        pictures = pictures or cifar10()
        say(f"{chosen.name}: training")
        model, result = learn(chosen, pictures, folder, call_seconds=left, **options)
        say(f"{chosen.name}: {outcome(chosen, result)}")
        if result.stopped == "interrupted":
            break
        if chosen.steps is not None and result.steps < chosen.steps:
            continue
        about = _facts(chosen, scoring, result, folder, pictures.source, options)
        scored = [row | about for row in score(chosen, model, getattr(pictures, scoring.split), scoring)]
        for row in scored:
            say(f"{chosen.name}: nfe {row['nfe']}, solved {row['solved']:.4f}, pieces {row['pieces']:.4f}")
        write_measured(folder, asdict(scoring), scored, scoring.split)
        rows += scored
        gather(out)
    if rows:
        gather(out)
    return rows


# What rows say of their run.


def described(chosen: JigsawSetting) -> dict[str, Any]:
    """The setting as it goes into each row of the results, flat."""
    row = asdict(chosen.filled())
    for old, new in (("seconds", "train_limit"), ("steps", "step_limit")):
        row[new] = row.pop(old)
    own = row.pop("model_options")
    if chosen.method != "factorank":
        row |= {"code": None, "objective": None, "masks": None, "aligned": None}
    return row | {f"model_{name}": value for name, value in own.items()}


def command_of(chosen: JigsawSetting, scoring: Scoring | None = None, **others: Any) -> str:
    """The command line that trains a setting, or the call in Python where there are no such options.

    ``others`` are the remaining arguments of :func:`run` that are not as usual.
    """
    preset = next(name for name in (chosen.label, chosen.method, "default") if name in PRESETS)
    changed = changes(chosen, setting(preset))
    changed = {name: value for name, value in changed.items() if value is not None}
    scored = changes(scoring or Scoring(), Scoring())
    if not {*changed, *scored, *others} <= {*OPTIONS, *SCORING_OPTIONS}:
        arguments = [f"[setting({', '.join([repr(preset), *keywords(changed)])})]", "out"]
        arguments += [f"Scoring({', '.join(keywords(scored))})"] if scored else []
        return f"factorank.experiments.jigsaw.run({', '.join([*arguments, *keywords(others)])})"
    command = ["factorank jigsaw train"] + ([] if preset == "default" else [f"--preset {preset}"])
    for name, value in (changed | scored | others).items():
        option = {"seconds": "max-seconds", "nfes": "nfe"}.get(name, name.replace("_", "-"))
        command.append(f"--{option} {' '.join(map(str, value)) if isinstance(value, tuple) else value}")
    return " ".join(command)


def _facts(
    chosen: JigsawSetting,
    scoring: Scoring,
    result: TrainResult,
    folder: Path,
    source: str,
    options: dict[str, Any],
) -> dict[str, Any]:
    """The pictures, what training came to, and where the rows come from."""
    watched = history(folder)
    others = {"watch_every": options.get("watch_every", 1000), "pictures": source}
    usual = {"watch_every": 1000, "pictures": "cifar-10"}
    return {
        "split": scoring.split,
        "data": source,
        "trained_steps": result.steps,
        "train_seconds": round(result.seconds, 1),
        "seconds_to_90": time_to(watched, 0.9),
        "steps_to_90": time_to(watched, 0.9, "step"),
        **provenance(command_of(chosen, scoring, **{k: v for k, v in others.items() if v != usual[k]})),
    }


# Files.


def gather(out: str | Path) -> list[dict[str, Any]]:
    """The rows of all settings under a folder, on test and on held-out pictures, written to one file."""
    rows = [row for split in SPLITS for row in gather_rows(Path(out), split)]
    write_results(Path(out) / "jigsaw.jsonl", rows)
    return rows


def outcome(chosen: JigsawSetting, result: TrainResult) -> str:
    """A line for people: what training came to, and whether the run is finished."""
    text = str(result).partition("; stopped: ")[0]
    if result.stopped == "interrupted" or (chosen.steps is not None and result.steps < chosen.steps):
        return f"{text}; stopped before its end"
    if chosen.steps is not None:
        return f"{text}; finished"
    return f"{text}; finished: its {chosen.seconds:g} seconds are up"
