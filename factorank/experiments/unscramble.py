"""Unscrambling words (the paper's first figure): a law over the orders of some letters, with several modes.

The letters are the context and the order is what is learnt: given ``osftre``, the words forest, fortes,
foster and softer, a quarter each. The code is insertion: its position i says where letter i goes among those
before it, so that letter and value share a token, and words of different lengths train together. Which words
there are is remembered by a small network over the counts of the letters, evaluated once a word; the
transformer turns that into codes for the letters as they stand. A twentieth of the letter sets is held out:
there the model has to spell, not to remember.
"""

import math
import random
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from factorank.data.words import LETTERS, anagram_sets, spellings, split_sets
from factorank.errors import FactorankError
from factorank.models import PermutationModel, TokenContext, register_context
from factorank.training import TrainResult, train

WEIGHTS = Path(__file__).parents[1] / "weights" / "unscramble"
SHORTEST = 3


@dataclass(frozen=True)
class Size:
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
    """Of the letter sets, how many are not trained on."""


class LetterContext(TokenContext):
    """Letters to be ordered: the token of each also says what the whole set of letters makes of it.

    A perceptron maps the counts of the letters to a few features for each letter of the vocabulary. It does
    not see how the letters are scrambled, so that nothing has to be learnt twice, and costs one evaluation a
    word rather than one a letter. In a trial of 110 seconds each, real words got 33% of the probability with
    it (width 96), 9% with a plain :class:`TokenContext` and a wider transformer (128).
    """

    exchangeable = False

    def __init__(self, vocabulary: Sequence[str], width: int, memory: int, features: int = 12) -> None:
        super().__init__(vocabulary, width)
        self.memory, self.features = memory, features
        kinds = len(self.vocabulary)
        self.perceptron = nn.Sequential(
            nn.Linear(kinds, memory),
            nn.GELU(),
            nn.Linear(memory, memory),
            nn.GELU(),
            nn.Linear(memory, kinds * features),
        )
        self.mix = nn.Linear(features, width)
        assert isinstance(self.perceptron[0], nn.Linear)
        nn.init.normal_(self.perceptron[0].weight, std=0.4)  # few counts are not 0

    def forward(self, items: Tensor) -> tuple[Tensor, Tensor]:
        tokens, present = super().forward(items)
        kinds = torch.arange(len(self.vocabulary), device=items.device)
        counts = (items[..., None] == kinds).sum(-2).to(tokens.dtype)
        remembered = self.perceptron(counts).unflatten(-1, (len(kinds), self.features))
        index = items.long().clamp(min=0)[..., None].expand(*items.shape, self.features)
        return tokens + self.mix(remembered.gather(-2, index)) * present[..., None], present

    def config(self) -> dict[str, Any]:
        return super().config() | {"memory": self.memory, "features": self.features}


register_context("letters", LetterContext)


class Scrambles:
    """Makes batches of scrambled words: orders ``(batch, n)`` that spell them and letters ``(batch, n)``.

    The scrambling is uniform, so that, of the orders that spell a word with repeated letters, each is as
    likely as the others. Tensor operations alone, on the generator's device.
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
        place = keys.argsort(dim=-1, stable=True)  # of each letter in the word; what has ended stays last
        return torch.where(ended, -1, place.argsort(dim=-1)), word.gather(-1, place)


def learn(
    words: Iterable[str], size: Size, out: Path | None = None, *, seed: int = 0, **options: Any
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


def save(model: PermutationModel, folder: Path) -> None:
    """Save the model with its weights in half precision: they are a demonstration's, and small that way."""
    model.half().save_pretrained(folder)
    model.float()


def load(folder: Path = WEIGHTS) -> PermutationModel:
    """The model that was saved in a folder, or in ``model`` there; the shipped one unless told otherwise."""
    if not (folder / "config.json").exists() and (folder / "model" / "config.json").exists():
        folder = folder / "model"  # the folder of a whole run
    model = PermutationModel.from_pretrained(folder)
    if not isinstance(model.context, TokenContext) or "".join(model.context.vocabulary) != LETTERS:
        raise FactorankError(f"the model in {folder} does not order letters")
    return model


def check_letters(letters: str, longest: int) -> str:
    """The letters in lower case, or an error that says what is wrong with them."""
    lower = letters.strip().lower()
    if not lower:
        raise FactorankError(f"there are no letters to unscramble; give {SHORTEST} to {longest}, a to z")
    for place, letter in enumerate(lower, start=1):
        if letter not in LETTERS:
            raise FactorankError(f"letters are a to z, but {letters!r} holds {letter!r} at place {place}")
    if not SHORTEST <= len(lower) <= longest:
        raise FactorankError(
            f"the model orders {SHORTEST} to {longest} letters, but {letters!r} has {len(lower)}"
        )
    return lower


def spell(letters: str, order: Sequence[int]) -> str:
    """The letters in an order; -1 stands after the end.

    >>> spell("osftre", [2, 0, 4, 5, 1, 3])
    'forest'
    """
    return "".join(letters[item] for item in order if item >= 0)


def law_of(model: PermutationModel, letters: Sequence[str], nfe: int | None, unmask: str) -> Any:
    """The law of the orders of each of some letter strings; NFE beyond their length is not needed."""
    assert isinstance(model.context, TokenContext)
    context = model.context.ids(letters, model.n).to(model.network.places.device)
    return model.distribution(context, nfe=nfe, unmask=unmask)


@torch.no_grad()
def probabilities(
    model: PermutationModel, pairs: Sequence[tuple[str, str]], nfe: int | None, unmask: str
) -> Tensor:
    """The probability of each pair (letters, word): float64 ``(pairs,)``, summed over the word's spellings.

    Exact; ``unmask`` is "left-to-right" or "confident", which have a likelihood.
    """
    listed = [
        (number, letters, order)
        for number, (letters, word) in enumerate(pairs)
        for order in spellings(word, letters)
    ]
    if not listed:
        return torch.zeros(0, dtype=torch.float64)
    orders = torch.tensor([order + [-1] * (model.n - len(order)) for _, _, order in listed])
    law = law_of(model, [letters for _, letters, _ in listed], nfe, unmask)
    each = law.log_prob(orders.to(model.network.places.device)).double().exp().cpu()
    return torch.zeros(len(pairs), dtype=torch.float64).index_add(
        0, torch.tensor([number for number, _, _ in listed]), each
    )


def seen_words(
    model: PermutationModel,
    letters: str,
    known: Sequence[str] = (),
    *,
    nfe: int | None = None,
    unmask: str = "left-to-right",
    samples: int = 1000,
    generator: torch.Generator | None = None,
) -> list[tuple[str, float]]:
    """What the model sees in the letters: each word that it draws, and each known one, with its probability.

    The likeliest come first. Under random unmasking, whose likelihood is not at hand, the probability is the
    share of the draws.
    """
    drawn = law_of(model, [letters], nfe, unmask).sample((samples,), generator=generator)[:, 0]
    unique, counts = drawn.unique(dim=0, return_counts=True)
    shares = dict.fromkeys(known, 0.0)
    for order, count in zip(unique.tolist(), counts.tolist(), strict=True):
        word = spell(letters, order)
        shares[word] = shares.get(word, 0.0) + count / samples
    if unmask != "random":
        exact = probabilities(model, [(letters, word) for word in shares], nfe, unmask)
        shares = dict(zip(shares, exact.tolist(), strict=True))
    return sorted(shares.items(), key=lambda item: (-item[1], item[0]))


def score(
    model: PermutationModel,
    words: Iterable[str],
    size: Size,
    *,
    most: int = 1000,
    scrambles: int = 2,
    samples: int = 10,
    seed: int = 0,
) -> Iterator[dict[str, Any]]:
    """How much probability real words get, by NFE, for letter sets that were trained on and held-out ones.

    ``real``: the mean probability of all the words that the letters spell, over ``most`` sets drawn at random
    and ``scrambles`` ways to give each. ``all_anagrams``: how often, where there are two words or more, each
    has at least a tenth of its uniform share. Exact except under random unmasking, where ``real`` is a share
    of draws.
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
        given = {group: _scrambled(group, scrambles, chooser) for group in {*chosen, *several}}
        for unmask in ("left-to-right", "confident", "random"):
            for nfe in sorted({1, 2, model.n}):
                if unmask == "random" and nfe == 1:
                    continue  # there is one block: it is the same law
                started = time.perf_counter()
                common: dict[str, Any] = {
                    "model": model,
                    "sets": sets,
                    "given": given,
                    "nfe": nfe,
                    "unmask": unmask,
                }
                if unmask == "random":
                    real, covered = _real_share(chosen, samples=samples, seed=seed, **common), None
                else:
                    real, _ = _real_and_covered(chosen, **common)
                    covered = _real_and_covered(several, **common)[1]
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


def _scrambled(letters: str, count: int, chooser: random.Random) -> list[str]:
    return ["".join(chooser.sample(letters, len(letters))) for _ in range(count)]


def _uniform(chosen: list[str], sets: dict[str, list[str]]) -> float:
    """What the uniform law on the orders gives to real words: the share to compare with."""
    total = 0.0
    for letters in chosen:
        repeats = math.prod(math.factorial(letters.count(letter)) for letter in set(letters))
        total += len(sets[letters]) * repeats / math.factorial(len(letters))
    return total / len(chosen) if chosen else 0.0


def _real_and_covered(
    chosen: list[str],
    model: PermutationModel,
    sets: dict[str, list[str]],
    given: dict[str, list[str]],
    nfe: int,
    unmask: str,
) -> tuple[float | None, float | None]:
    scrambled = [(letters, group) for group in chosen for letters in given[group]]
    if not scrambled:
        return None, None
    pairs = [(letters, word) for letters, group in scrambled for word in sets[group]]
    each = probabilities(model, pairs, nfe, unmask).split([len(sets[group]) for _, group in scrambled])
    covered = [float(one.min()) >= 0.1 / len(one) for one in each]
    return sum(float(one.sum()) for one in each) / len(each), sum(covered) / len(covered)


def _real_share(
    chosen: list[str],
    model: PermutationModel,
    sets: dict[str, list[str]],
    given: dict[str, list[str]],
    nfe: int,
    unmask: str,
    samples: int,
    seed: int,
) -> float | None:
    scrambled = [(letters, set(sets[group])) for group in chosen for letters in given[group]]
    if not scrambled:
        return None
    generator = torch.Generator(model.network.places.device).manual_seed(seed)
    law = law_of(model, [letters for letters, _ in scrambled], nfe, unmask)
    drawn = law.sample((samples,), generator=generator).transpose(0, 1).tolist()
    hits = sum(
        spell(letters, order) in words
        for (letters, words), orders in zip(scrambled, drawn, strict=True)
        for order in orders
    )
    return hits / (samples * len(scrambled))
