"""The one layer around public functions, constructors and methods that checks arguments by their annotations.

:func:`guard` puts it around everything that is public. An argument of a type that the signature does not name
is refused by an :class:`ArgumentTypeError`, and so are complex numbers and masked arrays, of which a part
would be lost in silence. The function's own words say more where it has some: it is called
first and its answer dropped, unless it takes a path, where it might write. If a call fails with an error of
Python, torch or numpy, arguments do not fit one another: the error of ours is of the original type, too, so
that ``except RuntimeError`` goes on to work. What the caller's own code raises, such as a callback or an
encoder, stays as it is.
"""

import functools
import inspect
import sys
from collections.abc import Iterable
from typing import Any, Union

import torch

from factorank.annotations import LOOKED_AT, Test, described, holds_path, is_masked, resolved, shown, test_of
from factorank.errors import FactorankError

INNER = (TypeError, ValueError, RuntimeError, LookupError, AttributeError, ArithmeticError, MemoryError)
"""What Python, torch and numpy raise if arguments do not fit one another, or ask for too much."""


class ArgumentTypeError(FactorankError, TypeError):
    """An argument is of a type that the function does not take."""


def guard(module: str, names: Iterable[str] | None = None) -> None:
    """Check the arguments of the public functions of a module, and of the methods of its public classes.

    ``names`` are the public ones; without them, all that the module defines and that have no underscore.
    Functions are replaced in the module and where they are defined, methods in their classes.
    """
    public = sys.modules[module]
    if names is None:
        own = [(name, value) for name, value in vars(public).items() if not name.startswith("_")]
        names = [name for name, value in own if getattr(value, "__module__", None) == module]
    for name in names:
        value: Any = getattr(public, name)
        if not str(getattr(value, "__module__", "")).startswith("factorank"):
            continue
        if inspect.isfunction(value):
            home, own_name, guarded = sys.modules[value.__module__], value.__name__, checked(value)
            if getattr(home, own_name, None) is value:
                setattr(home, own_name, guarded)
            setattr(public, name, guarded)
        elif inspect.isclass(value) and not issubclass(value, BaseException):
            for parent in value.__mro__:
                if parent.__module__.startswith("factorank"):
                    guard_class(parent)


def checked(function: Any) -> Any:
    """The function with its arguments checked by their annotations, and raw errors as errors of ours.

    >>> @checked
    ... def repeat(word: str, times: int = 2) -> str:
    ...     return word * times
    >>> repeat("ab", times=3)
    'ababab'
    >>> repeat("ab", times="3")
    Traceback (most recent call last):
    ...
    factorank.arguments.ArgumentTypeError: times is a whole number, not '3'
    """
    if hasattr(function, "__checked__"):
        return function
    if "__guarded__" in vars(function):
        return function.__guarded__
    tests: dict[str, tuple[Test, str, Any]] = {}
    order: list[str] = []
    ready = writes = False

    def prepare() -> None:
        nonlocal ready, writes
        for parameter in inspect.signature(function).parameters.values():
            if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD):
                order.append(parameter.name)
            if parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
                hint = resolved(parameter.annotation, function)
                if parameter.default is None and hint is not Any:
                    hint = hint | None if isinstance(hint, type) else Union[hint, None]  # noqa: UP007
                if hint is not Any:
                    tests[parameter.name] = (test_of(hint), described(hint), parameter.default)
                    writes = writes or (holds_path(hint) and function.__name__ != "__init__")
        ready = True

    def fault(args: Any, kwargs: Any) -> ArgumentTypeError | None:
        for name, value in (*zip(order, args, strict=False), *kwargs.items()):
            if is_masked(value):
                return ArgumentTypeError("{parameter} has masked entries; leave them out", parameter=name)
            if name in tests and not tests[name][0](value) and value is not tests[name][2]:
                words = f"{{parameter}} is {tests[name][1]}, not {shown(value)}"
                if isinstance(value, list | tuple) and tests[name][0]([]):
                    wrong = next((each for each in value[:LOOKED_AT] if not tests[name][0]([each])), value)
                    words += "" if wrong is value else f" that holds {shown(wrong)}"
                return ArgumentTypeError(words, parameter=name)
        return None

    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        if torch.compiler.is_compiling():
            return function(*args, **kwargs)
        if not ready:
            prepare()
        wrong = fault(args, kwargs)
        if wrong is not None and writes:
            raise wrong
        try:
            answer = function(*args, **kwargs)
        except FactorankError:  # the function's own words say more
            raise
        except AssertionError as error:
            if "not compiled with" not in str(error):  # torch, of a device
                raise
            raise FactorankError(f"{function.__qualname__}: {error}") from error
        except Exception as error:
            if not isinstance(error, INNER) and type(error).__module__.partition(".")[0] != "numba":
                raise
            if wrong is not None:
                raise wrong from error
            raised: Any = type(error)
            if (kind := _ours(raised)) is None or _theirs(error):
                raise
            ours = kind(f"{function.__qualname__} cannot take these arguments: {error}")
            for note in getattr(error, "__notes__", ()):  # what to lower, if memory is short
                ours.add_note(note)
            raise ours from error
        if wrong is not None:
            raise wrong
        return answer

    wrapper.__checked__ = True  # type: ignore[attr-defined]
    function.__guarded__ = wrapper
    return wrapper


_KNOWN = {"factorank", "torch", "numpy", "numba", "scipy", "PIL", "pandas", "polars", "pyarrow"}
_KNOWN |= {"safetensors"} | sys.stdlib_module_names - {"__main__"}
"""Where code lies that is not the caller's."""


def guard_class(kind: type) -> None:
    """Check the arguments of the public methods that a class defines itself."""
    for name, value in [*vars(kind).items()]:
        if name != "__init__" and (name.startswith("_") or name in ("forward", "check")):
            continue
        if isinstance(value, classmethod):
            setattr(kind, name, classmethod(checked(value.__func__)))
        elif isinstance(value, staticmethod):
            setattr(kind, name, staticmethod(checked(value.__func__)))
        elif inspect.isfunction(value) and not getattr(value, "__isabstractmethod__", False):
            setattr(kind, name, checked(value))


def _theirs(error: BaseException) -> bool:
    """Whether an error was raised by code of the caller that the library called, or below it."""
    trace, names = error.__traceback__, []
    while trace is not None:
        names.append(str(trace.tb_frame.f_globals.get("__name__", "")))
        trace = trace.tb_next
    return any(name.partition(".")[0] not in _KNOWN for name in names[2:])  # after the layer and its function


@functools.cache
def _ours(kind: type[Exception]) -> type[FactorankError] | None:
    """A class of our errors that is of this kind as well; None for errors of memory and of the system."""
    if issubclass(kind, OSError | torch.OutOfMemoryError | RecursionError):
        return None
    if issubclass(kind, UnicodeError):  # which takes more than words
        return FactorankError
    name = f"Argument{kind.__name__}"
    try:
        ours = type(name, (FactorankError, kind), {"__module__": __name__})
    except TypeError:  # of a kind that cannot be combined
        ours = type(name, (FactorankError,), {"__module__": __name__})
    return globals().setdefault(name, ours)  # found by its name when it is sent to another process
