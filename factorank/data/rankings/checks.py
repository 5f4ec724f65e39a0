"""What every format of rankings shares: the parts read from a file, the checks, the wording of errors."""

import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import NoReturn

from factorank.errors import RankingsError

UNRANKED = -1
MOST = 2**63 - 1
"""The largest count: what an int64 holds."""


@dataclass
class Parts:
    """Rankings as plain lists, between a file and :class:`factorank.Rankings`."""

    items: list[str]
    ranks: list[list[int]]
    """A row for each ranking: the place of each item from 0, equal for tied items, -1 for unranked ones."""
    counts: list[int]
    places: list[str] = field(default_factory=list)
    """Where each row stands, for messages: ``votes.soc:17``."""
    metadata: Mapping[str, str] = field(default_factory=dict)


def fail(where: str, message: str) -> NoReturn:
    """Raise an error at a place: ``votes.soc:17: …``."""
    raise RankingsError(f"{where}: {message}")


def read_text(path: Path) -> str:
    """The text of a file, with ``\\n`` line ends and without the byte-order mark that Excel puts first."""
    data = path.read_bytes()
    for mark, encoding in (b"\xff\xfe", "UTF-16"), (b"\xfe\xff", "UTF-16"):
        if data.startswith(mark):
            fail(f"{path}:1", f"the file is in {encoding}; save it as UTF-8")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        fail(f"{path}:{line}", f"byte 0x{data[error.start]:02x} is not UTF-8; save the file as UTF-8")
    text = text.replace("\r\n", "\n")
    for stray, name in (
        ("\0", "a zero byte"),
        ("\r", "a carriage return inside a line"),
        ("\ufeff", "a byte-order mark"),
    ):
        if (place := text.find(stray)) >= 0:
            fail(f"{path}:{text.count(chr(10), 0, place) + 1}", f"{name}; rankings are plain UTF-8 text")
    if not text.strip():
        fail(str(path), "the file is empty")
    return text


def check_name(name: str, where: str) -> str:
    """An item's name, if it can be one: not empty, one line, no white space around it."""
    if fault := _fault_of_name(name):
        fail(where, fault)
    return name


@lru_cache(maxsize=10_000)  # in a table of orders the same names come up in every row
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
    """Names of items, each of them a name and all of them different."""
    seen: dict[str, int] = {}
    for number, name in enumerate(names):
        check_name(name, where)
        if name in seen:
            fail(where, f"two items have the name {name!r}: numbers {seen[name] + 1} and {number + 1}")
        seen[name] = number
    return list(names)


def whole_number(cell: object, where: str, what: str, least: int = 1) -> int:
    """A count or a rank from a cell of text or of a typed column; ``3`` and ``3.0`` are both 3."""
    if (plain := plain_number(cell)) is not None and plain >= least:
        return plain
    text = str(cell).strip()
    if not re.fullmatch(r"[0-9]+(\.0*)?", text, re.ASCII):
        hint = (
            "; break ties or give tied items the same whole number"
            if re.fullmatch(r"[0-9]+\.[0-9]+", text)
            else ""
        )
        fail(where, f"the {what} is {cell!r}, not a whole number from {least}{hint}")
    digits = text.split(".")[0].lstrip("0") or "0"
    value = int(digits) if len(digits) <= 19 else MOST + 1
    if value < least:
        fail(where, f"the {what} is {value}; it is at least {least}")
    if value > MOST:
        fail(
            where, f"the {what} is {text if len(text) < 30 else text[:26] + '…'}; at most {MOST} can be held"
        )
    return value


def plain_number(cell: object) -> int | None:
    """The number in a cell that plainly holds one: the quick way for nearly all cells."""
    if type(cell) is int and 0 <= cell <= MOST:
        return cell
    if type(cell) is str and len(cell) <= 18 and cell.isascii() and cell.isdigit():
        return int(cell)
    return None


def check_total(counts: Iterable[int], where: str) -> int:
    """The number of voters, if an int64 holds it."""
    total = sum(counts)
    if total > MOST:
        fail(where, f"the counts add up to {total} voters; at most {MOST} can be held")
    return total


def ranks_from_levels(buckets: Sequence[Sequence[int]], n: int) -> list[int]:
    """Ranks of n items from groups of tied items, best first."""
    ranks = [UNRANKED] * n
    for level, bucket in enumerate(buckets):
        for item in bucket:
            ranks[item] = level
    return ranks


def levels_of(ranks: Sequence[int]) -> list[list[int]]:
    """Groups of tied items, best first: the inverse of :func:`ranks_from_levels`."""
    levels: list[list[int]] = [[] for _ in range(max(ranks, default=-1) + 1)]
    for item, rank in enumerate(ranks):
        if rank >= 0:
            levels[rank].append(item)
    return levels


def close_ranks(given: Mapping[int, int], n: int, first: int, where: str, items: Sequence[str]) -> list[int]:
    """Ranks as a file numbers them, turned into levels from 0; ``given`` maps items to their numbers.

    Tied items share a number, and the next number is either the next one (1, 2, 2, 3) or the number of items
    before plus one (1, 2, 2, 4). Anything else is a gap.
    """
    if not given:
        fail(where, "no item is ranked")
    least = min(given, key=lambda item: given[item])
    if given[least] != first:
        fail(where, f"the ranks begin with {given[least]} ({items[least]}); the best item has rank {first}")
    used = sorted(set(given.values()))
    dense = {value: level for level, value in enumerate(used)}
    if used[-1] - first >= len(used):
        before = first
        holders = {value: sum(rank == value for rank in given.values()) for value in used}
        for value in used:
            if value != before:
                missing = next(rank for rank in range(first, used[-1]) if rank not in dense)
                above = next(rank for rank in used if rank > missing)
                fail(where, f"rank {missing} is missing, but {items[_who(given, above)]} has rank {above}")
            before += holders[value]
    return [dense[given[item]] if item in given else UNRANKED for item in range(n)]


def _who(given: Mapping[int, int], value: int) -> int:
    return next(item for item, rank in given.items() if rank == value)
