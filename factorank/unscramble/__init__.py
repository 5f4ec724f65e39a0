"""Words from scrambled letters: a law over the orders of some letters, with several modes.

The letters are the context of the model, and an order of them spells a word. From ``osftre`` the shipped
model draws forest, fortes, foster and softer. :mod:`factorank.experiments.unscramble` trains and scores it.

>>> import torch
>>> import factorank as fr
>>> generator = torch.Generator().manual_seed(0)
>>> words = fr.unscramble.likely_words("ptso", samples=50, generator=generator)
>>> sorted(word for word, probability in words if probability > 0.1)
['opts', 'post', 'pots', 'spot', 'stop', 'tops']
"""

from factorank.arguments import guard
from factorank.unscramble.encoder import LetterContext
from factorank.unscramble.law import (
    WEIGHTS,
    check_letters,
    law_of_letters,
    likely_words,
    load,
    spell,
    usual_unmask,
    word_probabilities,
)

__all__ = [
    "WEIGHTS",
    "LetterContext",
    "check_letters",
    "law_of_letters",
    "likely_words",
    "load",
    "spell",
    "usual_unmask",
    "word_probabilities",
]

guard(__name__, __all__)
