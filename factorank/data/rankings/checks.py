"""Checks that every format of rankings shares: text, names, counts. An error begins with its place."""

import re
import unicodedata
from collections.abc import Iterable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import NoReturn

from factorank.errors import RankingsError

MOST = 2**63 - 1
"""The largest count: what an int64 holds."""


def fail(where: str, message: str, parameter: str | None = None) -> NoReturn:
    """Raise an error at a place: ``votes.soc:17: …``."""
    raise RankingsError(f"{where}: {message}", parameter=parameter)


def read_text(path: Path) -> str:
    """The text of a file, with ``\\n`` line ends and without the byte-order mark that Excel writes first."""
    data = path.read_bytes()
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        fail(f"{path}:1", "the file is in UTF-16; save it as UTF-8")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        fail(f"{path}:{line}", f"byte 0x{data[error.start]:02x} is not UTF-8; save the file as UTF-8")
    text = text.replace("\r\n", "\n")
    strays = {"\0": "a zero byte", "\r": "a carriage return inside a line", "\ufeff": "a byte-order mark"}
    for stray, name in strays.items():
        if (place := text.find(stray)) >= 0:
            fail(f"{path}:{text.count(chr(10), 0, place) + 1}", f"{name}; rankings are plain UTF-8 text")
    if not text.strip():
        fail(str(path), "the file is empty")
    return text


def check_name(name: str, where: str) -> str:
    """The name of an item, refused if it is empty, has several lines or has white space around it."""
    if fault := _fault_of_name(name):
        fail(where, fault)
    return name


@lru_cache(maxsize=10_000)  # a table of orders repeats the same names in every row
def _fault_of_name(name: str) -> str:
    if not name:
        return "an item has an empty name"
    if name != name.strip():
        return f"the item name {name!r} has white space around it"
    for character in name:
        if unicodedata.category(character) in ("Cc", "Cs", "Zl", "Zp"):
            return f"the item name {name!r} holds the control character {character!r}"
    return ""


def check_names(names: Sequence[str], where: str) -> list[str]:
    """The names of items, refused if one is no name or two are equal."""
    number_of: dict[str, int] = {}
    for number, name in enumerate(names):
        check_name(name, where)
        if name in number_of:
            fail(where, f"two items have the name {name!r}: numbers {number_of[name] + 1} and {number + 1}")
        number_of[name] = number
    return list(names)


def whole_number(cell: object, where: str, what: str, least: int = 1) -> int:
    """A count or a rank from a cell of text or of a typed column; ``3`` and ``3.0`` are both 3."""
    if (plain := plain_number(cell)) is not None and plain >= least:
        return plain
    text = str(cell).strip()
    if not re.fullmatch(r"[0-9]+(\.0*)?", text, re.ASCII):
        broken = re.fullmatch(r"[0-9]+\.[0-9]+", text)
        hint = "; break ties or give tied items the same whole number" if broken else ""
        fail(where, f"the {what} is {cell!r}, not a whole number from {least}{hint}")
    digits = text.split(".")[0].lstrip("0") or "0"
    value = int(digits) if len(digits) <= 19 else MOST + 1
    if value < least:
        fail(where, f"the {what} is {value}; it is at least {least}")
    if value > MOST:
        shown = text if len(text) < 30 else text[:26] + "…"
        fail(where, f"the {what} is {shown}; at most {MOST} can be held")
    return value


def plain_number(cell: object) -> int | None:
    """The number in a cell of digits, None for other cells: nearly all cells take this quick path."""
    if type(cell) is int and 0 <= cell <= MOST:
        return cell
    if type(cell) is str and len(cell) <= 18 and cell.isascii() and cell.isdigit():
        return int(cell)
    return None


def check_total(counts: Iterable[int], where: str) -> int:
    """The number of voters, refused if an int64 cannot hold it."""
    total = sum(counts)
    if total > MOST:
        fail(where, f"the counts add up to {total} voters; at most {MOST} can be held")
    return total
