"""Parquet files of strangers: what they state of themselves is checked before polars reads them.

Polars asks for as much memory as a file tells it to; where that cannot be had, Rust ends the process, which
nothing in Python can catch. So the sizes of columns and pages and the numbers of values in them, as the file
states them, are compared with each other and with the file. They are structs in the compact protocol of
Apache Thrift; https://parquet.apache.org/docs/file-format says which.
"""

import struct
from typing import Any, BinaryIO

from factorank.errors import FactorankError

NOT_PARQUET = "no parquet file, or a damaged one"
MOST_VALUES = 2**28
"""Values of a column in one group of rows."""
LARGEST_FOOTER = 2**28
LARGEST_PAGE = 2**26
"""Bytes of an unpacked page that is larger than its column says; some writers do not count all."""
MOST_PAGES = 2**20
"""Of a file. Each takes some millionths of a second here."""
DEEPEST = 32
"""Structs inside of one another."""


def check_parquet(file: BinaryIO, name: object, error: type[FactorankError]) -> None:
    """Refuse a file whose sizes cannot be true, in the name of the file."""
    try:
        _check(file)
    except _WrongError as wrong:
        raise error(f"{name}: {NOT_PARQUET}: {wrong}") from None


class _WrongError(Exception):
    """What is wrong with a file."""


def _check(file: BinaryIO) -> None:
    size = file.seek(0, 2)
    file.seek(max(size - 8, 0))
    tail = file.read(8)
    if size < 12 or tail[4:] != b"PAR1":
        raise _WrongError("it does not end as one")
    (length,) = struct.unpack("<I", tail[:4])
    if length > min(size - 12, LARGEST_FOOTER):
        raise _WrongError("its footer would be longer than the file")
    file.seek(size - 8 - length)
    footer, rows = _Reader(file.read(length)).struct(), 0
    left, pages = size, MOST_PAGES
    for group in _structs(footer, 4):
        rows += _number(group, 3, MOST_VALUES)
        for column in _structs(group, 1):
            left -= _number(column.get(3), 7, left)  # no two columns share bytes
            pages -= _check_column(file, column.get(3), size, pages)
    if rows != _number(footer, 3, 2**62):
        raise _WrongError("it has not as many rows as it says")


def _check_column(file: BinaryIO, facts: Any, size: int, most: int) -> int:
    """The column of a group of rows: its pages, ``most`` of them, follow one another and hold its values."""
    values, unpacked, packed = (
        _number(facts, 5, MOST_VALUES),
        _number(facts, 6, 2**40),
        _number(facts, 7, size),
    )
    starts = [_number(facts, field, size) for field in (9, 11) if field in facts]
    at = min([start for start in starts if start], default=0)
    end, found, pages = at + packed, 0, 0
    if end > size:
        raise _WrongError("a column would end after the file")
    while at < end:
        pages += 1
        if pages > most:
            raise _WrongError(f"it has more than {MOST_PAGES:,} pages")
        file.seek(at)
        reader = _Reader(file.read(min(end - at, 2**16)))
        header = reader.struct()
        at += reader.at
        largest, length = max(unpacked, LARGEST_PAGE), _number(header, 3, end - at)
        whole = _number(header, 2, largest)
        if 5 in header:  # a page of values
            found += _number(header[5], 1, MOST_VALUES)
        if 7 in header:  # a dictionary: each entry takes a byte or more
            _number(header[7], 1, whole)
        if 8 in header:  # a page of values, as newer writers lay it out
            count = _number(header[8], 1, MOST_VALUES)
            _number(header[8], 2, count)
            _number(header[8], 3, count)
            _number(header[8], 6, length - _number(header[8], 5, length))
            found += count
        at += length
    if found != values:
        raise _WrongError("a column has not as many values as it says")
    return pages


def _number(fields: Any, number: int, most: int) -> int:
    """A field that holds a number from 0 to ``most``."""
    value = fields.get(number) if isinstance(fields, dict) else None
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= most:
        raise _WrongError(f"it states {str(value)[:40]} where a number from 0 to {most:,} belongs")
    return value


def _structs(fields: dict[int, Any], number: int) -> list[dict[int, Any]]:
    value = fields.get(number)
    if not isinstance(value, list) or not all(isinstance(each, dict) for each in value):
        raise _WrongError("its footer lacks a list")
    return value


class _Reader:
    """Reads structs as ``{number of the field: value}``: numbers, bytes, lists and structs."""

    def __init__(self, data: bytes) -> None:
        self.data, self.at = data, 0

    def struct(self, depth: int = 0) -> dict[int, Any]:
        if depth > DEEPEST:
            raise _WrongError("its structs are nested too deeply")
        fields: dict[int, Any] = {}
        number = 0
        while head := self._byte():
            number = number + (head >> 4) if head >> 4 else self._signed()
            kind = head & 15
            fields[number] = kind == 1 if kind in (1, 2) else self._value(kind, depth)
        return fields

    def _value(self, kind: int, depth: int) -> Any:
        if kind in (1, 2, 3):
            return self._byte()
        if kind in (4, 5, 6):
            return self._signed()
        if kind == 7:
            return self._bytes(8)
        if kind == 8:
            return self._bytes(self._unsigned())
        if kind in (9, 10):
            head = self._byte()
            count = head >> 4 if head >> 4 < 15 else self._unsigned()
            if count > len(self.data) - self.at:
                raise _WrongError("a list would be longer than the file")
            if depth > DEEPEST:
                raise _WrongError("its lists are nested too deeply")
            return [self._value(head & 15, depth + 1) for _ in range(count)]
        if kind == 12:
            return self.struct(depth + 1)
        raise _WrongError(f"a field has the type {kind}, which is none")

    def _byte(self) -> int:
        return self._bytes(1)[0]

    def _bytes(self, count: int) -> bytes:
        part = self.data[self.at : self.at + count]
        if len(part) < count:
            raise _WrongError("it ends amid a field")
        self.at += count
        return part

    def _unsigned(self) -> int:
        value = 0
        for shift in range(0, 70, 7):
            byte = self._byte()
            value |= (byte & 127) << shift
            if byte < 128:
                return value
        raise _WrongError("a number has more than 64 bits")

    def _signed(self) -> int:
        value = self._unsigned()
        return (value >> 1) ^ -(value & 1)
