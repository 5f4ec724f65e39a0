"""Learning the uniform law on cyclic permutations (the paper's second experiment).

All (n-1)! permutations of a single cycle are listed, a random 20% of them is what the models see, and every
code is trained with both objectives. Ten thousand samples at each number of network evaluations (NFE) then
tell how many are different, valid, cyclic, and seen in training; the likelihoods of all cyclic permutations
tell how far the model is from the target, in bits, and how uniform it is.
"""

import json
import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from factorank import metrics
from factorank.data.cyclic import all_cyclic, cyclic_split
from factorank.errors import FactorankError
from factorank.models import PermutationModel
from factorank.models.model import Objective
from factorank.permutations import is_cyclic, is_permutation
from factorank.training import TrainResult, train
from factorank.training.settings import Precision

CODES = ("inline", "lehmer", "left-lehmer", "fisher-yates", "insertion")
OBJECTIVES: tuple[Objective, ...] = ("masked", "autoregressive")
UNMASK = ("random", "left-to-right", "right-to-left")
REVEALED = dict.fromkeys(CODES, "left-to-right") | dict.fromkeys(
    ("left-lehmer", "insertion"), "right-to-left"
)
"""The end from which the values of a code say where an item stands by themselves.

The last value of a left-Lehmer code is the last item counted from above; an insertion code is, up to
:math:`V_i = i - L_i`, the left-Lehmer code of the inverse. Read from its end, the left-Lehmer code of an
order is the Lehmer code of the same permutation with items and places renumbered from the end, which is
cyclic if the order is: from their own ends the three codes have to learn the same law.
"""


@dataclass(frozen=True)
class Preset:
    """The size of the experiment."""

    n: int
    width: int
    depth: int
    heads: int
    dropout: float
    batch_size: int
    lr: float
    steps: int
    samples: int = 10_000
    share: float = 0.2
    """Of all cyclic permutations, how many are trained on."""
    held_out: float = 0.1
    """Of those, how many only say when to stop: autoregressive models learn the rest by heart."""
    held_out_every: int | None = None
    """Steps between two looks at them; a fiftieth of all unless given."""
    patience: int | None = None
    """How many of those looks may pass without a better one."""
    precision: Precision = "fp32"
    weight_decay: float = 0.01


PRESETS = {
    "laptop": Preset(
        n=8,
        width=32,
        depth=2,
        heads=2,
        dropout=0.0,
        batch_size=128,
        lr=5e-3,
        steps=800,
        samples=2000,
        patience=5,
    ),
    "paper": Preset(
        n=10,
        width=128,
        depth=8,
        heads=8,
        dropout=0.05,
        batch_size=1024,
        lr=3e-4,
        steps=100_000,
        held_out_every=250,
        patience=10,
    ),
}


@dataclass(frozen=True)
class Law:
    """One law to learn: a code, an objective and a seed."""

    code: str
    objective: Objective
    seed: int = 0

    @property
    def name(self) -> str:
        return f"{self.code}-{self.objective}-{self.seed}"


def laws(codes: Sequence[str], objectives: Sequence[Objective], seeds: int) -> list[Law]:
    """Every combination once; the seed changes last."""
    if seeds < 1 or not codes or not objectives:
        raise FactorankError(
            f"there is at least 1 code, objective and seed, not {len(codes)}, {len(objectives)} and {seeds}"
        )
    for given, allowed in ((codes, CODES), (objectives, OBJECTIVES)):
        for name in given:
            if name not in allowed:
                raise FactorankError(
                    f"there is no {name!r} in this experiment; there are {', '.join(allowed)}"
                )
    codes, objectives = list(dict.fromkeys(codes)), list(dict.fromkeys(objectives))
    return [Law(code, objective, seed) for seed in range(seeds) for code in codes for objective in objectives]


def preset(name: str, **changes: Any) -> Preset:
    """A preset, with what is not None changed."""
    if name not in PRESETS:
        raise FactorankError(f"there is no preset {name!r}; there are {', '.join(PRESETS)}")
    return replace(PRESETS[name], **{key: value for key, value in changes.items() if value is not None})


def learn(
    law: Law, size: Preset, out: Path | None = None, **options: Any
) -> tuple[PermutationModel, TrainResult]:
    """Train the law's model on its share of the cyclic permutations; ``options`` go to ``train``."""
    seen, _ = cyclic_split(size.n, size.share, law.seed)
    stops_early = law.objective == "autoregressive"
    torch.manual_seed(law.seed)
    model = PermutationModel(
        size.n,
        law.code,
        law.objective,
        size.width,
        size.depth,
        size.heads,
        size.dropout,
    )
    result = train(
        model,
        seen,
        steps=size.steps,
        batch_size=size.batch_size,
        lr=size.lr,
        held_out=size.held_out if stops_early else None,
        held_out_every=size.held_out_every if stops_early else None,
        patience=size.patience if stops_early else None,
        precision=size.precision,
        weight_decay=size.weight_decay,
        seed=law.seed,
        out=None if out is None else out / law.name,
        **options,
    )
    return model, result


def score(
    law: Law, size: Preset, model: PermutationModel, nfes: Sequence[int] = ()
) -> Iterator[dict[str, Any]]:
    """Sample and score the trained model: one flat row for each way of unmasking and each NFE.

    ``nfes`` are for masked models, all from 1 to n unless given; autoregressive ones have n.
    """
    seen, _ = cyclic_split(size.n, size.share, law.seed)
    target = all_cyclic(size.n)
    device = next(model.parameters()).device
    expected = metrics.expected_distinct(size.samples, len(target)) / size.samples
    ways = UNMASK if law.objective == "masked" else ("left-to-right",)
    masked_nfes = sorted(set(nfes)) or range(1, size.n + 1)
    for unmask in ways:
        for nfe in masked_nfes if law.objective == "masked" else (size.n,):
            started = time.perf_counter()
            distribution = model.distribution(nfe=nfe, unmask=unmask)
            generator = torch.Generator(device).manual_seed(law.seed)
            with narrow(size, device):
                samples = distribution.sample((size.samples,), generator=generator).cpu()
            row: dict[str, Any] = {
                "experiment": "cyclic",
                "n": size.n,
                "code": law.code,
                "objective": law.objective,
                "unmask": unmask,
                "nfe": nfe,
                "seed": law.seed,
                "samples": size.samples,
                **{key: count / size.samples for key, count in metrics.distinct(samples).items()},
                "unique_expected": expected,
                "cyclic": metrics.cyclic_share(samples),
                "in_train": in_train(samples, seen),
            }
            with narrow(size, device):
                row |= (
                    _likelihoods(distribution, target.to(device)) if distribution.exact else _NO_LIKELIHOODS
                )
            yield row | {"seconds": round(time.perf_counter() - started, 2)}


def narrow(size: Preset, device: torch.device) -> torch.autocast:
    """The precision that the law was trained in: it is that law which is sampled and scored."""
    return torch.autocast(device.type, torch.bfloat16, enabled=size.precision == "bf16")


def own_way(row: dict[str, Any]) -> bool:
    """Whether a row of results tells of the positions being revealed from the end that suits the code."""
    one_way = row["objective"] == "autoregressive"
    return bool(row["unmask"] == ("left-to-right" if one_way else REVEALED[row["code"]]))


def watcher(law: Law, size: Preset, samples: int = 2000) -> Callable[[PermutationModel], dict[str, float]]:
    """For ``train(watch=…)``: how many samples at the highest NFE are cyclic, and how many of them were seen.

    Together over the steps they tell learning from learning by heart.
    """
    seen, _ = cyclic_split(size.n, size.share, law.seed)

    def watch(model: PermutationModel) -> dict[str, float]:
        device = next(model.parameters()).device
        generator = torch.Generator(device).manual_seed(law.seed)
        with narrow(size, device):
            way = None if model.objective == "autoregressive" else REVEALED[law.code]
            drawn = model.distribution(unmask=way).sample((samples,), generator=generator).cpu()
        return {"cyclic": metrics.cyclic_share(drawn), "in_train": in_train(drawn, seen)}

    return watch


def curve(law: Law, size: Preset, out: Path) -> list[dict[str, Any]]:
    """What :func:`watcher` saw of a run in ``out``: a flat row for each time, with the held-out bits then."""
    found: dict[int, dict[str, Any]] = {}
    for line in (out / law.name / "metrics.jsonl").read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        if "cyclic" in row or "held_out_bits" in row:
            found.setdefault(row["step"], {}).update(row)
    kept = ("cyclic", "in_train", "held_out_bits")
    about = {"experiment": "cyclic-curve", "n": size.n, **asdict(law)}
    return [
        about | {"step": step} | {key: row.get(key) for key in kept}
        for step, row in sorted(found.items())
        if "cyclic" in row
    ]


def in_train(samples: Tensor, seen: Tensor) -> float:
    """Of the samples ``(samples, n)`` that are cyclic, how many are rows of ``seen``; 0 if none is cyclic.

    >>> in_train(torch.tensor([[1, 2, 0], [2, 0, 1], [0, 1, 2], [0, 0, 0]]), torch.tensor([[1, 2, 0]]))
    0.5
    """
    valid = samples[is_permutation(samples)]
    return metrics.share_among(valid[is_cyclic(valid, check=False)], seen)


_NO_LIKELIHOODS = {"bits": None, "kl": None, "spread": None, "on_cyclic": None}
"""A random partition is a mixture over partitions: its likelihood is not one evaluation."""


def _likelihoods(distribution: Any, target: Tensor) -> dict[str, float]:
    """Over all cyclic permutations: mean code length, divergence of the uniform law on them from the model,
    standard deviation of the code length (0 for a uniform model), all in bits, and the mass they get."""
    with torch.no_grad():
        bits = -distribution.log_prob(target).double() / math.log(2)
    uniform = math.log2(len(target))
    return {
        "bits": bits.mean().item(),
        "kl": bits.mean().item() - uniform,
        "spread": bits.std(correction=0).item(),
        "on_cyclic": torch.exp2(-bits).sum().item(),
    }


def describe(size: Preset) -> dict[str, Any]:
    """The settings that belong in each row of the results."""
    kept = (
        "width",
        "depth",
        "heads",
        "dropout",
        "batch_size",
        "lr",
        "steps",
        "precision",
        "share",
        "weight_decay",
    )
    return {key: value for key, value in asdict(size).items() if key in kept}
