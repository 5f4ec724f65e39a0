"""The settings of the jigsaw experiment: the default model, the paper's, and what can be changed in them."""

import json
import math
from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Literal, get_args

import torch

from factorank.baselines import GumbelSinkhorn, RiffleDiffusion
from factorank.baselines.ordering import OrderingModel
from factorank.errors import FactorankError
from factorank.jigsaw.encoder import PieceConvolution, PieceEncoder, Pieces
from factorank.jigsaw.hints import HintedModel
from factorank.jigsaw.puzzles import SIDE, Direction, augmentations, check_grid
from factorank.models import PermutationModel
from factorank.models.model import Masks, Objective

Method = Literal["factorank", "gumbel-sinkhorn", "riffle-diffusion"]
METHODS: tuple[Method, ...] = get_args(Method)
Optimizer = Literal["adamw", "muon"]
OPTIMIZERS: tuple[Optimizer, ...] = get_args(Optimizer)


CHECKS: tuple[tuple[tuple[str, ...], str, Callable[[Any], bool]], ...] = (
    (("steps", "rounds", "width", "depth", "heads", "batch_size"), "1 or more", lambda value: value >= 1),
    (("seconds", "lr"), "above 0", lambda value: 0 < value < math.inf),
    (("warmup", "hints", "weight_decay", "clip"), "0 or more", lambda value: 0 <= value < math.inf),
    (("ema", "dropout"), "from 0 to below 1", lambda value: 0 <= value < 1),
    (("seed",), "from 0 to 2**63 - 1", lambda value: 0 <= value < 2**63),
)
"""What the numbers of a setting can be."""


@dataclass(frozen=True)
class Setting:
    """A model and how it is trained."""

    label: str = "default"
    """What rows of results and folders call it."""
    grid: int = 3
    """Pieces in a row; the permutation has its square."""
    seed: int = 0
    method: Method = "factorank"
    """Ours, or a baseline, for which ``code``, ``objective``, ``masks`` and ``aligned`` mean nothing."""
    code: str | None = None
    """Unless given lehmer, but inline from 4×4 on for masked models that learn one evaluation: the best slots
    of all pieces together, found by assignment, mend what single values get wrong."""
    objective: Objective = "masked"
    masks: Masks | None = None
    """What a masked model learns to predict: "all" (unless given) for one evaluation, "any" for several."""
    direction: Direction | None = None
    """Unless given the one in which position i of the code speaks of piece i: slot-of-piece for all codes but
    insertion."""
    encoder: str = "mlp+neighbours"
    """"convolution", or "mlp", which "+neighbours", "+edges", "+contrast" and "+means" extend; see
    :mod:`factorank.jigsaw.encoder`."""
    rounds: int | None = None
    """How many times pieces listen to their "neighbours" before the transformer. Unless given twice the grid,
    so that each hears of every other, but at most 12."""
    aligned: bool = True
    """One token for a piece and its code value; otherwise pieces and code are tokens apart."""
    hints: float = 1.0
    """Weight of a loss that tells the encoder the slot of each piece; 0 for none. See
    :mod:`factorank.jigsaw.hints`."""
    width: int = 128
    depth: int | None = None
    """Blocks of the transformer; unless given 7, or with neighbours fewer, for 1.7 million parameters."""
    heads: int = 8
    dropout: float = 0.0
    augment: str = "crop+flip"
    ties: bool = True
    """Identical pieces have one right order in training; see :class:`factorank.jigsaw.puzzles.Puzzles`."""
    batch_size: int = 1024
    optimizer: Optimizer = "muon"
    """muon: for the matrices of the transformer's blocks and of the rounds; see :func:`factorank.train`."""
    lr: float | None = None
    """The highest learning rate; unless given 5e-3 with Muon and 2e-3 with AdamW."""
    warmup: int = 500
    weight_decay: float = 0.01
    clip: float = 1.0
    """The largest norm of the gradient; 0 for no limit."""
    ema: float = 0.999
    """Decay of the moving average of the weights; 0 for none."""
    steps: int | None = None
    """Training steps; the learning rate falls to zero with them. None: as many as there is time for."""
    seconds: float | None = 300.0
    """Training time; the learning rate falls to zero with it unless ``steps`` are given."""

    model_options: dict[str, Any] = field(default_factory=dict)
    """Further arguments of a baseline's class, such as a temperature or a layout."""

    def __post_init__(self) -> None:
        check_grid(self.grid)
        if self.method not in METHODS:
            raise FactorankError(f"the method is one of {', '.join(METHODS)}, not {self.method!r}")
        if self.optimizer not in OPTIMIZERS:
            raise FactorankError(f"the optimizer is one of {', '.join(OPTIMIZERS)}, not {self.optimizer!r}")
        augmentations(self.augment)
        if self.steps is None and self.seconds is None:
            raise FactorankError("training ends after so many steps or so many seconds; give one of them")
        if not self.label or not set(self.label).isdisjoint("/\\"):
            raise FactorankError(f"a label names a folder, without slashes, not {self.label!r}")
        for names, what, right in CHECKS:
            for name in names:
                value = getattr(self, name)
                if value is not None and not right(value):
                    raise FactorankError(f"{name} is {what}, not {value!r}")
        if self.width % self.heads:
            raise FactorankError(f"width is a multiple of the {self.heads} attention heads, not {self.width}")

    @property
    def name(self) -> str:
        """The name of its folder."""
        what = f"{self.code_used}-{self.objective}" if self.method == "factorank" else self.method
        return f"{self.label}-{self.grid}x{self.grid}-{what}-{self.seed}"

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
        if self.depth is not None:
            return self.depth
        return 7 - min(self.grid, 6) // 2 if "neighbours" in self.encoder else 7

    @property
    def lr_used(self) -> float:
        if self.lr is not None:
            return self.lr
        return 5e-3 if self.optimizer == "muon" else 2e-3

    @property
    def masks_used(self) -> Masks:
        return self.masks or ("all" if self.objective == "masked" else "any")

    @property
    def direction_used(self) -> Direction:
        if self.method != "factorank":
            return "piece-of-slot"  # the baselines put the pieces into order
        return self.direction or ("piece-of-slot" if self.code_used == "insertion" else "slot-of-piece")


THEIRS: dict[str, Any] = {"encoder": "convolution", "hints": 0.0, "optimizer": "adamw", "lr": 4e-4}
PRESETS: dict[str, dict[str, Any]] = {
    "default": {},
    "paper": {
        "direction": "piece-of-slot",
        "encoder": "convolution",
        "aligned": False,
        "hints": 0.0,
        "masks": "any",
        "augment": "none",
        "ties": False,
        "optimizer": "adamw",
        "lr": 3e-4,
        "ema": 0.0,
    },
    "gumbel-sinkhorn": {"method": "gumbel-sinkhorn"} | THEIRS,
    "riffle-diffusion": {"method": "riffle-diffusion"} | THEIRS,
}
"""Ours; the paper's: the network of Symmetric Diffusers, whose code tokens attend to piece tokens, all of
them or, autoregressive, those before, its learning rate, and nothing done to the pictures; and the baselines
with the convolutions and the learning rate of Symmetric Diffusers, and our crops, flips and averages."""


def setting(preset: str = "default", **changes: Any) -> Setting:
    """A preset, with what is not None changed.

    >>> setting("paper", grid=4, objective="autoregressive").name
    'paper-4x4-lehmer-autoregressive-0'
    """
    if preset not in PRESETS:
        raise FactorankError(f"there is no preset {preset!r}; there are {', '.join(PRESETS)}")
    known = {one.name for one in fields(Setting)}
    for name in changes:
        if name not in known:
            raise FactorankError(f"a setting has no {name!r}; it has {', '.join(sorted(known))}")
    given = {key: value for key, value in changes.items() if value is not None}
    return Setting(**({"label": preset} | PRESETS[preset] | given))


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
"""What is changed in the default setting, trained by AdamW, to see what it brings, by label."""


def ablations(**common: Any) -> list[Setting]:
    """The default setting by AdamW with one thing changed at a time; ``common`` holds for all."""
    base = {"optimizer": "adamw"}
    return [setting(**(base | {"label": label} | change | common)) for label, change in ABLATIONS.items()]


def every_code(**common: Any) -> list[Setting]:
    """All codes with both objectives, for the paper's comparison."""
    names = ("inline", "lehmer", "left-lehmer", "fisher-yates", "insertion")
    both: tuple[Objective, ...] = ("masked", "autoregressive")
    return [
        setting(**({"label": "codes", "code": code, "objective": one} | common))
        for code in names
        for one in both
    ]


def build(chosen: Setting, side: int = SIDE) -> PermutationModel | OrderingModel:
    """The untrained model of a setting, for pictures of that side; the seed decides its first weights."""
    torch.manual_seed(chosen.seed)
    kind, *features = chosen.encoder.split("+")
    if kind not in ("mlp", "convolution") or (features and kind != "mlp"):
        raise FactorankError(
            f"the encoder is 'convolution' or 'mlp' with features joined by +, not {chosen.encoder!r}"
        )
    ours = chosen.method == "factorank"
    options: dict[str, Any] = {
        "aligned": chosen.aligned or not ours,
        "direction": chosen.direction_used,
        "slots": chosen.code_used if ours and chosen.hints > 0 else None,
    }
    shape = (chosen.grid, check_grid(chosen.grid, side), chosen.width)
    context: Pieces
    if kind == "mlp":
        context = PieceEncoder(*shape, features=tuple(features), rounds=chosen.rounds_used, **options)
    else:
        context = PieceConvolution(*shape, **options)
    if not ours:
        baseline = GumbelSinkhorn if chosen.method == "gumbel-sinkhorn" else RiffleDiffusion
        size = (chosen.width, chosen.depth_used, chosen.heads, chosen.dropout)
        return baseline(chosen.n, context, *size, **chosen.model_options)
    model = (HintedModel if chosen.hints > 0 else PermutationModel)(
        chosen.n,
        chosen.code_used,
        chosen.objective,
        chosen.width,
        chosen.depth_used,
        chosen.heads,
        chosen.dropout,
        context=context,
        masks=chosen.masks_used,
    )
    model.padded = False  # every puzzle has all its pieces
    if isinstance(model, HintedModel):
        model.hints = chosen.hints
    return model


EARLIER = {"optimizer": "adamw"}
"""What runs whose ``setting.json`` does not say it were trained with."""


def setting_of(model: PermutationModel | OrderingModel, run: str | Path | None = None) -> Setting:
    """The setting of a trained model: what its run's folder says, else what the model itself tells."""
    path = None if run is None else Path(run) / "setting.json"
    if path is not None and path.is_file():
        known = {one.name for one in fields(Setting)}
        told = EARLIER | json.loads(path.read_bytes())
        return Setting(**{name: value for name, value in told.items() if name in known})
    if not isinstance(model, PermutationModel):
        raise FactorankError(f"{run} has no setting.json, which says how its baseline was trained")
    context = model.context
    if not isinstance(context, Pieces):
        raise FactorankError("this model does not solve jigsaw puzzles: its context is not of pieces")
    features = ["mlp", *context.features] if isinstance(context, PieceEncoder) else ["convolution"]
    return Setting(
        label="shipped",
        grid=context.grid,
        code=model.code.name,
        objective=model.objective,
        masks=model.masks,
        direction=context.direction,
        encoder="+".join(features),
        rounds=getattr(context, "rounds", 1),
        hints=float(context.slots is not None),
        aligned=context.aligned,
        width=model.width,
        depth=model.depth,
        heads=model.heads,
        dropout=model.dropout,
    )


def filled(chosen: Setting) -> Setting:
    """The setting with everything said that follows from the rest of it."""
    names = ("code", "masks", "direction", "rounds", "depth", "lr")
    return replace(chosen, **{name: getattr(chosen, f"{name}_used") for name in names})
