"""What an annotation of a parameter allows: as a test of values, and in words."""

import inspect
import numbers
import os
import types
import typing
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, Literal, Union, get_args, get_origin

import numpy as np
import torch
from torch import Tensor

Test = Callable[[Any], bool]
LOOKED_AT = 1000
"""So many elements of a list are looked at."""


def resolved(annotation: Any, function: Any) -> Any:
    """An annotation as a type; Any where there is none, or where its names are for type checkers alone."""
    if annotation is inspect.Parameter.empty:
        return Any
    try:
        return typing.get_type_hints(
            types.SimpleNamespace(__annotations__={"it": annotation}), _names(function)
        )["it"]
    except (NameError, TypeError, AttributeError, SyntaxError):
        return Any


def test_of(hint: Any) -> Test:
    """A test of whether a value may be meant by a parameter with this annotation."""
    origin, parts = get_origin(hint), get_args(hint)
    if hint is Any or isinstance(hint, typing.TypeVar | str):
        return lambda value: True
    if hint is None or hint is types.NoneType:
        return lambda value: value is None
    if origin in (Union, types.UnionType):
        tests = [test_of(part) for part in parts]
        return lambda value: any(test(value) for test in tests)
    if origin is Literal:
        return lambda value: any(type(value) is type(part) and value == part for part in parts)
    kind = origin or hint
    if kind in _LEAVES:
        return _LEAVES[kind]
    if not isinstance(kind, type) or getattr(kind, "_is_protocol", False):
        return lambda value: True
    if issubclass(kind, Mapping):
        return lambda value: isinstance(value, Mapping)
    if kind is tuple and parts and parts[-1] is not ...:
        each = [test_of(part) for part in parts]
        return lambda value: (
            isinstance(value, tuple | list)
            and len(value) == len(each)
            and all(test(part) for test, part in zip(each, value, strict=True))
        )
    if kind is Callable:
        return callable
    if issubclass(kind, Iterable) and kind.__module__ in _GENERAL:
        inner = test_of(parts[0]) if parts else (lambda value: True)
        text = parts[:1] == (str,) and kind.__module__ == "collections.abc"  # a text is a sequence of letters
        return lambda value: _several(value, inner, text)
    return lambda value: isinstance(value, kind)


def described(hint: Any) -> str:
    """An annotation in words."""
    origin, parts = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        return " or ".join(dict.fromkeys(described(part) for part in parts))
    if origin is Literal:
        return " or ".join(map(repr, parts))
    kind = origin or hint
    if hint is None or hint is types.NoneType:
        return "None"
    if kind in _WORDS:
        return _WORDS[kind]
    if isinstance(kind, type) and issubclass(kind, Mapping):
        return "a mapping"
    if kind is Callable:
        return "a function"
    if (
        isinstance(kind, type)
        and issubclass(kind, Iterable)
        and kind.__module__ in ("collections.abc", "builtins")
    ):
        return "a sequence"
    return f"a {getattr(kind, '__name__', kind)}"


def shown(value: Any) -> str:
    """A value as a message shows it: short, and without control characters."""
    if isinstance(value, Tensor | np.ndarray):
        dtype = str(value.dtype).removeprefix("torch.")
        return f"{type(value).__name__} of {dtype} {tuple(value.shape)}"
    if isinstance(value, str | bytes | int | float | complex | None):
        text = ascii(value)
        return text if len(text) <= 40 else text[:37] + "…"
    return f"a {value.__name__ if isinstance(value, type) else type(value).__name__}"


def is_whole(value: Any) -> bool:
    """Whether a value is a whole number: of Python or numpy, or a tensor of one; bool is none."""
    if isinstance(value, Tensor):
        return (
            value.ndim == 0
            and not value.is_floating_point()
            and not value.is_complex()
            and value.dtype != torch.bool
        )
    return isinstance(value, numbers.Integral) and not isinstance(value, bool | np.bool_)


def is_real(value: Any) -> bool:
    """Whether a value is a real number."""
    if isinstance(value, Tensor):
        return value.ndim == 0 and not value.is_complex() and value.dtype != torch.bool
    return isinstance(value, numbers.Real) and not isinstance(value, bool | np.bool_)


_GENERAL = ("collections.abc", "builtins")
_LEAVES: dict[Any, Test] = {
    int: is_whole,
    float: is_real,
    complex: lambda value: isinstance(value, numbers.Complex),
    bool: lambda value: isinstance(value, bool | np.bool_),
    str: lambda value: isinstance(value, str),
    os.PathLike: lambda value: isinstance(value, str | os.PathLike),
    object: lambda value: True,
    Tensor: lambda value: isinstance(value, Tensor) and not value.is_complex(),
    np.ndarray: lambda value: isinstance(value, np.ndarray) and value.dtype.kind != "c",
    torch.Size: lambda value: _several(value, is_whole),
}
_PLAIN: dict[Test, set[type]] = {is_whole: {int}, is_real: {int, float}, _LEAVES[str]: {str}}
_WORDS = {int: "a whole number", float: "a number", bool: "True or False", str: "text", Tensor: "a tensor"}
_WORDS |= {os.PathLike: "a path", np.ndarray: "an array", torch.Size: "a shape", torch.dtype: "a dtype"}


def _several(value: Any, inner: Test, text: bool = False) -> bool:
    """Whether a value is a collection, or an array or frame; its first elements are looked at."""
    if isinstance(value, str | bytes | Mapping | type):
        return text and isinstance(value, str)
    if isinstance(value, list | tuple):
        some = value[:LOOKED_AT]
        plain = _PLAIN.get(inner)  # the common types are told quickly: every request has long lists
        return (plain is not None and plain.issuperset(map(type, some))) or all(map(inner, some))
    if isinstance(value, Tensor | np.ndarray):
        return _LEAVES[Tensor](value) or _LEAVES[np.ndarray](value)
    return isinstance(value, Collection | Iterable) or hasattr(value, "__array__")


def is_masked(value: Any) -> bool:
    """Whether a value, or a column of a table, is an array of numpy with masked entries.

    A tensor, or a plain array, would show them all the same.
    """
    if isinstance(value, Mapping):
        return any(isinstance(column, np.ma.MaskedArray) and is_masked(column) for column in value.values())
    return isinstance(value, np.ma.MaskedArray) and bool(np.ma.is_masked(value))


def holds_path(hint: Any) -> bool:
    """Whether an annotation names paths."""
    return (isinstance(hint, type) and issubclass(hint, os.PathLike)) or any(map(holds_path, get_args(hint)))


def _names(function: Any) -> dict[str, Any]:
    return dict(getattr(inspect.unwrap(function), "__globals__", {}))
