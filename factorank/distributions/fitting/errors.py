"""What can go wrong in a fit."""

from factorank.errors import FactorankError


class FitWarning(UserWarning):
    """The data do not determine the law; the message names the items or voters that are the cause."""


class FitError(FactorankError):
    """The data or the settings of a fit make no sense."""
