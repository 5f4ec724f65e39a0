"""Learning the uniform law on cyclic permutations (the paper's second experiment).

All (n-1)! permutations of a single cycle are listed, and a random 20% of them is the training set. A model is
trained for every code with both objectives. It is sampled ten thousand times at each number of network
evaluations (NFE), which shows how many samples are different, valid, cyclic, and in the training set. The
likelihoods of all cyclic permutations show how far the model is from the target, in bits, and how uniform it
is.

Read top to bottom: the laws and sizes, training (:func:`learn`), sampling and likelihoods (:func:`score`),
and the curve of a run (:func:`watcher`, :func:`curve`), which separates learning from memorising.
"""

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
from factorank.files import read_history
from factorank.models import PermutationLaw, PermutationModel
from factorank.models.model import Objective, Reveal
from factorank.permutations import is_cyclic, is_permutation
from factorank.training import TrainResult, train
from factorank.training.settings import Precision

CODES = ("inline", "lehmer", "left-lehmer", "fisher-yates", "insertion")
OBJECTIVES: tuple[Objective, ...] = ("masked", "autoregressive")
UNMASK = ("random", "left-to-right", "right-to-left")
FROM_THE_END = ("left-lehmer", "insertion")
"""The codes whose last values determine items or places by themselves; of the others the first values do.

The last value of a left-Lehmer code is the last item counted from above. An insertion code is, up to
:math:`V_i = i - L_i`, the left-Lehmer code of the inverse. Read from its end, the left-Lehmer code of an
order is the Lehmer code of the same permutation with items and places renumbered from the end, which is
cyclic if the order is. So from their own ends the three codes have the same law to learn.
"""


@dataclass(frozen=True)
class Law:
    """One law to learn: a code, an objective and a seed."""

    code: str
    objective: Objective
    seed: int = 0
    reveal: Reveal = "left-to-right"
    """The end from which an autoregressive model predicts the code."""

    @property
    def name(self) -> str:
        end = "" if self.reveal == "left-to-right" else f"-{self.reveal}"
        return f"{self.code}-{self.objective}{end}-{self.seed}"


def laws(
    codes: Sequence[str], objectives: Sequence[Objective], seeds: int, *, own_end: bool = True
) -> list[Law]:
    """Every combination once; the seed changes last.

    Autoregressive models predict a code from its own end, or all from the left.
    """
    if seeds < 1 or not codes or not objectives:
        raise FactorankError(
            f"there is at least 1 code, objective and seed, not {len(codes)}, {len(objectives)} and {seeds}"
        )
    for parameter, names, allowed in (("codes", codes, CODES), ("objectives", objectives, OBJECTIVES)):
        if unknown := [name for name in names if name not in allowed]:
            message = f"there is no {unknown[0]!r} in this experiment; {{parameter}} are {', '.join(allowed)}"
            raise FactorankError(message, parameter=parameter)
    codes, objectives = list(dict.fromkeys(codes)), list(dict.fromkeys(objectives))
    listed = [
        Law(code, objective, seed) for seed in range(seeds) for code in codes for objective in objectives
    ]
    return [
        replace(law, reveal="right-to-left")
        if own_end and law.objective == "autoregressive" and law.code in FROM_THE_END
        else law
        for law in listed
    ]


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
    """The share of all cyclic permutations that is trained on."""
    held_out: float = 0.1
    """The share of the training set that only says when to stop: autoregressive models memorise the rest."""
    held_out_every: int | None = None
    """Steps between two evaluations on it; a fiftieth of all steps unless given."""
    patience: int | None = None
    """How many of these evaluations may pass without a better one."""
    precision: Precision = "fp32"
    weight_decay: float = 0.01


PRESETS = {  # n, width, depth, heads, dropout, batch size, learning rate, steps
    "laptop": Preset(8, 32, 2, 2, 0.0, 128, 5e-3, 800, samples=2000, patience=5),
    "paper": Preset(10, 128, 8, 8, 0.05, 1024, 3e-4, 100_000, held_out_every=250, patience=10),
}


def preset(name: str, **changes: Any) -> Preset:
    """A preset with some changes; a change to None is no change."""
    if name not in PRESETS:
        raise FactorankError(
            f"there is no preset {name!r}; there are {', '.join(PRESETS)}", parameter="preset"
        )
    return replace(PRESETS[name], **{key: value for key, value in changes.items() if value is not None})


def learn(
    law: Law, size: Preset, out: Path | None = None, **options: Any
) -> tuple[PermutationModel, TrainResult]:
    """Train the law's model on its share of the cyclic permutations; ``options`` go to ``train``."""
    torch.manual_seed(law.seed)
    shape = (size.width, size.depth, size.heads, size.dropout)
    model = PermutationModel(size.n, law.code, law.objective, *shape, reveal=law.reveal)
    early = {"held_out": size.held_out, "held_out_every": size.held_out_every, "patience": size.patience}
    if law.objective == "autoregressive":
        options = early | options
    result = train(
        model,
        training_orders(law, size),
        steps=size.steps,
        batch_size=size.batch_size,
        lr=size.lr,
        precision=size.precision,
        weight_decay=size.weight_decay,
        seed=law.seed,
        out=None if out is None else out / law.name,
        **options,
    )
    return model, result


def training_orders(law: Law, size: Preset) -> Tensor:
    """The cyclic permutations that the law is trained on, chosen by its seed."""
    return cyclic_split(size.n, size.share, law.seed)[0]


def score(
    law: Law, size: Preset, model: PermutationModel, nfes: Sequence[int] = ()
) -> Iterator[dict[str, Any]]:
    """Sample and score the trained model: one flat row for each way of unmasking and each NFE.

    ``nfes`` are for masked models, all from 1 to n unless given; autoregressive models have n.
    """
    masked = law.objective == "masked"
    trained_on, target = training_orders(law, size), all_cyclic(size.n)
    device = next(model.parameters()).device
    for unmask in UNMASK if masked else (law.reveal,):
        for nfe in (sorted(set(nfes)) or range(1, size.n + 1)) if masked else (size.n,):
            started = time.perf_counter()
            distribution = model.distribution(nfe=nfe, unmask=unmask if masked else None)
            generator = torch.Generator(device).manual_seed(law.seed)
            with training_precision(size, device):
                samples = distribution.sample((size.samples,), generator=generator).cpu()
                bits = likelihoods(distribution, target.to(device))
            yield {
                "experiment": "cyclic",
                "n": size.n,
                "code": law.code,
                "objective": law.objective,
                "unmask": unmask,
                "nfe": nfe,
                "seed": law.seed,
                "samples": size.samples,
                **{key: count / size.samples for key, count in metrics.distinct(samples).items()},
                "unique_expected": metrics.expected_distinct(size.samples, len(target)) / size.samples,
                "cyclic": metrics.cyclic_share(samples),
                "in_train": in_train(samples, trained_on),
                **bits,
                "seconds": round(time.perf_counter() - started, 2),
            }


def likelihoods(distribution: PermutationLaw, target: Tensor) -> dict[str, float | None]:
    """In bits over all cyclic permutations, the ``target``: the mean code length ``bits``; the divergence
    ``kl`` of the uniform law on them from the model; the standard deviation ``spread`` of the code length, 0
    for a uniform model. ``on_cyclic`` is the mass that the model gives them.

    All are None for a random partition. It is a mixture over partitions, which has no exact likelihood.
    """
    if not distribution.exact:
        return dict.fromkeys(("bits", "kl", "spread", "on_cyclic"))
    with torch.no_grad():
        bits = -distribution.log_prob(target).double() / math.log(2)
    return {
        "bits": bits.mean().item(),
        "kl": bits.mean().item() - math.log2(len(target)),
        "spread": bits.std(correction=0).item(),
        "on_cyclic": torch.exp2(-bits).sum().item(),
    }


def in_train(samples: Tensor, trained_on: Tensor) -> float:
    """The share of the cyclic samples, of ``(samples, n)``, that were trained on; 0 if none is cyclic.

    >>> in_train(torch.tensor([[1, 2, 0], [2, 0, 1], [0, 1, 2], [0, 0, 0]]), torch.tensor([[1, 2, 0]]))
    0.5
    """
    valid = samples[is_permutation(samples)]
    return metrics.share_among(valid[is_cyclic(valid, check=False)], trained_on)


def training_precision(size: Preset, device: torch.device) -> torch.autocast:
    """The precision that the law was trained in: the same law is sampled and scored."""
    return torch.autocast(device.type, torch.bfloat16, enabled=size.precision == "bf16")


def watcher(law: Law, size: Preset, samples: int = 2000) -> Callable[[PermutationModel], dict[str, float]]:
    """For ``train(watch=…)``: the share of samples at the highest NFE that are cyclic, and the share of these
    that were trained on.

    Over the steps the two separate learning from memorising.
    """
    trained_on = training_orders(law, size)
    from_the_end = law.objective == "masked" and law.code in FROM_THE_END
    unmask = "right-to-left" if from_the_end else "left-to-right"  # an autoregressive model knows its own end

    def watch(model: PermutationModel) -> dict[str, float]:
        device = next(model.parameters()).device
        generator = torch.Generator(device).manual_seed(law.seed)
        with training_precision(size, device):
            drawn = model.distribution(unmask=unmask).sample((samples,), generator=generator).cpu()
        return {"cyclic": metrics.cyclic_share(drawn), "in_train": in_train(drawn, trained_on)}

    return watch


def curve(law: Law, size: Preset, out: Path) -> list[dict[str, Any]]:
    """What :func:`watcher` measured in a run in ``out``: a flat row for each time, with the held-out bits."""
    steps: dict[int, dict[str, Any]] = {}
    for row in read_history(out / law.name / "metrics.jsonl"):
        if "cyclic" in row or "held_out_bits" in row:
            steps.setdefault(row["step"], {}).update(row)
    measured = ("cyclic", "in_train", "held_out_bits")
    about = {"experiment": "cyclic-curve", "n": size.n, **asdict(law)}
    return [
        about | {"step": step} | {key: row.get(key) for key in measured}
        for step, row in sorted(steps.items())
        if "cyclic" in row
    ]


def describe(size: Preset) -> dict[str, Any]:
    """The settings that belong in each row of the results."""
    names = ("width", "depth", "heads", "dropout", "batch_size", "lr", "steps", "precision", "share")
    return {name: getattr(size, name) for name in (*names, "weight_decay")}
