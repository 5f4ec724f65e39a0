"""How much probability a law over the orders of letters gives to real words."""

import math
import random
import time
from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch import Tensor

from factorank.data.words import anagram_sets, spelling_count, split_sets
from factorank.models import PermutationModel
from factorank.models.unmasking import UNMASK
from factorank.unscramble import law_of_letters, spell, usual_unmask, word_probabilities


def score(
    model: PermutationModel,
    words: Iterable[str],
    held_out: float,
    *,
    more: Iterable[str] = (),
    most: int = 1000,
    scrambles: int = 2,
    samples: int = 10,
    seed: int = 0,
) -> Iterator[dict[str, Any]]:
    """How much probability real words get, by NFE, for letter sets that were trained on and held-out ones.

    ``held_out`` is the share of the letter sets that were not trained on.

    ``real``: the mean probability of all the words that the letters spell, over ``most`` sets drawn at random
    and ``scrambles`` ways to scramble each. ``all_anagrams``: how often, where there are two words or more,
    each has at least a tenth of its uniform share, and ``fair``: at least half. All are exact except under
    random unmasking, where ``real`` is a share of draws. ``real_with_more`` counts the words of a larger list
    as real too. The rows with a ``length`` are of the sets with that many letters alone, at one NFE a letter,
    revealed as usual; in the others it is None.
    """
    sets, larger = anagram_sets(words), anagram_sets(more)
    for side, listed in zip(("seen", "held-out"), split_sets(sets, held_out), strict=True):
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
        total += len(sets[letters]) * spelling_count(letters) / math.factorial(len(letters))
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
