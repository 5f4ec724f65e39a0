"""Errors of the library. All are ``ValueError``s, and all say what was given, where, and what is allowed."""


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
