"""Errors of the library. All are ``ValueError``s, and all say what was given, where, and what is allowed."""

from collections.abc import Iterator
from contextlib import contextmanager


class FactorankError(ValueError):
    """Base class of every error that factorank raises for bad input."""


class PermutationError(FactorankError):
    """The input is not a permutation (or not an integer tensor that could hold one)."""


class CodeError(FactorankError):
    """The input is not a code of the stated kind."""


class RankingsError(FactorankError):
    """A file or table of rankings holds something that is not a ranking; the message names file and line."""


class RatingsError(FactorankError):
    """A table of ratings cannot be read, or has too little in it for what is asked."""


class DistributionError(FactorankError):
    """A law cannot take this parameter or observation, or cannot give what it is asked for."""


class TrainingError(FactorankError):
    """A training run cannot start, resume or go on as asked."""


class ModelError(FactorankError):
    """A model cannot be built, loaded, or asked for this law."""


@contextmanager
def short_of_memory(advice: str) -> Iterator[None]:
    """Add to an error that the memory is used up, of a GPU or of the machine, what can be done about it."""
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        # Torch has a class for GPUs alone; for the machine's memory there is only the text.
        if (
            type(error).__name__ == "OutOfMemoryError"
            or isinstance(error, MemoryError)
            or "can't allocate memory" in str(error)
        ):
            error.add_note(advice)
        raise
