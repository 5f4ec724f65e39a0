"""Sorting numbers of four handwritten digits, learnt from sorted lists alone.

A list has n numbers; a number is four MNIST digits side by side. The data say in which order the numbers of
a list are, smallest first, and nothing else: no digit has a label and no number a value. (Labels make the
lists, and count the errors of the digits afterwards.) One model serves lists of every length.

The law is :class:`factorank.RandomGrades`. A network reads each of the four cells and gives the probabilities
of ten levels; a number then has one of 10⁴ grades, the level of the first cell counting most, and the order
sorts the grades. That an order is right is a sum over all readings, so its likelihood is exact, and its
gradient gives every cell the levels that the order allows: items in the lowest tenth of a list begin with the
lowest level, and from the first cells, which the order determines almost wholly, the one network learns to
read the others. The levels come out as the digits 0 to 9 although no digit was ever named.

What the model is told beyond the orders: that a number has four cells of 28 pixels, that one network reads
all cells, that cells have ten levels, and that earlier cells count more. Score-and-sort is told the same but
the last two: the network's features of the four cells give one score through a perceptron, and the law is
Plackett-Luce.

Numbers that are equal may come in either order: ``items`` is the share of the places that hold an item of
the right number, ``exact`` the share of the lists in which all do. Choices are made on lists of 5,000
training digits that are held out; lists of the 10,000 test digits are for the results.
"""

import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from factorank.data.digits import Digits, DigitSets
from factorank.experiments import record
from factorank.experiments.digit_networks import distorted
from factorank.experiments.number_sorter import CELLS, Method, NumberSorter
from factorank.files import read_json_lines
from factorank.jigsaw.evaluation import wilson
from factorank.jigsaw.training import history
from factorank.training import TrainResult, TrainSettings, train
from factorank.training.settings import ENDLESS

LENGTHS = (5, 10, 32, 100, 200)
TRIED = 150
"""Steps of a beginning."""


@dataclass(frozen=True)
class SortSetting:
    """A model and its training."""

    method: Method = "factorank"
    channels: tuple[int, ...] = (32, 48, 64, 80, 96, 112, 128, 144, 160, 176)
    """Of the convolutions that read a cell."""
    n: int = 100
    """Numbers in a list to train on."""
    batch_size: int = 12
    """Lists in a step."""
    lr: float = 1e-3
    weight_decay: float = 0.02
    seconds: float = 600.0
    """Training time; the learning rate falls to zero with it."""
    tries: int = 3
    """Beginnings, of which the one with the largest likelihood goes on. An order that is almost right can be
    had with a level that is never used and two digits that share another; steps do not lead out of that."""
    seed: int = 0

    @property
    def name(self) -> str:
        """The name of the run's folder."""
        return f"{self.method}-{self.seed}"


class SortedLists:
    """Makes batches of lists of distorted digits: orders ``(batch, n)``, numbers ``(batch, n, 4, 28, 28)``.

    Tensor operations only, on the generator's device.
    """

    capturable = True

    def __init__(self, digits: Digits, n: int) -> None:
        self.digits, self.n = digits, n

    def __call__(self, batch_size: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        chosen = draw_numbers(len(self.digits), batch_size, self.n, generator)
        order = values(self.digits.labels[chosen]).argsort(dim=-1, stable=True)
        return order, distorted(self.digits.pixels[chosen], generator)


def draw_numbers(digits: int, lists: int, n: int, generator: torch.Generator) -> Tensor:
    """The digits ``(lists, n, 4)`` of random numbers, as indices below ``digits``."""
    return torch.randint(digits, (lists, n, CELLS), generator=generator, device=generator.device)


def values(digits: Tensor) -> Tensor:
    """The numbers ``(*batch,)`` that digits ``(*batch, 4)`` stand for.

    >>> values(torch.tensor([0, 4, 2, 7]))
    tensor(427)
    """
    return (digits * 10 ** torch.arange(CELLS - 1, -1, -1, device=digits.device)).sum(-1)


def run(
    setting: SortSetting,
    sets: DigitSets,
    out: Path,
    *,
    lists: int = 2000,
    command: str = "factorank.experiments.sort.run",
    **options: Any,
) -> list[dict[str, Any]]:
    """Train the model of a setting in ``out/NAME`` and score it; the same call resumes, or gives its rows.

    Rows are of the held-out digits and of the test digits. ``options`` go to ``train``. A run that was
    interrupted has no rows.
    """
    folder = out / setting.name
    facts = {"setting": setting, "lists": lists}
    if not record.measured_already(folder, facts):
        model, result = learn(setting, sets, folder / "run", **options)
        if result.stopped == "interrupted":
            return []
        about = {"trained_steps": result.steps, "train_seconds": round(result.seconds, 1)}
        about |= record.provenance(command)
        record.write_measured(
            folder, facts, [row | about for row in both_splits(setting, [model], sets, lists)]
        )
    return read_json_lines(folder / "rows.jsonl")


def model_folder(run: Path) -> Path:
    """The folder of the model: that of a run, or the one inside the folder that :func:`run` made for it."""
    return run / "run" if (run / "run" / "config.json").is_file() else run


def both_splits(
    setting: SortSetting, models: Sequence["NumberSorter"], sets: DigitSets, lists: int
) -> Iterator[dict[str, Any]]:
    """The rows of held-out digits and of test digits."""
    for split in ("held_out", "test"):
        for row in score(setting, models, getattr(sets, split), lists=lists):
            yield {"split": split} | row


def learn(
    setting: SortSetting,
    sets: DigitSets,
    out: Path | None = None,
    *,
    start: Path | None = None,
    **options: Any,
) -> tuple[NumberSorter, TrainResult]:
    """Train the model of a setting; the same call resumes the run in ``out``.

    ``start`` is the folder of a trained model to begin from. ``options`` go to ``train``.
    """
    device = torch.device(options.pop("device", None) or ("cuda" if torch.cuda.is_available() else "cpu"))
    lists = SortedLists(sets.train.to(device), setting.n)
    settings = TrainSettings(
        steps=ENDLESS,
        batch_size=setting.batch_size,
        lr=setting.lr,
        warmup=200,
        weight_decay=setting.weight_decay,
        ema=None,  # the running means of the batch norms are those of the weights themselves
        precision="bf16" if device.type == "cuda" else "fp32",
        held_out_every=500,
        seed=setting.seed,
        device=device,
    )
    lines = history(out)
    left = max(setting.seconds - (lines[-1]["seconds"] if lines else 0.0), 1e-3)
    if start is not None:
        model = NumberSorter.from_pretrained(model_folder(start))
    else:
        model = _begin(setting, lists, settings, 1 if lines else setting.tries)
    settings = replace(settings, schedule="time", max_seconds=left, out=out)
    watch = partial(digit_error, digits=sets.held_out)
    return model, train(model, lists, settings, **({"watch": watch} | options))


def _begin(setting: SortSetting, lists: SortedLists, settings: TrainSettings, tries: int) -> NumberSorter:
    """The best of several models after a few steps; an untrained one if there is one try only."""
    models: dict[float, NumberSorter] = {}
    for attempt in range(tries):
        torch.manual_seed(setting.seed + 1000 * attempt)
        model = NumberSorter(setting.method, setting.channels)
        if tries == 1:
            return model
        short = replace(
            settings, steps=TRIED, schedule="constant", warmup=50, seed=setting.seed + 1000 * attempt
        )
        models[train(model, lists, short).loss] = model
    return models[min(models)]


def read_digits(model: NumberSorter, digits: Digits, at_once: int = 1000) -> Tensor:
    """The features ``(digits, features)`` of every digit: each is read once, however many lists hold it."""
    device = next(model.parameters()).device
    with torch.no_grad():
        return torch.cat([model.reader(some.to(device)) for some in digits.pixels.split(at_once)])


def digit_error(model: NumberSorter, digits: Digits) -> dict[str, float]:
    """The share of digits that are read as another level than their label; nothing for scores."""
    if model.scorer is not None:
        return {}
    return {"digit_error": _share(read_digits(model, digits).argmax(-1).cpu() != digits.labels.cpu())}


def score(
    setting: SortSetting,
    models: Sequence[NumberSorter],
    digits: Digits,
    *,
    lengths: Sequence[int] = LENGTHS,
    lists: int = 2000,
    scored: int = 100,
    seed: int = 0,
) -> Iterator[dict[str, Any]]:
    """A flat row for each length: how well lists of these digits are sorted.

    Several models read together: the mean of their log-probabilities counts. ``bits`` is the mean of
    :math:`-\\log_2 P` of the right order, and ``stated`` that of the probability which the law gives to its
    own answer, over the first ``scored`` lists; there equal numbers are in the order of the list.
    """
    model, read = models[0], [read_digits(model, digits) for model in models]
    features = read[0] if len(read) == 1 else torch.stack([each.log_softmax(-1) for each in read]).mean(0)
    labels = digits.labels.to(features.device)
    error = None if model.scorer is not None else _share(features.argmax(-1) != labels)
    for n in lengths:
        started = time.perf_counter()
        chosen = draw_numbers(len(digits), lists, n, torch.Generator().manual_seed(seed)).to(labels.device)
        right = values(labels[chosen])
        nats, stated = [], []
        with torch.no_grad():
            answer = torch.cat([model.sort(features[some]) for some in chosen.split(100)])
            for rows in torch.arange(min(scored, lists)).split(10):
                law = model.law_of(features[chosen[rows]])
                nats.append(-law.log_prob(right[rows].argsort(dim=-1, stable=True)))
                stated.append(law.log_prob(answer[rows]).exp())
        in_place = right.gather(-1, answer) == right.sort(-1).values
        exact = _share(in_place.all(-1))
        low, high = wilson(round(exact * lists), lists)
        yield {
            "experiment": "sort",
            "code": None,
            "objective": None,
            "nfe": len(models),
            **asdict(setting),
            "channels": "-".join(map(str, setting.channels)),
            "trained_n": setting.n,
            "n": n,
            "lists": lists,
            "items": _share(in_place),
            "exact": exact,
            "exact_low": low,
            "exact_high": high,
            "bits": float(torch.cat(nats).mean()) / math.log(2),
            "stated": float(torch.cat(stated).mean()),
            "digit_error": error,
            "parameters": sum(weight.numel() for each in models for weight in each.parameters()),
            "seconds": round(time.perf_counter() - started, 2),
        }


def _share(right: Tensor) -> float:
    return float(right.double().mean())
