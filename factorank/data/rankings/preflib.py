"""PrefLib's files of votes: .soc, .soi, .toc and .toi, in the format of 2022.

Lines ``# KEY: value`` come first, then a line ``count: 1,{2,3},4`` for each distinct ranking: alternatives by
their numbers from 1, best first, tied ones in braces, unranked ones left out. Mattei and Walsh, "PrefLib: a
library for preferences", 2013; https://preflib.github.io/PrefLib-Jekyll/format.
"""

import re
from collections.abc import Sequence
from pathlib import Path

import torch

from factorank.data.rankings.checks import check_name, check_total, fail, levels_of, read_text, whole_number
from factorank.data.rankings.rankings import Rankings

TYPES = {
    "soc": "strict orders, complete",
    "soi": "strict orders, incomplete",
    "toc": "orders with ties, complete",
    "toi": "orders with ties, incomplete",
}

_HEAD = [
    *("TITLE", "DESCRIPTION", "DATA TYPE", "MODIFICATION TYPE", "RELATES TO", "RELATED FILES"),
    *("PUBLICATION DATE", "MODIFICATION DATE"),
]
_NUMBERS = {
    "NUMBER ALTERNATIVES": "alternatives",
    "NUMBER VOTERS": "voters",
    "NUMBER UNIQUE ORDERS": "unique orders",
}
_KEY = re.compile(r"#\s*([^:]*?)\s*:\s*(.*?)\s*")
_GROUP = re.compile(r"\s*(?:([0-9]+)|\{([^{}]*)\})\s*(,|$)", re.ASCII)


def parse(path: Path, data_type: str) -> tuple[Rankings, list[str]]:
    """Rankings from a PrefLib file of type ``data_type`` (``"soc"``, …), and the place of each."""
    lines = read_text(path).split("\n")
    head, where = _metadata(lines, path)
    stated, kind = head.get("DATA TYPE", data_type), f"{data_type} ({TYPES[data_type]})"
    if stated != data_type:
        fail(where["DATA TYPE"], f"the data type is {stated!r}, but the file is read as {kind}")
    numbers: dict[str, int] = {}
    for key, what in _NUMBERS.items():
        if key not in head:
            fail(str(path), f"the line '# {key}: …' is missing")
        numbers[key] = whole_number(head[key], where[key], f"number of {what}")
    items = _names(head, where, numbers["NUMBER ALTERNATIVES"], path)

    counts: dict[tuple[int, ...], int] = {}
    places: list[str] = []
    for number, line in enumerate(lines[len(where) :], start=len(where) + 1):
        if not line.strip():
            continue
        place = f"{path}:{number}"
        row, count = _order(line, place, len(items))
        _check_type(row, place, data_type, items)
        if row in counts:
            first = places[list(counts).index(row)].rpartition(":")[2]
            fail(place, f"this ranking is on line {first} already; each has one line, with its count")
        counts[row] = count
        places.append(place)
    if not counts:
        fail(str(path), "there is no ranking in the file")
    voters = check_total(counts.values(), str(path))
    for key, total in ("NUMBER VOTERS", voters), ("NUMBER UNIQUE ORDERS", len(counts)):
        if numbers[key] != total:
            stated = f"the file says {numbers[key]} {_NUMBERS[key]}"
            fail(where[key], f"{stated}, but its rankings are those of {total}")
    own = re.compile("|".join(("FILE NAME", "DATA TYPE", *_NUMBERS, "ALTERNATIVE NAME .*")))
    kept = {key: value for key, value in head.items() if not own.fullmatch(key)}
    return Rankings(items, torch.tensor(list(counts)), torch.tensor(list(counts.values())), kept), places


def unparse(rankings: Rankings, path: Path, data_type: str) -> str:
    """The text of a PrefLib file of type ``data_type``; its first line holds the name of ``path``."""
    rows, items = rankings.ranks.tolist(), rankings.items
    for number, row in enumerate(rows):
        _check_type(row, f"{path}: row {number}", data_type, items)
    head = {**rankings.metadata, "DATA TYPE": data_type}
    for key, value in head.items():
        if f"# {key}: {value}".splitlines() != [f"# {key}: {value}"] or ":" in key or value != value.strip():
            fail(str(path), f"the metadata {key!r}: {value!r} does not fit on a line '# KEY: value'")
    head = dict.fromkeys(_HEAD, "") | head
    head |= dict(zip(_NUMBERS, map(str, (len(items), rankings.voters, len(rows))), strict=True))
    head |= {f"ALTERNATIVE NAME {number}": name for number, name in enumerate(items, start=1)}
    lines = [f"# {key}: {value}" for key, value in ({"FILE NAME": path.name} | head).items()]
    for row, count in zip(rows, rankings.counts.tolist(), strict=True):
        groups = [",".join(str(item + 1) for item in level) for level in levels_of(row)]
        lines.append(f"{count}: " + ",".join(f"{{{group}}}" if "," in group else group for group in groups))
    return "\n".join(lines) + "\n"


def _metadata(lines: list[str], path: Path) -> tuple[dict[str, str], dict[str, str]]:
    """The ``# KEY: value`` lines at the top, and the place of each."""
    head: dict[str, str] = {}
    where: dict[str, str] = {}
    for number, line in enumerate(lines, start=1):
        if not line.startswith("#"):
            break
        place, match = f"{path}:{number}", _KEY.fullmatch(line)
        if match is None:
            fail(place, f"expected '# KEY: value', not {line!r}")
        key = match[1]
        if key in head:
            fail(place, f"'# {key}: …' is on line {where[key].rpartition(':')[2]} already")
        head[key], where[key] = match[2], place
    if not head:
        expected = "expected '# FILE NAME: …' or other '# KEY: value' lines first"
        fail(f"{path}:1", f"{expected}; PrefLib's format from before 2022, without them, is not read")
    return head, where


def _names(head: dict[str, str], where: dict[str, str], n: int, path: Path) -> list[str]:
    number_of: dict[str, int] = {}
    for key, name in head.items():
        if match := re.fullmatch(r"ALTERNATIVE NAME (.*)", key):
            number = whole_number(match[1], where[key], "alternative's number")
            if number > n:
                fail(where[key], f"there are {n} alternatives, but this is the name of number {number}")
            check_name(name, where[key])
            if name in number_of:
                fail(where[key], f"alternative {number_of[name]} has the name {name!r} already")
            number_of[name] = number
    names = {number: name for name, number in number_of.items()}
    for number in range(1, min(n, len(names) + 1) + 1):
        if number not in names:
            fail(str(path), f"there are {n} alternatives, but '# ALTERNATIVE NAME {number}: …' is missing")
    return [names[number] for number in range(1, n + 1)]


def _order(line: str, place: str, n: int) -> tuple[tuple[int, ...], int]:
    """The ranks and the count of a line ``count: 1,{2,3},4``."""
    count_text, colon, order = line.partition(":")
    if not colon:
        fail(place, f"expected 'count: 1,2,…' but there is no colon in {_short(line)}")
    count = whole_number(count_text, place, "count")
    ranks = [-1] * n
    at, more, level = 0, True, 0
    while more:
        match = _GROUP.match(order, at)
        if match is None:
            rest = _short(order[at:].strip() or "the end")
            fail(place, f"expected an alternative's number or {{…}} at {rest}")
        for text in [match[1]] if match[1] else match[2].split(","):
            number = whole_number(text.strip(), place, "alternative's number")
            if number > n:
                fail(place, f"there is no alternative {number}; there are 1..{n}")
            if ranks[number - 1] >= 0:
                fail(place, f"alternative {number} is ranked twice")
            ranks[number - 1] = level
        at, more, level = match.end(), match[3] == ",", level + 1
    return tuple(ranks), count


def _check_type(row: Sequence[int], place: str, data_type: str, items: Sequence[str]) -> None:
    rule = f"a .{data_type} file holds {TYPES[data_type]}"
    tied = next((level for level in levels_of(row) if len(level) > 1), None)
    if data_type.startswith("s") and tied:
        fail(place, f"{items[tied[0]]!r} and {items[tied[1]]!r} are tied; {rule}")
    if data_type.endswith("c") and -1 in row:
        fail(place, f"{items[row.index(-1)]!r} is not ranked; {rule}")


def _short(text: str) -> str:
    return repr(text if len(text) <= 40 else text[:37] + "…")
