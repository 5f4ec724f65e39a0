"""The settings of a jigsaw model and its training: the default, the paper's, and those of the baselines."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal, get_args

from factorank.errors import FactorankError
from factorank.jigsaw.puzzles import Direction, augmentations, check_grid
from factorank.models.model import Masks, Objective
from factorank.models.transformer import Norm
from factorank.training import TrainSettings
from factorank.training.settings import ENDLESS, Optimizer

Method = Literal["factorank", "gumbel-sinkhorn", "riffle-diffusion"]
METHODS: tuple[Method, ...] = get_args(Method)
NORMS: tuple[Norm, ...] = get_args(Norm)
OPTIMIZERS: tuple[Optimizer, ...] = get_args(Optimizer)


@dataclass(frozen=True)
class JigsawSetting:
    """A model and how it is trained."""

    label: str = "default"
    """What rows of results and folders call it."""
    grid: int = 3
    """Pieces in a row; the permutation has its square."""
    seed: int = 0
    method: Method = "factorank"
    """Our model, or a baseline, which has no ``code``, ``objective``, ``masks`` and ``aligned``."""
    code: str | None = None
    """None: lehmer, but inline from 4×4 on for masked models that learn one evaluation. Their slots are
    assigned to all pieces together, which mends errors of single values."""
    objective: Objective = "masked"
    masks: Masks | None = None
    """What a masked model learns: "all" for one evaluation, "any" for several. None: "all"."""
    direction: Direction | None = None
    """None: the one in which position i of the code is about piece i, slot-of-piece for all codes but
    insertion."""
    encoder: str = "mlp+neighbours"
    """"convolution", or "mlp", which "+neighbours", "+edges", "+contrast" and "+means" extend; see
    :mod:`factorank.jigsaw.encoder`."""
    rounds: int | None = None
    """Rounds of attention to matching edges ("neighbours") before the transformer. None: twice the grid, so
    that each piece is reached from every other, but at most 12."""
    aligned: bool = True
    """One token for a piece and its code value; otherwise pieces and code have separate tokens."""
    hints: float = 1.0
    """Weight of a loss by which the encoder learns the slot of each piece; 0 for none. See
    :class:`factorank.jigsaw.HintedModel`."""
    width: int = 128
    depth: int | None = None
    """Blocks of the transformer. None: 7, or fewer with neighbours, for 1.7 million parameters."""
    heads: int = 8
    dropout: float = 0.0
    norm: Norm = "before"
    """"after": norms, dropout and places as in the first transformers, a batch norm in the convolution."""
    augment: str = "crop+flip"
    ties: bool = True
    """Identical pieces have one right order in training; see :func:`factorank.jigsaw.puzzles.settle_ties`."""
    batch_size: int = 1024
    optimizer: Optimizer = "muon"
    """muon: for the matrices of the transformer's blocks and of the rounds; see :func:`factorank.train`."""
    lr: float | None = None
    """The highest learning rate. None: 5e-3 with Muon and 2e-3 with AdamW."""
    warmup: int = 500
    weight_decay: float = 0.01
    clip: float = 1.0
    """The largest norm of the gradient; 0 for no limit."""
    ema: float = 0.999
    """Decay of the moving average of the weights; 0 for none."""
    steps: int | None = None
    """Training steps; the learning rate falls to zero with them. None: as many as there is time for."""
    seconds: float | None = 300.0
    """Training time; the learning rate falls to zero with it unless ``steps`` is set."""
    model_options: dict[str, Any] = field(default_factory=dict)
    """Further arguments of a baseline's class, such as a temperature or a schedule."""

    def __post_init__(self) -> None:
        check_grid(self.grid)
        augmentations(self.augment)
        for names, allowed, right in CHECKS:
            for name in names:
                value = getattr(self, name)
                if value is not None and not right(value):
                    raise FactorankError(f"{{parameter}} is {allowed}, not {value!r}", parameter=name)
        if self.steps is None and self.seconds is None:
            raise FactorankError(
                "training ends after a number of steps or seconds; set one of them", parameter="steps"
            )
        if self.norm != "before" and self.method != "factorank":
            raise FactorankError(
                f"{{parameter}} is 'before' for {self.method}, not {self.norm!r}", parameter="norm"
            )
        if self.width % self.heads:
            raise FactorankError(
                f"{{parameter}} is a multiple of the {self.heads} attention heads, not {self.width}",
                parameter="width",
            )

    @property
    def name(self) -> str:
        """The name of the run's folder."""
        kind = f"{self.code_used}-{self.objective}" if self.method == "factorank" else self.method
        return f"{self.label}-{self.grid}x{self.grid}-{kind}-{self.seed}"

    @property
    def n(self) -> int:
        return self.grid**2

    @property
    def code_used(self) -> str:
        assigned = self.grid >= 4 and self.objective == "masked" and self.masks_used == "all"
        return self.code or ("inline" if assigned else "lehmer")

    @property
    def rounds_used(self) -> int:
        return min(2 * self.grid, 12) if self.rounds is None else self.rounds

    @property
    def depth_used(self) -> int:
        return self.depth or (7 - min(self.grid, 6) // 2 if "neighbours" in self.encoder else 7)

    @property
    def lr_used(self) -> float:
        return self.lr or (5e-3 if self.optimizer == "muon" else 2e-3)

    @property
    def masks_used(self) -> Masks:
        return self.masks or ("all" if self.objective == "masked" else "any")

    @property
    def direction_used(self) -> Direction:
        if self.method != "factorank":
            return "piece-of-slot"  # the baselines put the pieces into order
        return self.direction or ("piece-of-slot" if self.code_used == "insertion" else "slot-of-piece")

    @property
    def train_settings(self) -> TrainSettings:
        """The settings of the training; a run that its time ends has as many steps as it takes."""
        shared = ("batch_size", "optimizer", "warmup", "weight_decay", "seed")
        return TrainSettings(
            steps=self.steps or ENDLESS,
            schedule="cosine" if self.steps else "time",
            lr=self.lr_used,
            clip=self.clip or None,
            ema=self.ema or None,
            log_every=100,
            **{name: getattr(self, name) for name in shared},
        )

    def filled(self) -> "JigsawSetting":
        """The same setting without None where a value follows from the rest."""
        names = ("code", "masks", "direction", "rounds", "depth", "lr")
        return replace(self, **{name: getattr(self, f"{name}_used") for name in names})


EARLIER: dict[str, Any] = {"encoder": "convolution", "hints": 0.0, "optimizer": "adamw", "lr": 4e-4}
PRESETS: dict[str, dict[str, Any]] = {
    "default": {},
    "paper": EARLIER
    | {"direction": "piece-of-slot", "aligned": False, "masks": "any", "augment": "none"}
    | {"ties": False, "lr": 3e-4, "ema": 0.0, "dropout": 0.1, "norm": "after"},
    "gumbel-sinkhorn": EARLIER | {"method": "gumbel-sinkhorn"},
    "riffle-diffusion": EARLIER | {"method": "riffle-diffusion"},
}
"""What each preset changes in the default setting.

"paper" is the paper's: the network of Symmetric Diffusers, whose code tokens attend to piece tokens (all of
them or, autoregressive, those before), the paper's learning rate and batches, and no augmentation. The
baselines have the convolutions and the learning rate of Symmetric Diffusers, and our crops, flips and
averages.
"""


def setting(preset: str = "default", **changes: Any) -> JigsawSetting:
    """The setting of a preset with some changes; a change to None is no change.

    >>> setting("paper", grid=4, objective="autoregressive").name
    'paper-4x4-lehmer-autoregressive-0'
    """
    if preset not in PRESETS:
        raise FactorankError(
            f"there is no preset {preset!r}; there are {', '.join(PRESETS)}", parameter="preset"
        )
    names = {field.name for field in fields(JigsawSetting)}
    if unknown := [name for name in changes if name not in names]:
        raise FactorankError(f"a setting has no {unknown[0]!r}; it has {', '.join(sorted(names))}")
    changes = {name: value for name, value in changes.items() if value is not None}
    return JigsawSetting(**({"label": preset} | PRESETS[preset] | changes))


CHECKS: tuple[tuple[tuple[str, ...], str, Callable[[Any], bool]], ...] = (
    (("norm",), f"one of {', '.join(NORMS)}", NORMS.__contains__),
    (("method",), f"one of {', '.join(METHODS)}", METHODS.__contains__),
    (("optimizer",), f"one of {', '.join(OPTIMIZERS)}", OPTIMIZERS.__contains__),
    (("label",), "the name of a folder, without slashes", lambda value: value and not {*value} & {*"/\\"}),
    (("steps", "rounds", "width", "depth", "heads", "batch_size"), "1 or more", lambda value: value >= 1),
    (("seconds", "lr"), "above 0", lambda value: 0 < value < math.inf),
    (("warmup", "hints", "weight_decay", "clip"), "0 or more", lambda value: 0 <= value < math.inf),
    (("ema", "dropout"), "from 0 to below 1", lambda value: 0 <= value < 1),
    (("seed",), "from 0 to 2**63 - 1", lambda value: 0 <= value < 2**63),
)
"""The fields of a setting, and the values that they can have."""
