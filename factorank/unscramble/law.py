"""The law of the orders of some letters, the words that it gives probability to, and the trained model."""

import os
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

from factorank.data.words import LETTERS, spelling_count, spellings
from factorank.errors import FactorankError
from factorank.models import PermutationLaw, PermutationModel, TokenContext
from factorank.models.unmasking import LEARNT

SHORTEST = 3
MOST_ORDERS = 2000
"""Orders whose exact probabilities :func:`likely_words` computes at most."""
WEIGHTS = Path(__file__).parents[1] / "weights" / "unscramble"


def load(folder: str | os.PathLike[str] = WEIGHTS) -> PermutationModel:
    """A trained model of letters: the one in a folder, or in ``model`` there; the shipped one by default."""
    folder = Path(folder)
    if not (folder / "config.json").exists() and (folder / "model" / "config.json").exists():
        folder = folder / "model"  # the folder of a whole run
    model = PermutationModel.from_pretrained(folder)
    if not isinstance(model.context, TokenContext) or "".join(model.context.vocabulary) != LETTERS:
        raise FactorankError(f"the model in {folder} does not order letters")
    return model


def likely_words(
    letters: str,
    words: Sequence[str] = (),
    *,
    model: PermutationModel | None = None,
    nfe: int | None = None,
    unmask: str | None = None,
    samples: int = 1000,
    generator: torch.Generator | None = None,
) -> list[tuple[str, float]]:
    """The words that the model draws from some letters, with their probabilities, the likeliest first.

    ``words`` are listed as well, whether they are drawn or not. The probabilities are exact but in two cases,
    in which they are shares of the draws: under random unmasking, which has no likelihood; and of the words
    drawn least often, once equal letters make more than 2,000 orders of the others. The model is the shipped
    one unless another is passed, and reveals as :func:`usual_unmask` says unless told otherwise.
    """
    model = load() if model is None else model
    if unmask is None or nfe == 1:  # at one evaluation all orders of revealing are one law
        unmask = usual_unmask(model)
    letters = check_letters(letters, model.n)
    draws = law_of_letters(model, [letters], nfe, unmask).sample((samples,), generator=generator)[:, 0]
    drawn = Counter(spell(letters, order) for order in draws.tolist())
    shares = dict.fromkeys(words, 0.0) | {word: count / samples for word, count in drawn.items()}
    if unmask != "random":
        many = MOST_ORDERS // spelling_count(letters)
        first = sorted(shares, key=lambda word: (word not in words, -shares[word]))[:many]
        exact = word_probabilities(model, [(letters, word) for word in first], nfe, unmask)
        shares |= dict(zip(first, exact.tolist(), strict=True))
    return sorted(shares.items(), key=lambda item: (-item[1], item[0]))


@torch.no_grad()
def word_probabilities(
    model: PermutationModel, pairs: Sequence[tuple[str, str]], nfe: int | None, unmask: str
) -> Tensor:
    """The probability of each pair (letters, word): float64 ``(pairs,)``, summed over the word's spellings.

    Exact. ``unmask`` is an order of revealing that has a likelihood: any but "random".
    """
    listed = [
        (number, letters, order)
        for number, (letters, word) in enumerate(pairs)
        for order in spellings(word, letters)
    ]
    if not listed:
        return torch.zeros(0, dtype=torch.float64)
    orders = torch.tensor([order + [-1] * (model.n - len(order)) for _, _, order in listed])
    law = law_of_letters(model, [letters for _, letters, _ in listed], nfe, unmask)
    each = law.log_prob(orders.to(_device(model))).double().exp().cpu()
    return torch.zeros(len(pairs), dtype=torch.float64).index_add(
        0, torch.tensor([number for number, _, _ in listed]), each
    )


def law_of_letters(
    model: PermutationModel, letters: Sequence[str], nfe: int | None, unmask: str
) -> PermutationLaw:
    """The law of the orders of each of some strings of letters.

    The code is relative to the letters as they stand, or as the alphabet has them if the model says so: then
    the law does not depend on how they are scrambled.
    """
    assert isinstance(model.context, TokenContext)
    context = model.context.ids(letters, model.n).to(_device(model))
    reference = None
    if getattr(model.context, "alphabetical", False):
        reference = torch.where(context < 0, len(LETTERS), context).argsort(dim=-1, stable=True)
    return model.distribution(context, nfe=nfe, unmask=unmask, reference=reference)


def usual_unmask(model: PermutationModel) -> str:
    """The order of revealing that a model has learnt, or else the one that suits its code: left-Lehmer codes
    tell most at their last positions, where they spell a word from its end.

    >>> usual_unmask(PermutationModel(4, "insertion", width=8, depth=1, heads=1))
    'left-to-right'
    """
    suits = "right-to-left" if model.code.name == "left-lehmer" else "left-to-right"
    return LEARNT.get(model.masks, suits)


def spell(letters: str, order: Sequence[int]) -> str:
    """The letters in an order, which ends at the first -1.

    >>> spell("osftre", [2, 0, 4, 5, 1, 3])
    'forest'
    """
    return "".join(letters[item] for item in order if item >= 0)


def check_letters(letters: str, longest: int) -> str:
    """The letters in lower case, or an error that says what is wrong with them."""
    lower = letters.strip().lower()
    strange = [(place, letter) for place, letter in enumerate(lower, start=1) if letter not in LETTERS]
    if not lower:
        message = f"there are no letters to unscramble; give {SHORTEST} to {longest}, a to z"
    elif strange:
        place, letter = strange[0]
        message = f"letters are a to z, but {letters!r} holds {letter!r} at place {place}"
    elif not SHORTEST <= len(lower) <= longest:
        message = f"the model orders {SHORTEST} to {longest} letters, but {letters!r} has {len(lower)}"
    else:
        return lower
    raise FactorankError(message, parameter="letters")


def _device(model: PermutationModel) -> torch.device:
    return next(model.parameters()).device
