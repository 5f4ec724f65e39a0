"""Checks that the data type and all formats of rankings share: text, names, counts, ranks.

Ranks are levels from 0, equal for tied items, -1 for unranked ones.
"""

import re
from collections.abc import Collection, Iterable, Sequence
from itertools import chain, count
from pathlib import Path
from typing import NoReturn

import torch
from torch import Tensor

from factorank.errors import RankingsError

MOST = 2**63 - 1
"""The largest count: what an int64 holds."""
MOST_RANKS = 2**27
"""Rankings of n items hold n numbers each: at most so many in all, which is 1 GiB."""
_CONTROL = re.compile("[\\x00-\\x1f\\x7f-\\x9f\\ud800-\\udfff\\u2028\\u2029]")


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
    if not name:
        fail(where, "an item has an empty name")
    if name != name.strip():
        fail(where, f"the item name {shown(name)} has white space around it")
    if control := _CONTROL.search(name):
        fail(where, f"the item name {shown(name)} holds the control character {control[0]!r}")
    return name


def cleaned_name(name: str, taken: Collection[str] = ()) -> str:
    """A name without control characters and without white space around it, and none of those ``taken``.

    UTF-8 that was once read as Latin-1 leaves control characters behind. Where that explains them, it is
    undone; else they are taken out. Two items stay two: a number tells them apart if nothing else does.

    >>> cleaned_name("M\xc3\x89NAGER"), cleaned_name(" two\x07tone "), cleaned_name("a\x07", taken={"a"})
    ('MÉNAGER', 'twotone', 'a (2)')
    """
    if not _CONTROL.search(name):
        return name.strip()
    bare = _CONTROL.sub("", name).strip()
    try:
        repaired = _CONTROL.sub("", name.encode("latin-1").decode("utf-8")).strip()
    except UnicodeError:
        repaired = bare
    ways = chain([repaired, bare], (f"{repaired} ({number})" for number in count(2)))
    return next(way for way in ways if way not in taken) if repaired and bare else ""


def check_names(names: Sequence[str], where: str) -> list[str]:
    """The names of items, refused if one is no name or two are equal."""
    number_of: dict[str, int] = {}
    for number, name in enumerate(names):
        check_name(name, where)
        if name in number_of:
            fail(where, f"two items have the name {name!r}: numbers {number_of[name] + 1} and {number + 1}")
        number_of[name] = number
    return list(names)


def shown(value: object) -> str:
    """A value from a file as a message shows it: quoted, and cut if it is long."""
    text = str(value)
    return repr(text if len(text) <= 40 else text[:37] + "…")


def check_size(rows: int, n: int, where: str) -> None:
    """Refuse rankings that would fill the memory."""
    if rows * n > MOST_RANKS:
        size = f"{rows:,} different rankings of {n:,} items hold {rows * n:,} ranks"
        fail(where, f"{size}; at most {MOST_RANKS:,} can be held")


def whole_number(cell: object, where: str, what: str, least: int = 1) -> int:
    """A count or a rank from a cell of text or of a typed column; ``3`` and ``3.0`` are both 3."""
    text = str(cell)
    if len(text) <= 18 and text.isascii() and text.isdigit() and int(text) >= least:
        return int(text)  # nearly all cells take this quick path
    text = text.strip()
    if not re.fullmatch(r"[0-9]+(\.0*)?", text, re.ASCII):
        fail(where, f"the {what} is {shown(cell)}, not a whole number from {least}")
    digits = text.split(".")[0].lstrip("0") or "0"
    value = int(digits) if len(digits) <= 19 else MOST + 1
    if value < least:
        fail(where, f"the {what} is {value}; it is at least {least}")
    if value > MOST:
        number = text if len(text) < 30 else text[:26] + "…"
        fail(where, f"the {what} is {number}; at most {MOST} can be held")
    return value


def check_total(counts: Iterable[int], where: str) -> int:
    """The number of voters, refused if an int64 cannot hold it."""
    total = sum(counts)
    if total > MOST:
        fail(where, f"the counts add up to {total} voters; at most {MOST} can be held")
    return total


def levels_of(ranks: Sequence[int]) -> list[list[int]]:
    """Groups of tied items, best first, from a row of ranks."""
    levels: list[list[int]] = [[] for _ in range(max(ranks, default=-1) + 1)]
    for item, rank in enumerate(ranks):
        if rank >= 0:
            levels[rank].append(item)
    return levels


def check_ranks(ranks: Tensor) -> None:
    """Every row uses the levels 0..k without a gap and ranks at least one item."""
    n = ranks.shape[1]
    levels = torch.zeros((len(ranks), n + 1), dtype=torch.bool)
    levels.scatter_(1, torch.where((ranks < 0) | (ranks >= n), n, ranks), True)
    for fault, word in (
        (((ranks < -1) | (ranks >= n)).any(1), f"a rank outside -1..{n - 1}"),
        ((ranks < 0).all(1), "no ranked item"),
        ((levels[:, 1:n] & ~levels[:, : max(n - 1, 0)]).any(1), "a gap in its ranks"),
    ):
        if fault.any():
            row = int(fault.int().argmax())
            raise RankingsError(
                f"holds {word}: {ranks[row].tolist()}; ranks are 0, 1, … and -1 for unranked", row=row
            )


def tied_rows(ranks: Tensor) -> Tensor:
    """Which rows hold a tie: they have fewer levels than ranked items."""
    levels = ranks.amax(1) + 1 if ranks.shape[1] else 0
    return (ranks >= 0).sum(1) > levels
