"""The settings of a ranker: its network, what it reads of the items, and how it is trained."""

from dataclasses import dataclass, replace
from typing import Any

from factorank.data.ratings import Ratings
from factorank.errors import FactorankError
from factorank.models.model import Masks, Objective
from factorank.training import TrainSettings
from factorank.training.settings import Precision, Schedule


@dataclass(frozen=True)
class Setting:
    """A ranker's network and training. The defaults were chosen on validation users of MovieLens-1M."""

    n: int = 50
    """The longest list."""
    shortest: int | None = 10
    """Lists of this length to n are trained on together; None for lists of n only."""
    objective: Objective = "masked"
    code: str = "insertion"
    layout: str = "aligned"
    """"aligned": one token for an item and its code value; "prefix": 2n tokens, as in the paper."""
    masks: Masks = "suffix"
    """Which positions a masked model learns to predict; see :class:`factorank.PermutationModel`."""
    told: str | None = None
    """What the network reads of the observed items: their "order", or their "ratings". Ratings carry more
    information: a low rating of one item means that others are preferred. A ranker that reads ratings takes
    an order as well. None: what predicts validation users better."""
    reference: str = "sorted"
    """How the observed items stand in the reference: "sorted", best first, or "random", as in the paper."""
    width: int = 128
    depth: int = 4
    heads: int = 4
    dropout: float = 0.1
    features: tuple[str, ...] | None = None
    """What a token holds of an item beside its embedding: "mean" (mean relevance and log count of the
    training ratings), "factors" (of their covariance), "taste" (the rating that the observed items predict;
    for a sorted reference), "given" (the columns of the ratings' item table). None: mean and factors, "given"
    where there is an item table, taste where it predicts validation users better."""
    rank: int = 16
    """How many factors, and dimensions of a taste."""
    item_dropout: float = 0.1
    """In training, the share of the items whose embedding is left out, so that their features must do."""
    embedding_std: float = 0.05
    """Of the first embeddings."""
    batch_size: int = 1024
    lr: float = 1e-3
    weight_decay: float = 0.1
    ema: float | None = 0.999
    steps: int = 20_000
    schedule: Schedule = "cosine"
    """Of the learning rate: "cosine" over the steps, "time" over max_seconds, or "constant"."""
    patience: int | None = None
    """Of the fifty held-out scores, how many may pass without a better one."""
    held_out: int = 2048
    """How many lists of validation users decide when training is at its best."""
    precision: Precision = "fp32"
    seed: int = 0
    label: str = ""
    """Distinguishes a run from others of the same objective, code, layout and n."""

    @property
    def name(self) -> str:
        """A name for the folder of a run, of the settings that differ most often."""
        parts = [self.objective, self.code, self.layout, f"n{self.n}", f"seed{self.seed}"]
        parts += ["ratings" if self.reads_ratings else "", self.label]
        return "-".join(filter(None, parts))

    @property
    def sorts_observed(self) -> bool:
        """Whether observed items stand sorted in the reference, and their tokens hold their ranks."""
        return self.reference == "sorted" and self.code == "insertion"

    @property
    def reads_ratings(self) -> bool:
        """Whether the network reads the ratings of observed items."""
        return self.told == "ratings"

    @property
    def shortest_list(self) -> int:
        """The length of the shortest lists that are trained on."""
        return self.n if self.shortest is None else self.shortest

    @property
    def train_settings(self) -> TrainSettings:
        """The settings of the training."""
        names = ("steps", "batch_size", "lr", "weight_decay", "ema", "schedule", "patience", "seed")
        return TrainSettings(precision=self.precision, **{name: getattr(self, name) for name in names})

    def fitted_to(self, ratings: Ratings) -> "Setting":
        """The setting with lists no longer than the most active user's, and checked."""
        longest = int(ratings.lengths.max()) if len(ratings) else 0
        if longest < 2:
            raise FactorankError("there is nothing to learn from: no user has rated two items")
        n = min(self.n, longest)
        shortest = None if self.shortest is None else min(self.shortest, n)
        if shortest not in (None, n) and (self.layout != "aligned" or self.code != "insertion"):
            raise FactorankError(
                "lists of different lengths need layout 'aligned' and the code 'insertion', not"
                f" {self.layout!r} and {self.code!r}; set shortest=None",
                parameter="shortest",
            )
        for name, allowed in (("reference", ("sorted", "random")), ("told", ("order", "ratings", None))):
            if (value := getattr(self, name)) not in allowed:
                choice = " or ".join(map(repr, filter(None, allowed)))
                raise FactorankError(f"{{parameter}} is {choice}, not {value!r}", parameter=name)
        for name, value in (("told", "ratings"), ("features", "taste")):
            if value in (self.told, *(self.features or ())) and not self.sorts_observed:
                raise FactorankError(
                    f"{{parameter={value!r}}} is for rankers of the code 'insertion' and reference='sorted',"
                    f" not {self.code!r} and {self.reference!r}; the preset 'paper' is no such ranker",
                    parameter=name,
                )
        return replace(self, n=n, shortest=shortest)


PRESETS = {
    "default": Setting(),
    "paper": Setting(
        layout="prefix",
        masks="any",
        reference="random",
        shortest=None,
        width=256,
        depth=10,
        heads=8,
        dropout=0.05,
        told="order",
        features=(),
        item_dropout=0.0,
        embedding_std=0.5,
        lr=3e-4,
        weight_decay=0.01,
    ),
    "small": Setting(width=64, depth=2, batch_size=256, lr=2e-3, steps=2000, held_out=512),
}
"""default: as described above. paper: 2n tokens and the paper's network. small: minutes on a CPU."""


def preset(name: str, **changes: Any) -> Setting:
    """A preset, with the changes that are not None.

    >>> preset("paper", n=20).layout
    'prefix'
    """
    if name not in PRESETS:
        raise FactorankError(
            f"there is no preset {name!r}; there are {', '.join(PRESETS)}", parameter="preset"
        )
    setting = replace(PRESETS[name], **{key: value for key, value in changes.items() if value is not None})
    return setting if setting.objective == "masked" else replace(setting, masks="any")
