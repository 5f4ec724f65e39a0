"""Which function fits which family: a registry by class, filled by the modules that define the fits.

``Mallows.fit`` looks its function up here, so that no law needs to import the fits, which import the laws.
"""

from collections.abc import Callable
from typing import Any, TypeVar

Fitter = TypeVar("Fitter", bound=Callable[..., Any])
_fitters: dict[type, Callable[..., Any]] = {}


def register_fitter(family: type) -> Callable[[Fitter], Fitter]:
    """Register the function behind the ``fit`` of a family."""

    def register(function: Fitter) -> Fitter:
        _fitters[family] = function
        return function

    return register


def fitter(family: type) -> Callable[..., Any]:
    """The function behind the ``fit`` of a family."""
    return _fitters[family]
