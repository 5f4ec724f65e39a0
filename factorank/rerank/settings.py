"""The settings of a ranker: what the network is, what it is told of the items, and how it is trained."""

from dataclasses import dataclass, replace
from typing import Any

from factorank.errors import FactorankError
from factorank.models.model import Masks, Objective


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
    told: str = "order"
    """What is known of the observed items: their "order", or their "ratings", which say more: one item that
    is rated low says that others are preferred. A ranker that was told ratings takes an order as well."""
    known: str = "sorted"
    """How the observed items stand in the reference: "sorted", best first, or "random", as in the paper."""
    width: int = 128
    depth: int = 4
    heads: int = 4
    dropout: float = 0.1
    features: tuple[str, ...] = ("mean", "factors")
    """What a token says of an item beside its embedding: "mean" (mean relevance and log count of the training
    ratings), "factors" (of their covariance), "taste" (what they say of it, given what is observed; where the
    observed items are sorted), "given" (the columns of the ratings' item table)."""
    rank: int = 16
    """How many factors, and dimensions of a taste."""
    item_dropout: float = 0.1
    """In training, the share of the items that are known by their features only."""
    embedding_std: float = 0.05
    """Of the first embeddings."""
    batch_size: int = 1024
    lr: float = 1e-3
    weight_decay: float = 0.1
    ema: float | None = 0.999
    steps: int = 20_000
    schedule: str = "cosine"
    """Of the learning rate: "cosine" over the steps, "time" over max_seconds, or "constant"."""
    patience: int | None = None
    """Of the fifty held-out scores, how many may pass without a better one."""
    held_out: int = 2048
    """How many lists of validation users say when training is at its best."""
    precision: str = "fp32"
    seed: int = 0
    label: str = ""
    """What tells a run from others of the same objective, code, layout and n."""

    @property
    def name(self) -> str:
        """A name for the folder of a run, of what most often differs."""
        parts = [self.objective, self.code, self.layout, f"n{self.n}", f"seed{self.seed}"]
        parts += ["ratings"] if self.told == "ratings" else []
        parts += [self.label] if self.label else []
        return "-".join(parts)


PRESETS = {
    "default": Setting(),
    "paper": Setting(
        layout="prefix",
        masks="any",
        known="random",
        shortest=None,
        width=256,
        depth=10,
        heads=8,
        dropout=0.05,
        features=(),
        item_dropout=0.0,
        embedding_std=0.5,
        lr=3e-4,
        weight_decay=0.01,
    ),
    "small": Setting(n=20, width=64, depth=2, batch_size=256, lr=2e-3, steps=1500, held_out=512),
}
"""default: what is described above. paper: 2n tokens and the paper's network. small: minutes on one core."""


def preset(name: str, **changes: Any) -> Setting:
    """A preset, with what is not None changed.

    >>> preset("paper", n=20).layout
    'prefix'
    """
    if name not in PRESETS:
        raise FactorankError(f"there is no preset {name!r}; there are {', '.join(PRESETS)}")
    setting = replace(PRESETS[name], **{key: value for key, value in changes.items() if value is not None})
    return setting if setting.objective == "masked" else replace(setting, masks="any")
