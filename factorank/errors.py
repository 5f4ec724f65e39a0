"""Errors of the library. All are ``ValueError``s, and all say what was given, where, and what is allowed."""

import re
import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Self


class FactorankError(ValueError):
    """Base class of every error that factorank raises for bad input.

    Args:
        message: what is wrong and what is allowed. ``{parameter}`` in it stands for the parameter's name,
            ``{parameter=value}`` for the parameter with that value, written as in Python.
        parameter: the name of the parameter that is wrong, or that helps. The command line names the option
            from it.

    >>> error = FactorankError("{parameter} is at least 1, not 0", parameter="log_every")
    >>> str(error), error.parameter
    ('log_every is at least 1, not 0', 'log_every')
    >>> error.with_option("--log-every")
    '--log-every is at least 1, not 0'
    >>> FactorankError("a tie; try {parameter='drop'}", parameter="ties").with_option("--ties")
    'a tie; try --ties drop'
    """

    def __init__(self, message: str = "", *, parameter: str | None = None) -> None:
        self.template, self.parameter = message, parameter
        super().__init__(message if parameter is None else _named(message, parameter, "{}={}"))

    def with_option(self, option: str) -> str:
        """The message of an error about a parameter, in terms of that option of the command line."""
        text = _named(self.template, option, "{} {}", bare=True)
        return f"{option}: {text}" if text == self.template else text

    def within(self, place: object) -> Self:
        """The same error with the place where it was found, such as a file, before its message."""
        return type(self)(f"{place}: {self.template}", parameter=self.parameter)


def _named(message: str, name: str, with_value: str, bare: bool = False) -> str:
    """A message with the name of the parameter filled in; ``bare`` values have no quotes."""

    def fill(match: re.Match[str]) -> str:
        value = match[1]
        return name if value is None else with_value.format(name, value.strip("\"'") if bare else value)

    return re.sub(r"\{parameter(?:=([^{}]*))?\}", fill, message)


class PermutationError(FactorankError):
    """The input is not a permutation (or not an integer tensor that could hold one)."""


class CodeError(FactorankError):
    """The input is not a code of the stated kind."""


class RankingsError(FactorankError):
    """A file or table of rankings holds something that is not a ranking; the message names file and line.

    An error about a row of rankings holds its number as ``row``. Its message then begins with "row 17", and
    :meth:`at` replaces that by the place of the row in a file.

    >>> error = RankingsError("does not rank 'ann'", row=1)
    >>> str(error), str(error.at(["votes.csv:2", "votes.csv:3"]))
    ("row 1 does not rank 'ann'", "votes.csv:3: the ranking does not rank 'ann'")
    """

    def __init__(self, message: str = "", *, parameter: str | None = None, row: int | None = None) -> None:
        self.row, self.fault = row, message
        super().__init__(message if row is None else f"row {row} {message}", parameter=parameter)

    def at(self, places: Sequence[str]) -> "RankingsError":
        """The same error with the place of its row in a file; ``places`` are those of all rows."""
        assert self.row is not None
        return RankingsError(f"{places[self.row]}: the ranking {self.fault}", parameter=self.parameter)


class RankingsWarning(UserWarning):
    """A file of rankings was read, but something in it was cleaned or left out."""


class RankerWarning(UserWarning):
    """Something that was told to a ranker has no effect."""


class RankerError(FactorankError):
    """A baseline ranker cannot be fitted to the data, or score the lists."""


class RatingsError(FactorankError):
    """A table of ratings cannot be read, or holds too few ratings."""


class DistributionError(FactorankError):
    """A law cannot take this parameter or observation, or has no such quantity."""


class TrainingError(FactorankError):
    """A training run cannot start, resume or continue."""


class ModelError(FactorankError):
    """A model cannot be built or loaded, or has no such law."""


_WITHIN = ("factorank", "torch")


def warn(message: str, kind: type[Warning] = UserWarning) -> None:
    """Warn, and name the line that called the library: the nearest one neither of it nor of torch."""
    level, frame = 2, sys._getframe(1).f_back
    while frame is not None and str(frame.f_globals.get("__name__")).partition(".")[0] in _WITHIN:
        level, frame = level + 1, frame.f_back
    warnings.warn(message, kind, level + 1)


@contextmanager
def short_of_memory(advice: str) -> Iterator[None]:
    """Add advice to an error that says that the memory of a GPU or of the machine is used up."""
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        # Torch has a class for GPUs alone; for the machine's memory there is only the text.
        known = isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError"
        if known or "can't allocate memory" in str(error):
            error.add_note(advice)
        raise
