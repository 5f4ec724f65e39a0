"""English words and their anagrams: a shipped list, and functions that turn a list into training data.

The list holds the lower-case words of 3 to 9 letters of Debian's ``wamerican-small``, made from SCOWL, whose
notice is in ``words.notice.txt`` beside it.
"""

import hashlib
import math
import os
from collections.abc import Iterable
from itertools import permutations, product
from pathlib import Path

from factorank.errors import FactorankError
from factorank.reading import read_text

LETTERS = "abcdefghijklmnopqrstuvwxyz"
SHIPPED = Path(__file__).with_name("words.txt")


def read_words(path: str | os.PathLike[str] = SHIPPED) -> list[str]:
    """The words of a file, one a line, in the letters a..z; by default the shipped list.

    >>> {"forest", "fortes", "foster", "softer"} <= set(read_words())
    True
    """
    words = read_text(path).split()
    for number, word in enumerate(words, start=1):
        if not set(word) <= set(LETTERS):
            raise FactorankError(f"{path}: word {number}, {word!r}, holds more than the letters a..z")
    if not words:
        raise FactorankError(f"{path}: there is no word in it")
    return list(dict.fromkeys(words))


def dictionary_words(path: str | os.PathLike[str], lengths: tuple[int, int] = (3, 9)) -> list[str]:
    """The words of a system's dictionary, such as ``/usr/share/dict/words``, that are like those of the list.

    They have 3 to 9 letters, all of a..z: no names, abbreviations, apostrophes or accents.
    """
    least, most = lengths
    listed = dict.fromkeys(read_text(path).split())
    words = [word for word in listed if least <= len(word) <= most and set(word) <= set(LETTERS)]
    if not words:
        raise FactorankError(f"{path}: there is no word of {least} to {most} letters a..z in it")
    return words


def anagram_sets(words: Iterable[str]) -> dict[str, list[str]]:
    """The words that are spelt with the same letters, by those letters in alphabetical order.

    >>> anagram_sets(["tea", "ten", "eat", "net"])
    {'aet': ['tea', 'eat'], 'ent': ['ten', 'net']}
    """
    sets: dict[str, list[str]] = {}
    for word in words:
        sets.setdefault("".join(sorted(word)), []).append(word)
    return sets


def split_sets(sets: Iterable[str], share: float = 0.05) -> tuple[list[str], list[str]]:
    """Split letter sets into those to train on and those to hold out, about ``share`` of them.

    A hash of the letters decides, so that a set is on the same side in every list.

    >>> split_sets(["aet", "ent", "eforst"], share=0)
    (['aet', 'ent', 'eforst'], [])
    """
    train: list[str] = []
    held_out: list[str] = []
    for letters in sets:
        number = int.from_bytes(hashlib.sha256(letters.encode()).digest()[-8:], "big")
        (held_out if number < share * 2**64 else train).append(letters)
    return train, held_out


def spelling_count(letters: str) -> int:
    """How many orders of the letters spell each of their words.

    >>> spelling_count("ate"), spelling_count("eses")
    (1, 4)
    """
    return math.prod(math.factorial(letters.count(letter)) for letter in set(letters))


def spellings(word: str, letters: str) -> list[list[int]]:
    """Every order of the letters that spells the word: several if a letter occurs more than once.

    >>> spellings("tea", "ate"), spellings("see", "ese")
    ([[1, 2, 0]], [[1, 0, 2], [1, 2, 0]])
    """
    if sorted(word) != sorted(letters):
        raise FactorankError(f"{word!r} is not spelt with the letters {letters!r}")
    kinds = sorted(set(word))
    where = [[i for i, letter in enumerate(letters) if letter == kind] for kind in kinds]
    orders = []
    for chosen in product(*(permutations(places) for places in where)):
        next_of = {kind: iter(places) for kind, places in zip(kinds, chosen, strict=True)}
        orders.append([next(next_of[letter]) for letter in word])
    return orders
