"""Unscrambling words (the paper's first figure): a law over the orders of some letters, with several modes.

The letters are the context and the order is what is learnt: given ``osftre``, the words forest, fortes,
foster and softer, a quarter each. The code is insertion. Its position i says where letter i goes among those
before it, so letter and value share a token, and words of different lengths train together. A twentieth of
the letter sets is held out: there the model cannot remember words and has to spell. Words of a larger list
teach it how; they are never those of held-out letters.
"""

import hashlib
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from factorank.data.words import LETTERS, anagram_sets, split_sets
from factorank.errors import FactorankError
from factorank.experiments.record import provenance, write_results
from factorank.experiments.unscramble_scores import score
from factorank.models import PermutationModel
from factorank.models.model import Masks
from factorank.training import TrainResult, train
from factorank.training.processes import checked_device
from factorank.training.settings import ENDLESS
from factorank.unscramble import LetterContext, load
from factorank.unscramble.law import SHORTEST


@dataclass(frozen=True)
class UnscrambleSize:
    """The network and its training."""

    width: int = 128
    depth: int = 8
    heads: int = 4
    dropout: float = 0.05
    memory: int = 1024
    """Hidden units of the network over the counts of the letters; no such network at 0."""
    alphabetical: bool = True
    """Whether the code is relative to the letters in alphabetical order, whichever way they are scrambled."""
    code: Literal["insertion", "left-lehmer"] = "insertion"
    masks: Masks = "suffix"
    batch_size: int = 1024
    optimizer: Literal["adamw", "muon"] = "muon"
    lr: float = 3e-3
    weight_decay: float = 0.01
    ema: float = 0.999
    steps: int | None = 40_000
    """None: as many as there is time for."""
    held_out: float = 0.05
    """The share of the letter sets that is not trained on."""
    spelling_share: float = 0.35
    """The share of the batches that are words of the larger list, if there is one."""

    def __post_init__(self) -> None:
        for name in ("held_out", "spelling_share"):
            if not 0 <= getattr(self, name) <= 1:
                raise FactorankError(
                    f"{{parameter}} is a share, from 0 to 1, not {getattr(self, name)}", parameter=name
                )


def learn(
    words: Iterable[str],
    size: UnscrambleSize,
    out: Path | None = None,
    *,
    more: Iterable[str] = (),
    seed: int = 0,
    **options: Any,
) -> tuple[PermutationModel, TrainResult]:
    """Train a model on the words whose letter sets are not held out; ``options`` go to ``train``.

    ``more`` words, of a larger list, teach it to spell. Those are left out whose letters ``words`` has a word
    for, as there only the words of ``words`` count as real, and those whose letters are held out.
    """
    sets = anagram_sets(words)
    learnt = split_sets(sets, size.held_out)[0]
    if not learnt:
        raise FactorankError("all the words are held out: there is nothing to learn from")
    longest = max(map(len, sets))
    others = {
        letters: group
        for letters, group in anagram_sets(more).items()
        if letters not in sets and SHORTEST <= len(letters) <= longest
    }
    torch.manual_seed(seed)
    context = LetterContext(
        LETTERS, size.width, size.memory, dropout=size.dropout, alphabetical=size.alphabetical
    )
    main = context.ids([word for letters in learnt for word in sets[letters]], longest)
    extra = context.ids(
        [word for letters in split_sets(others, size.held_out)[0] for word in others[letters]], longest
    )
    model = PermutationModel(
        longest,
        size.code,
        "masked",
        size.width,
        size.depth,
        size.heads,
        size.dropout,
        context=context,
        masks=size.masks,
        target="order",
    )
    names = ("batch_size", "optimizer", "lr", "weight_decay", "ema")
    settings = {name: getattr(size, name) for name in names}
    by_time = size.steps is None
    settings |= {"steps": ENDLESS if by_time else size.steps, "schedule": "time" if by_time else "cosine"}
    if checked_device(options.get("device")).type == "cuda":
        settings["precision"] = "bf16"
    settings |= options
    batches = Scrambles(main, extra, size.spelling_share, alphabetical=size.alphabetical)
    return model, train(model, batches, out=out, seed=seed, **settings)


def run(
    words: Iterable[str],
    size: UnscrambleSize,
    out: Path,
    command: str,
    *,
    more: Iterable[str] = (),
    seed: int = 0,
    **options: Any,
) -> tuple[PermutationModel | None, list[dict[str, Any]]]:
    """Train, save and measure: the model, None if it was interrupted, and the rows of ``unscramble.jsonl``.

    ``out`` gets ``run``, which goes on with the same words only, ``model`` in half precision, and the rows.
    """
    words, more = list(words), list(more)
    model, result = learn(words, size, out / "run", more=more, seed=seed, **options)
    if result.stopped == "interrupted":
        return None, []
    device = model.device
    model.save_pretrained(out / "model", torch.float16)  # half the size
    model = load(out / "model").to(device)  # what is measured is what is saved
    about = {"train_seconds": round(result.seconds, 1), "trained_steps": result.steps}
    about |= asdict(size) | {"larger_list": len(more)} | provenance(command)
    rows = [row | about for row in score(model, words, size.held_out, more=more, seed=seed)]
    write_results(out / "unscramble.jsonl", rows)
    return model.cpu(), rows


class Scrambles:
    """Makes batches of scrambled words: orders ``(batch, n)`` that spell them and letters ``(batch, n)``.

    The scrambling is uniform, so the orders that spell a word with repeated letters are equally likely; or
    the letters are ``alphabetical``, and only equal ones are exchanged. A ``share`` of the words are of
    ``more``. The batches are made by tensor operations alone, on the generator's device.
    """

    capturable = True

    def __init__(
        self, words: Tensor, more: Tensor | None = None, share: float = 0.5, *, alphabetical: bool = False
    ) -> None:
        self.first = len(words)
        self.words = words if more is None else torch.cat([words, more])
        self.share = share if len(self.words) > self.first else 0.0
        self.alphabetical = alphabetical

    def fingerprint(self) -> str:
        """What tells these words from others: a run goes on with the same ones only."""
        words = hashlib.sha256(self.words.cpu().numpy().tobytes()).hexdigest()
        return f"{words} {self.first} {self.share} {self.alphabetical}"

    def __call__(self, batch_size: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        device = generator.device
        self.words = self.words.to(device)
        options: dict[str, Any] = {"generator": generator, "device": device}
        rows = torch.randint(self.first, (batch_size,), **options)
        if self.share:
            others = torch.randint(self.first, len(self.words), (batch_size,), **options)
            rows = torch.where(torch.rand(batch_size, **options) < self.share, others, rows)
        word = self.words[rows]
        ended = word < 0
        keys = torch.rand(word.shape, **options)
        if self.alphabetical:
            keys = keys + word
        keys = keys.masked_fill(ended, 2.0 + len(LETTERS))
        place = keys.argsort(dim=-1, stable=True)  # of each letter in the word; padding stays last
        return torch.where(ended, -1, place.argsort(dim=-1)), word.gather(-1, place)
