"""``factorank jigsaw``: train on puzzles, score a model, or solve a puzzle made of a picture."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

import tyro

from factorank.commands._jigsaw_photographs import eval_photographs
from factorank.commands._jigsaw_solve import JigsawSolve, check_nfes, parse_grid
from factorank.commands._options import Unmask, check_least, option_name, options_for
from factorank.commands._processes import first_process, say
from factorank.commands._text import command_line, counted, percent, table
from factorank.errors import FactorankError
from factorank.signals import exit_code

if TYPE_CHECKING:
    from factorank.jigsaw import Pictures


@dataclass(kw_only=True)
class ScoringOptions:
    """Where the pictures come from, and how a model is scored on them."""

    data: Path | None = None
    """The folder of CIFAR-10; $FACTORANK_DATA or the cache unless given. Downloaded if it is not there."""
    pictures: Path | None = None
    """A folder of pictures to use instead of CIFAR-10, with a tenth held out and a tenth for the test."""
    most: int | None = None
    """Score this many puzzles at most."""
    nfe: tuple[int, ...] = (1,)
    """Network evaluations to score at; other than 1 is for models that are trained with --masks any."""
    unmask: Unmask = "confident"
    """Which positions are revealed first when there are several evaluations."""
    split: Literal["test", "held_out"] = "test"
    """The pictures to score on: held_out, which are not trained on either, to choose by."""

    def read(self) -> "Pictures":
        from factorank.jigsaw import cifar10, picture_folder

        check_least("most", self.most)
        return cifar10(self.data) if self.pictures is None else picture_folder(self.pictures)


@dataclass(kw_only=True)
class JigsawTrain(ScoringOptions):
    """Train a model on puzzles and score it; the same command resumes a run that was stopped.

    A run whose time or steps are over is finished: to train longer, give more with another --label or --out.
    """

    grid: int = 3
    """Pieces in a row."""
    preset: Literal["default", "paper", "gumbel-sinkhorn", "riffle-diffusion"] = "default"
    """default: one token for each piece, a perceptron on its pixels, attention between matching edges. paper:
    the network of the paper. The others are baselines."""
    code: Literal["inline", "lehmer", "left-lehmer", "fisher-yates", "insertion"] | None = None
    """The code of the solution; unless given lehmer, but inline from 4×4 on for one evaluation."""
    objective: Literal["masked", "autoregressive"] | None = None
    """masked (unless given): the solution in one evaluation. autoregressive: one position after the other."""
    direction: Literal["slot-of-piece", "piece-of-slot"] | None = None
    """What the permutation lists: the slot of each scrambled piece, or the piece of each slot. The default
    preset takes the one in which a position of the code is about the piece at its token."""
    masks: Literal["all", "any"] | None = None
    """all: learn the solution from the pieces alone, for one evaluation. any: also from some of it."""
    encoder: str | None = None
    """convolution, or mlp, which +neighbours, +edges, +contrast and +means extend; mlp+neighbours unless
    given."""
    rounds: int | None = None
    """Rounds of attention between pieces whose edges match; twice the grid, at most 12, unless given."""
    hints: float | None = None
    """Weight of a loss by which the encoder learns the slot of each piece, 1 unless given; 0 for none."""
    augment: str | None = None
    """Changes to the pictures: none, or some of crop, flip and light joined by +."""
    width: int | None = None
    """Of the network."""
    depth: int | None = None
    """Of the network."""
    batch_size: int | None = None
    """Puzzles in a step."""
    optimizer: Literal["adamw", "muon"] | None = None
    """muon: the matrices of the blocks and rounds by Muon, the other weights by AdamW. Unless given that of
    the preset; muon for the default one."""
    lr: float | None = None
    """The highest learning rate; unless given that of the preset, or 0.005 with muon and 0.002 with adamw."""
    ema: float | None = None
    """Decay of the moving average of the weights; 0 for none."""
    seconds: Annotated[float | None, tyro.conf.arg(name="max-seconds", aliases=["--seconds"])] = None
    """Training time, 300 unless given; the learning rate falls to zero with it."""
    steps: int | None = None
    """Training steps, instead of a time."""
    seed: int = 0
    """Decides the first weights and the training."""
    label: str | None = None
    """The name of the run; the preset unless given."""
    watch_every: int = 1000
    """Steps between two evaluations on held-out puzzles, for the curve in metrics.jsonl."""
    out: Path = Path("runs/jigsaw")
    """The folder for the runs and jigsaw.jsonl."""

    def run(self) -> int:
        from factorank.experiments.jigsaw import Scoring, run
        from factorank.jigsaw import JigsawSetting, setting
        from factorank.jigsaw.training import OtherRunError

        chosen = setting(self.preset, **options_for(self, JigsawSetting))
        check_nfes(self.nfe, chosen)
        if self.code is not None and chosen.method != "factorank":
            raise FactorankError(f"--preset {self.preset} has no code; --code is for models of factorank")
        check_least("watch_every", self.watch_every)
        finished = (self.out / chosen.name / f"{self.split}.jsonl").exists()
        scoring = Scoring(self.split, self.nfe, self.unmask, most=self.most)
        try:
            about: dict[str, Any] = {"command": command_line(), "say": say, "watch_every": self.watch_every}
            rows = run([chosen], self.out, scoring, pictures=self.read(), **about)
        except OtherRunError as error:
            names = ", ".join(error.stored)
            stored = ((option_name(self, name) or name, value) for name, value in error.stored.items())
            options = ", ".join(f"{option} {value}" for option, value in stored)
            other = f"{error.folder} holds a run with another {names}"
            raise FactorankError(f"{other}; choose another --label or --out, or say {options}") from None
        if not rows:
            say(f"stopped; the same command goes on from {self.out / chosen.name}")
            return exit_code()
        if first_process():
            print("\n" + scores_table(rows))
            if not finished:
                print(f"\nwritten to {self.out}: {chosen.name}, jigsaw.jsonl")
            more = "--steps" if chosen.steps else "--max-seconds"
            print(f"\nTo train longer: more {more}, and another --label or --out")
        return 0


@dataclass(kw_only=True)
class JigsawEval(ScoringOptions):
    """Score a trained model on test puzzles.

    With --pictures and no RUN it is the model for photographs, on every picture of the folder.
    """

    model: Annotated[Path | None, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")] = None
    """The folder of a run, or of a model for photographs; one that comes with the package unless given."""
    grid: str | None = None
    """Pieces in a row, for a model that comes with the package; also rows and columns, such as 6x9, for
    photographs."""
    turned: tyro.conf.FlagCreatePairsOff[bool] = False
    """For photographs: turn the pieces by quarter turns."""
    missing: float = 0.0
    """For photographs: the share of the pieces that are taken away."""
    piece: int | None = None
    """For photographs: scale pictures so that a piece has this many pixels in a row."""
    scrambles: int = 3
    """For photographs: how often each is scrambled."""
    beam: int | None = None
    """For autoregressive models: how many solutions the search keeps; 8 unless given."""
    out: Path | None = None
    """A file for the rows."""

    def run(self) -> int:
        import torch

        from factorank.experiments.jigsaw import Scoring, score
        from factorank.experiments.record import provenance, write_results
        from factorank.jigsaw import PhotographModel, load_any, setting_of, shipped_models
        from factorank.jigsaw.model import pieces_of

        if self.model is None and self.grid is None:
            raise FactorankError("give the folder of a run, or --grid for a shipped model")
        grid = None if self.grid is None else parse_grid(self.grid)
        if self.pictures is not None and (self.model is None or PhotographModel.is_in(self.model)):
            from factorank.jigsaw.photographs.puzzles import Task

            task = Task(grid or (4, 4), self.turned, self.missing, self.piece)
            options: dict[str, Any] = {"weights": self.model, "scrambles": self.scrambles, "most": self.most}
            return eval_photographs(self.pictures, task, **options, out=self.out)
        if self.turned or self.missing or self.piece is not None:
            raise FactorankError("--turned, --missing and --piece are for the model for photographs")
        if grid is not None and grid[0] != grid[1]:
            raise FactorankError(f"models of one grid solve square puzzles, not --grid {self.grid}")
        side = None if grid is None else grid[0]
        model = load_any(side, self.model).to("cuda" if torch.cuda.is_available() else "cpu")
        chosen = setting_of(model, self.model or shipped_models()[pieces_of(model).grid])
        check_nfes(self.nfe, chosen)
        if self.beam is not None and chosen.method == "factorank" and chosen.objective == "masked":
            raise FactorankError("--beam is for autoregressive models and riffle diffusion, not masked ones")
        pictures = getattr(self.read(), self.split)
        about = {"split": self.split} | provenance(command_line())
        scoring = Scoring(self.split, self.nfe, self.unmask, self.beam, most=self.most)
        rows = [row | about for row in score(chosen, model, pictures, scoring)]
        print(scores_table(rows))
        if self.out is not None:
            write_results(self.out, rows)
            print(f"\nwritten to {self.out}")
        return 0


class Jigsaw:
    """Solve jigsaw puzzles: train a model on CIFAR-10, score it, or solve one made of your picture."""

    actions: ClassVar = {"train": JigsawTrain, "eval": JigsawEval, "solve": JigsawSolve}


def scores_table(rows: list[dict[str, Any]]) -> str:
    """Puzzles and pieces of one setting in percent, with intervals for the puzzles, a row for each nfe."""
    header = ["nfe", "solved", "95%", "pieces", "solved =", "pieces =", "a second"]
    lines = []
    for row in rows:
        interval = f"{percent(row['solved_low'])}–{percent(row['solved_high'])}"
        shares = [percent(row[key], 2) for key in ("pieces", "solved_identical", "pieces_identical")]
        speed = f"{row['per_second']:,.0f}"
        lines.append([row["nfe"], percent(row["solved"], 2), interval, *shares, speed])
    first = rows[0]
    words = [first["method"] if first["code"] is None else first["code"], first["objective"]]
    what = ", ".join([f"{first['grid']}×{first['grid']}", *filter(None, words)])
    note = f"{what}: {counted(first['puzzles'], 'puzzle')}, in percent"
    return f"{note}\nColumns with = count identical pieces as equal.\n\n{table(header, lines)}"
