"""The names that the command line gives to parameters of the library."""

from typing import Any, get_type_hints

from factorank.errors import FactorankError


def in_options(error: FactorankError, command: Any) -> str:
    """The message of an error, with its parameter as the option of the command that sets it.

    An error without a parameter, or about one that the command does not set, keeps its message.
    """
    option = None if error.parameter is None else option_name(command, error.parameter)
    return str(error) if option is None else error.with_option(option)


def option_name(command: Any, parameter: str) -> str | None:
    """The option of a command that sets a parameter, by the field of that name; None if there is none."""
    hints = get_type_hints(type(command), include_extras=True)
    if parameter not in hints:
        return None
    for mark in getattr(hints[parameter], "__metadata__", ()):
        if getattr(mark, "name", None):  # tyro.conf.arg(name=…)
            return f"--{mark.name}"
        if getattr(mark, "metavar", None):  # of a positional argument
            return mark.metavar
    return f"--{parameter.replace('_', '-')}"
