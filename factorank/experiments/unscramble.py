"""Unscrambling words (the paper's first figure): a law over the orders of some letters, with several modes.

The letters are the context and the order is what is learnt: given ``osftre``, the words forest, fortes,
foster and softer, a quarter each. The code is insertion. Its position i says where letter i goes among those
before it, so letter and value share a token, and words of different lengths train together. A small network
over the counts of the letters (:class:`factorank.unscramble.LetterContext`) remembers which words there are;
the transformer turns that into codes for the letters as they are scrambled. A twentieth of the letter sets is
held out: there the model cannot remember words and has to spell.
"""

import math
import random
import time
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from factorank.data.words import LETTERS, anagram_sets, split_sets
from factorank.errors import FactorankError
from factorank.models import PermutationModel
from factorank.training import TrainResult, train
from factorank.unscramble import LetterContext, law_of_letters, spell, word_probabilities


@dataclass(frozen=True)
class UnscrambleSize:
    """The network and its training."""

    width: int = 96
    depth: int = 3
    heads: int = 4
    memory: int = 640
    """Hidden units of the network over the counts of the letters."""
    batch_size: int = 256
    lr: float = 3e-3
    steps: int = 6000
    held_out: float = 0.05
    """The share of the letter sets that is not trained on."""


def learn(
    words: Iterable[str], size: UnscrambleSize, out: Path | None = None, *, seed: int = 0, **options: Any
) -> tuple[PermutationModel, TrainResult]:
    """Train a model on the words whose letter sets are not held out; ``options`` go to ``train``."""
    sets = anagram_sets(words)
    learnt = [word for letters in split_sets(sets, size.held_out)[0] for word in sets[letters]]
    if not learnt:
        raise FactorankError("all the words are held out: there is nothing to learn from")
    torch.manual_seed(seed)
    context = LetterContext(LETTERS, size.width, size.memory)
    ids = context.ids(learnt)
    model = PermutationModel(
        ids.shape[-1], "insertion", "masked", size.width, size.depth, size.heads, context=context
    )
    settings = {"steps": size.steps, "batch_size": size.batch_size, "lr": size.lr, "ema": None} | options
    return model, train(model, Scrambles(ids), out=out, seed=seed, **settings)


class Scrambles:
    """Makes batches of scrambled words: orders ``(batch, n)`` that spell them and letters ``(batch, n)``.

    The scrambling is uniform, so the orders that spell a word with repeated letters are equally likely. The
    batches are made by tensor operations alone, on the generator's device.
    """

    capturable = True

    def __init__(self, words: Tensor) -> None:
        self.words = words

    def __call__(self, batch_size: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        device = generator.device
        self.words = self.words.to(device)
        rows = torch.randint(len(self.words), (batch_size,), generator=generator, device=device)
        word = self.words[rows]
        ended = word < 0
        keys = torch.rand(word.shape, generator=generator, device=device).masked_fill(ended, 2.0)
        place = keys.argsort(dim=-1, stable=True)  # of each letter in the word; padding stays last
        return torch.where(ended, -1, place.argsort(dim=-1)), word.gather(-1, place)


def score(
    model: PermutationModel,
    words: Iterable[str],
    size: UnscrambleSize,
    *,
    most: int = 1000,
    scrambles: int = 2,
    samples: int = 10,
    seed: int = 0,
) -> Iterator[dict[str, Any]]:
    """How much probability real words get, by NFE, for letter sets that were trained on and held-out ones.

    ``real``: the mean probability of all the words that the letters spell, over ``most`` sets drawn at random
    and ``scrambles`` ways to scramble each. ``all_anagrams``: how often, where there are two words or more,
    each has at least a tenth of its uniform share. Both are exact except under random unmasking, where
    ``real`` is a share of draws.
    """
    sets = anagram_sets(words)
    sides = dict(zip(("seen", "held-out"), split_sets(sets, size.held_out), strict=True))
    for side, listed in sides.items():
        if not listed:
            continue
        chooser = random.Random(seed)
        chosen = chooser.sample(listed, min(most, len(listed)))
        several = [letters for letters in listed if len(sets[letters]) > 1]
        several = chooser.sample(several, min(most, len(several)))
        scrambled = {
            group: ["".join(chooser.sample(group, len(group))) for _ in range(scrambles)]
            for group in dict.fromkeys([*chosen, *several])
        }
        puzzles = [(letters, sets[group]) for group in chosen for letters in scrambled[group]]
        with_anagrams = [(letters, sets[group]) for group in several for letters in scrambled[group]]
        for unmask in ("left-to-right", "confident", "random"):
            for nfe in sorted({1, 2, model.n}):
                if unmask == "random" and nfe == 1:
                    continue  # there is one block: it is the same law
                started = time.perf_counter()
                if unmask == "random":
                    real, covered = _real_share(model, puzzles, nfe, samples, seed), None
                else:
                    real, _ = _real_and_covered(model, puzzles, nfe, unmask)
                    _, covered = _real_and_covered(model, with_anagrams, nfe, unmask)
                yield {
                    "experiment": "unscramble",
                    "code": model.code.name,
                    "objective": model.objective,
                    "unmask": unmask,
                    "nfe": nfe,
                    "seed": seed,
                    "n": model.n,
                    "letter_sets": side,
                    "sets": len(chosen),
                    "sets_with_anagrams": len(several),
                    "scrambles": scrambles,
                    "real": real,
                    "uniform": _uniform(chosen, sets),
                    "all_anagrams": covered,
                    "parameters": sum(p.numel() for p in model.parameters()),
                    **asdict(size),
                    "seconds": round(time.perf_counter() - started, 2),
                }


Puzzle = tuple[str, list[str]]
"""Scrambled letters and the words that they spell."""


def _uniform(chosen: list[str], sets: dict[str, list[str]]) -> float:
    """What the uniform law on the orders gives to real words: the share to compare with."""
    total = 0.0
    for letters in chosen:
        repeats = math.prod(math.factorial(letters.count(letter)) for letter in set(letters))
        total += len(sets[letters]) * repeats / math.factorial(len(letters))
    return total / len(chosen) if chosen else 0.0


def _real_and_covered(
    model: PermutationModel, puzzles: list[Puzzle], nfe: int, unmask: str
) -> tuple[float | None, float | None]:
    """The mean probability of real words, and the share of the puzzles whose words all get some of it."""
    if not puzzles:
        return None, None
    pairs = [(letters, word) for letters, words in puzzles for word in words]
    each = word_probabilities(model, pairs, nfe, unmask).split([len(words) for _, words in puzzles])
    covered = [float(shares.min()) >= 0.1 / len(shares) for shares in each]
    return sum(float(shares.sum()) for shares in each) / len(each), sum(covered) / len(covered)


def _real_share(
    model: PermutationModel, puzzles: list[Puzzle], nfe: int, samples: int, seed: int
) -> float | None:
    """The share of real words among draws under random unmasking."""
    if not puzzles:
        return None
    generator = torch.Generator(next(model.parameters()).device).manual_seed(seed)
    law = law_of_letters(model, [letters for letters, _ in puzzles], nfe, "random")
    draws = law.sample((samples,), generator=generator).transpose(0, 1).tolist()
    hits = sum(
        spell(letters, order) in words
        for (letters, words), orders in zip(puzzles, draws, strict=True)
        for order in orders
    )
    return hits / (samples * len(puzzles))
