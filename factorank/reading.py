"""The one way to read a small file that somebody else may have written: bytes, text, JSON, tensors.

A reader here refuses a file that is too large, not UTF-8, not JSON, nested too deep or of the wrong types,
with an error that names the file and the fault. Nothing that is read is ever run.
"""

import dataclasses
import gzip
import json
import math
import os
import types
import zlib
from typing import TYPE_CHECKING, Any, Literal, Union, get_args, get_origin, get_type_hints

from factorank.errors import FactorankError

if TYPE_CHECKING:
    from torch import Tensor

LARGEST_TEXT = 1 << 30
"""The most bytes of a text that is read whole."""
LARGEST_JSON = 1 << 28
"""The most bytes of a JSON file: the ids and titles of two million items."""
DEEPEST = 64
"""The most levels of lists and objects within one another in JSON."""

PathLike = str | os.PathLike[str]


def read_bytes(path: PathLike, *, most: int, error: type[FactorankError] = FactorankError) -> bytes:
    """The bytes of a file; ``OSError`` if there is none that can be read, ``error`` if it is too large."""
    parts, length = [], 0
    with open(os.fspath(path), "rb") as file:  # a number would be an open file of the process
        part = file.read(min(os.fstat(file.fileno()).st_size, most) + 1)  # a pipe or device has no size
        while part:
            parts.append(part)
            length += len(part)
            if length > most:
                raise error(f"{path}: larger than the {most:,} bytes that are read of such a file")
            part = file.read(1 << 20)
    return parts[0] if len(parts) == 1 else b"".join(parts)


def read_gzip(path: PathLike, *, most: int, error: type[FactorankError] = FactorankError) -> bytes:
    """What a file packed by gzip holds, of which no more than ``most`` bytes are unpacked."""
    try:
        with gzip.open(os.fspath(path), "rb") as file:
            data = file.read(most + 1)
    except (EOFError, zlib.error, gzip.BadGzipFile) as failure:
        raise error(f"{path}: damaged, or not packed by gzip: {failure}") from None
    if len(data) > most:
        raise error(f"{path}: unpacks to more than the {most:,} bytes that are read of such a file")
    return data


def read_text(
    path: PathLike, *, most: int = LARGEST_TEXT, error: type[FactorankError] = FactorankError
) -> str:
    """The text of a UTF-8 file, with ``\\n`` line ends and without the byte-order mark that Excel writes."""
    return decode(read_bytes(path, most=most, error=error), path, error)


def decode(data: bytes, where: object, error: type[FactorankError] = FactorankError) -> str:
    """Bytes as UTF-8 text; an error names the line of the first byte that is none."""
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise error(f"{where}:1: the file is in UTF-16; save it as UTF-8")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as failure:
        line = data.count(b"\n", 0, failure.start) + 1
        fault = f"byte 0x{data[failure.start]:02x} is not UTF-8; save the file as UTF-8"
        raise error(f"{where}:{line}: {fault}") from None
    return text.replace("\r\n", "\n")


def read_json(
    path: PathLike, *, error: type[FactorankError] = FactorankError, most: int = LARGEST_JSON
) -> Any:
    """The value of a JSON file."""
    return parse_json(read_bytes(path, most=most, error=error), path, error)


def read_object(path: PathLike, *, error: type[FactorankError] = FactorankError) -> dict[str, Any]:
    """The object of a JSON file."""
    return expect(dict[str, Any], read_json(path, error=error), path, error)


def parse_json(
    data: bytes | str, where: object, error: type[FactorankError] = FactorankError, *, infinite: bool = False
) -> Any:
    """The value of JSON text, of at most :data:`DEEPEST` levels.

    Names that an object holds twice are refused, and so are NaN and infinite numbers unless ``infinite``.
    """

    def number(text: str) -> float:
        value = float(text)
        if not (math.isfinite(value) or infinite):
            raise ValueError(f"{text} is no finite number")
        return value

    try:
        text = decode(data, where, error) if isinstance(data, bytes) else data
        value = json.loads(text, parse_float=number, parse_constant=number, object_pairs_hook=_once)
    except FactorankError:
        raise
    except ValueError as failure:
        raise error(f"{where}: not JSON: {failure}") from None
    except RecursionError:
        raise error(f"{where}: nested deeper than the {DEEPEST} levels that are read") from None
    level = [value]
    for _ in range(DEEPEST + 1):
        level = [inner for outer in level for inner in _inside(outer)]
        if not level:
            return value
    raise error(f"{where}: nested deeper than the {DEEPEST} levels that are read")


def expect(kind: Any, value: Any, where: object, error: type[FactorankError] = FactorankError) -> Any:
    """The value, refused unless it is of the kind: a type as in annotations, such as ``list[int] | None``.

    >>> expect(list[int], [1, 2], "items.json")
    [1, 2]
    >>> expect(list[int], [1, "2"], "items.json")
    Traceback (most recent call last):
    ...
    factorank.errors.FactorankError: items.json: [1, '2'] is not list[int]
    """
    if not matches(value, kind):
        raise error(f"{where}: {_shown(value)} is not {_named(kind)}")
    return value


def fields_of(
    kind: type[Any], values: Any, where: object, error: type[FactorankError] = FactorankError
) -> dict[str, Any]:
    """The arguments of a dataclass from JSON: names and types are those of its fields; lists become tuples.

    >>> from factorank.errors import RankingsError
    >>> @dataclasses.dataclass
    ... class Size:
    ...     width: int
    ...     grid: tuple[int, int] = (1, 1)
    >>> Size(**fields_of(Size, {"width": 3, "grid": [2, 4]}, "size.json"))
    Size(width=3, grid=(2, 4))
    >>> fields_of(Size, {"width": "3"}, "size.json", RankingsError)
    Traceback (most recent call last):
    ...
    factorank.errors.RankingsError: size.json: width: '3' is not int
    """
    expect(dict[str, Any], values, where, error)
    hints = get_type_hints(kind)
    known = [field for field in dataclasses.fields(kind) if field.init]
    names = {field.name for field in known}
    needed = {
        field.name
        for field in known
        if field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
    }
    if unknown := [name for name in values if name not in names]:
        raise error(f"{where}: {_shown(unknown[0])} is no field of {kind.__name__}")
    if missing := sorted(needed - values.keys()):
        raise error(f"{where}: lacks {', '.join(missing)}")
    plain = {name: _tuples(value) if isinstance(value, list) else value for name, value in values.items()}
    for name, value in plain.items():
        expect(hints[name], value, f"{where}: {name}", error)
    return plain


def read_tensors(
    data: bytes, where: object, error: type[FactorankError] = FactorankError
) -> "dict[str, Tensor]":
    """The tensors of the bytes of a safetensors file."""
    from safetensors import SafetensorError
    from safetensors.torch import load

    try:
        return load(data)
    except (SafetensorError, KeyError, ValueError, TypeError, RuntimeError, OverflowError) as failure:
        raise error(f"{where}: not a safetensors file that can be read: {failure}") from None


def matches(value: Any, kind: Any) -> bool:
    """Whether a value is of a kind, which is a type as in annotations; whole numbers are floats as well."""
    origin, parts = get_origin(kind), get_args(kind)
    if kind is Any:
        return True
    if kind is None or kind is types.NoneType:
        return value is None
    if origin in (Union, types.UnionType):
        return any(matches(value, part) for part in parts)
    if origin is Literal:
        return any(type(value) is type(part) and value == part for part in parts)
    if origin is dict:
        return isinstance(value, dict) and all(
            matches(key, parts[0]) and matches(inner, parts[1]) for key, inner in value.items()
        )
    if origin is tuple and parts[-1:] != (...,):
        return isinstance(value, tuple) and len(value) == len(parts) and all(map(matches, value, parts))
    if origin in (list, tuple):
        return isinstance(value, origin) and all(matches(inner, parts[0]) for inner in value)
    if kind is float:
        return isinstance(value, int | float) and not isinstance(value, bool)
    if kind is int:
        return isinstance(value, int) and not isinstance(value, bool)
    return isinstance(value, origin or kind)


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    together = dict(pairs)
    if len(together) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"{_shown(twice)} stands twice in an object")
    return together


def _inside(value: Any) -> list[Any]:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return [each for each in inner if isinstance(each, dict | list)]


def _tuples(value: Any) -> Any:
    return tuple(map(_tuples, value)) if isinstance(value, list) else value


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "…"


def _named(kind: Any) -> str:
    return kind.__name__ if isinstance(kind, type) and get_origin(kind) is None else str(kind)
