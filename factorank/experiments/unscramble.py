"""Unscrambling words (the paper's first figure): a law over the orders of some letters, with several modes.

The letters are the context and the order is what is learnt: given ``osftre``, the words forest, fortes,
foster and softer, a quarter each. The code is insertion. Its position i says where letter i goes among those
before it, so letter and value share a token, and words of different lengths train together. A twentieth of
the letter sets is held out: there the model cannot remember words and has to spell. Words of a larger list
teach it how; they are never those of held-out letters.
"""

import math
import random
import time
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from factorank.data.words import LETTERS, anagram_sets, split_sets
from factorank.errors import FactorankError
from factorank.experiments.record import provenance, write_results
from factorank.files import write_whole
from factorank.models import PermutationModel
from factorank.models.model import Masks
from factorank.models.unmasking import UNMASK
from factorank.training import TrainResult, train
from factorank.training.processes import checked_device
from factorank.unscramble import (
    LetterContext,
    law_of_letters,
    load,
    spell,
    usual_unmask,
    word_probabilities,
)
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
    steps: int = 40_000
    held_out: float = 0.05
    """The share of the letter sets that is not trained on."""
    spelling: float = 0.35
    """The share of the batches that are words of the larger list, if there is one."""


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
    names = ("steps", "batch_size", "optimizer", "lr", "weight_decay", "ema")
    settings = {name: getattr(size, name) for name in names}
    if checked_device(options.get("device")).type == "cuda":
        settings["precision"] = "bf16"
    settings |= options
    batches = Scrambles(main, extra, size.spelling, alphabetical=size.alphabetical)
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

    ``out`` gets ``words.txt``, ``run``, ``model`` in half precision, and the rows.
    """
    words, more = list(words), list(more)
    listed = "\n".join(words) + "\n"
    before = out / "words.txt"  # a run goes on with the words it began with
    if before.is_file() and before.read_text(encoding="utf-8") != listed:
        raise FactorankError(f"{out} holds a run with other words; choose another --out")
    out.mkdir(parents=True, exist_ok=True)
    write_whole(before, listed)
    model, result = learn(words, size, out / "run", more=more, seed=seed, **options)
    if result.stopped == "interrupted":
        return None, []
    device = model.device
    model.save_pretrained(out / "model", torch.float16)  # half the size
    model = load(out / "model").to(device)  # what is measured is what is saved
    about = {"train_seconds": round(result.seconds, 1), "trained_steps": result.steps}
    about |= {"larger_list": len(more)} | provenance(command)
    rows = [row | about for row in score(model, words, size, more=more, seed=seed)]
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


def score(
    model: PermutationModel,
    words: Iterable[str],
    size: UnscrambleSize,
    *,
    more: Iterable[str] = (),
    most: int = 1000,
    scrambles: int = 2,
    samples: int = 10,
    seed: int = 0,
) -> Iterator[dict[str, Any]]:
    """How much probability real words get, by NFE, for letter sets that were trained on and held-out ones.

    ``real``: the mean probability of all the words that the letters spell, over ``most`` sets drawn at random
    and ``scrambles`` ways to scramble each. ``all_anagrams``: how often, where there are two words or more,
    each has at least a tenth of its uniform share, and ``fair``: at least half. All are exact except under
    random unmasking, where ``real`` is a share of draws. ``real_with_more`` counts the words of a larger list
    as real too. The rows with a ``length`` are of the sets with that many letters alone, at one NFE a letter,
    revealed as usual; in the others it is None.
    """
    sets, larger = anagram_sets(words), anagram_sets(more)
    for side, listed in zip(("seen", "held-out"), split_sets(sets, size.held_out), strict=True):
        for length in (None, *sorted({len(letters) for letters in listed})):
            some = [letters for letters in listed if length in (None, len(letters))]
            if not some:
                continue
            chooser = random.Random(seed)
            chosen = chooser.sample(some, min(most, len(some)))
            several = [letters for letters in some if len(sets[letters]) > 1]
            several = chooser.sample(several, min(most, len(several)))
            scrambled = {
                group: ["".join(chooser.sample(group, len(group))) for _ in range(scrambles)]
                for group in dict.fromkeys([*chosen, *several])
            }
            puzzles = [(letters, sets[group]) for group in chosen for letters in scrambled[group]]
            with_anagrams = [(letters, sets[group]) for group in several for letters in scrambled[group]]
            wider = [
                (given, [*{*known, *larger.get("".join(sorted(given)), [])}]) for given, known in puzzles
            ]
            for unmask, nfe in _laws(model, length):
                started = time.perf_counter()
                row: dict[str, Any] = dict.fromkeys(("real_with_more", "all_anagrams", "fair"))
                if unmask == "random":
                    row["real"] = _real_share(model, puzzles, nfe, samples, seed)
                else:
                    row["real"] = _real(model, puzzles, nfe, unmask)
                    row |= _covered(model, with_anagrams, nfe, unmask)
                    if larger:
                        row["real_with_more"] = _real(model, wider, nfe, unmask)
                yield {
                    "experiment": "unscramble",
                    "code": model.code.name,
                    "objective": model.objective,
                    "unmask": unmask,
                    "nfe": nfe,
                    "seed": seed,
                    "n": model.n,
                    "letter_sets": side,
                    "length": length,
                    "sets": len(chosen),
                    "sets_with_anagrams": len(several),
                    "scrambles": scrambles,
                    "uniform": _uniform(chosen, sets),
                    **row,
                    "parameters": sum(p.numel() for p in model.parameters()),
                    **asdict(size),
                    "seconds": round(time.perf_counter() - started, 2),
                }


def _laws(model: PermutationModel, length: int | None) -> Iterator[tuple[str, int]]:
    """The orders of revealing, and NFE, that are scored."""
    usual, most = usual_unmask(model), 1 if model.masks == "all" else model.n
    if length is not None:
        yield usual, most
        return
    others = [unmask for unmask in UNMASK if unmask != usual] if model.masks == "any" else []
    for unmask in (usual, *others):
        for nfe in sorted({1, min(2, most), most}):
            if nfe > 1 or unmask == usual:  # of one block the order does not matter
                yield unmask, nfe


Puzzle = tuple[str, list[str]]  # scrambled letters and the words that they spell


def _uniform(chosen: list[str], sets: dict[str, list[str]]) -> float:
    """What the uniform law on the orders gives to real words: the share to compare with."""
    total = 0.0
    for letters in chosen:
        repeats = math.prod(math.factorial(letters.count(letter)) for letter in set(letters))
        total += len(sets[letters]) * repeats / math.factorial(len(letters))
    return total / len(chosen) if chosen else 0.0


def _each(model: PermutationModel, puzzles: list[Puzzle], nfe: int, unmask: str) -> list[Tensor]:
    """The probabilities of the words of each puzzle."""
    pairs = [(letters, word) for letters, words in puzzles for word in words]
    return list(word_probabilities(model, pairs, nfe, unmask).split([len(words) for _, words in puzzles]))


def _real(model: PermutationModel, puzzles: list[Puzzle], nfe: int, unmask: str) -> float:
    """The mean probability of real words."""
    return sum(float(shares.sum()) for shares in _each(model, puzzles, nfe, unmask)) / len(puzzles)


def _covered(
    model: PermutationModel, puzzles: list[Puzzle], nfe: int, unmask: str
) -> dict[str, float | None]:
    """The shares of the puzzles whose words all get a tenth, and a half, of their fair share."""
    if not puzzles:
        return {"all_anagrams": None, "fair": None}
    least = [float(shares.min()) * len(shares) for shares in _each(model, puzzles, nfe, unmask)]
    return {
        name: sum(share >= limit for share in least) / len(least)
        for name, limit in (("all_anagrams", 0.1), ("fair", 0.5))
    }


def _real_share(model: PermutationModel, puzzles: list[Puzzle], nfe: int, samples: int, seed: int) -> float:
    """The share of real words among draws under random unmasking."""
    generator = torch.Generator(next(model.parameters()).device).manual_seed(seed)
    law = law_of_letters(model, [letters for letters, _ in puzzles], nfe, "random")
    draws = law.sample((samples,), generator=generator).transpose(0, 1).tolist()
    hits = sum(
        spell(letters, order) in words
        for (letters, words), orders in zip(puzzles, draws, strict=True)
        for order in orders
    )
    return hits / (samples * len(puzzles))
