"""PrefLib's files of votes: .soc, .soi, .toc and .toi, in the format of 2022.

Lines ``# KEY: value`` come first, then a line ``count: 1,{2,3},4`` for each distinct ranking: alternatives by
their numbers from 1, best first, tied ones in braces, unranked ones left out. Mattei and Walsh, "PrefLib: a
library for preferences", 2013; https://preflib.github.io/PrefLib-Jekyll/format.
"""

import re
from pathlib import Path

from factorank.data.rankings.checks import check_name, check_total, fail, whole_number
from factorank.data.rankings.plain import UNRANKED, PlainRankings, levels_of, ranks_from_levels

TYPES = {
    "soc": "strict orders, complete",
    "soi": "strict orders, incomplete",
    "toc": "orders with ties, complete",
    "toi": "orders with ties, incomplete",
}

_HEAD = ("TITLE", "DESCRIPTION", "DATA TYPE", "MODIFICATION TYPE", "RELATES TO", "RELATED FILES")
_DATES = ("PUBLICATION DATE", "MODIFICATION DATE")
_NUMBERS = {
    "NUMBER ALTERNATIVES": "alternatives",
    "NUMBER VOTERS": "voters",
    "NUMBER UNIQUE ORDERS": "unique orders",
}
_KEY = re.compile(r"#\s*([^:]*?)\s*:\s*(.*?)\s*")
_GROUP = re.compile(r"\s*(?:([0-9]+)|\{([^{}]*)\})\s*(,|$)", re.ASCII)


def parse(text: str, path: Path, data_type: str) -> PlainRankings:
    """Rankings from the text of a PrefLib file of type ``data_type`` (``"soc"``, …)."""
    lines = text.split("\n")
    head, where = _metadata(lines, path)
    stated = head.get("DATA TYPE", data_type)
    if stated != data_type:
        fail(
            where["DATA TYPE"],
            f"the data type is {stated!r}, but the file is read as {data_type} ({TYPES[data_type]})",
        )
    numbers: dict[str, int] = {}
    for key, what in _NUMBERS.items():
        if key not in head:
            fail(str(path), f"the line '# {key}: …' is missing")
        numbers[key] = whole_number(head[key], where[key], f"number of {what}")
    items = _names(head, where, numbers["NUMBER ALTERNATIVES"], path)

    ranks: list[list[int]] = []
    counts: list[int] = []
    places: list[str] = []
    line_of: dict[tuple[int, ...], int] = {}
    for number, line in enumerate(lines, start=1):
        if number <= len(where) or not line.strip():
            continue
        place = f"{path}:{number}"
        row, count = _order(line, place, len(items))
        _check_type(row, place, data_type, items)
        if tuple(row) in line_of:
            fail(
                place,
                f"this ranking is on line {line_of[tuple(row)]} already; each has one line, with its count",
            )
        line_of[tuple(row)] = number
        ranks.append(row)
        counts.append(count)
        places.append(place)
    if not ranks:
        fail(str(path), "there is no ranking in the file")
    for key, total in (
        ("NUMBER VOTERS", check_total(counts, str(path))),
        ("NUMBER UNIQUE ORDERS", len(ranks)),
    ):
        if numbers[key] != total:
            fail(
                where[key],
                f"the file says {numbers[key]} {_NUMBERS[key]}, but its rankings are those of {total}",
            )
    own = ("FILE NAME", "DATA TYPE", *_NUMBERS)
    kept = {
        key: value
        for key, value in head.items()
        if key not in own and not key.startswith("ALTERNATIVE NAME ")
    }
    return PlainRankings(items, ranks, counts, places, kept)


def unparse(rankings: PlainRankings, path: Path, data_type: str) -> str:
    """The text of a PrefLib file of type ``data_type``; its first line holds the name of ``path``."""
    for number, row in enumerate(rankings.ranks):
        _check_type(row, f"{path}: row {number}", data_type, rankings.items)
    head = {**rankings.metadata, "DATA TYPE": data_type}
    for key, value in head.items():
        if f"# {key}: {value}".splitlines() != [f"# {key}: {value}"] or ":" in key or value != value.strip():
            fail(str(path), f"the metadata {key!r}: {value!r} does not fit on a line '# KEY: value'")
    lines = [f"# FILE NAME: {path.name}"]
    lines += [f"# {key}: {head.get(key, '')}" for key in _HEAD + _DATES]
    lines += [f"# {key}: {value}" for key, value in head.items() if key not in _HEAD + _DATES]
    sizes = (len(rankings.items), sum(rankings.counts), len(rankings.ranks))
    lines += [f"# {key}: {size}" for key, size in zip(_NUMBERS, sizes, strict=True)]
    lines += [f"# ALTERNATIVE NAME {number}: {name}" for number, name in enumerate(rankings.items, start=1)]
    for row, count in zip(rankings.ranks, rankings.counts, strict=True):
        groups = [[str(item + 1) for item in level] for level in levels_of(row)]
        order = ",".join(group[0] if len(group) == 1 else "{" + ",".join(group) + "}" for group in groups)
        lines.append(f"{count}: {order}")
    return "\n".join(lines) + "\n"


def _metadata(lines: list[str], path: Path) -> tuple[dict[str, str], dict[str, str]]:
    """The ``# KEY: value`` lines at the top, and the place of each."""
    head: dict[str, str] = {}
    where: dict[str, str] = {}
    for number, line in enumerate(lines, start=1):
        place = f"{path}:{number}"
        if not line.startswith("#"):
            break
        match = _KEY.fullmatch(line)
        if match is None:
            fail(place, f"expected '# KEY: value', not {line!r}")
        key = match[1]
        if key in head:
            fail(place, f"'# {key}: …' is on line {where[key].rpartition(':')[2]} already")
        head[key], where[key] = match[2], place
    if not head:
        fail(
            f"{path}:1",
            "expected '# FILE NAME: …' or other '# KEY: value' lines first;"
            " PrefLib's format from before 2022, without them, is not read",
        )
    return head, where


def _names(head: dict[str, str], where: dict[str, str], n: int, path: Path) -> list[str]:
    names: dict[int, str] = {}
    taken: dict[str, int] = {}
    for key, value in head.items():
        if match := re.fullmatch(r"ALTERNATIVE NAME (.*)", key):
            number = whole_number(match[1], where[key], "alternative's number")
            if number > n:
                fail(where[key], f"there are {n} alternatives, but this is the name of number {number}")
            check_name(value, where[key])
            if value in taken:
                fail(where[key], f"alternative {taken[value]} has the name {value!r} already")
            names[number] = value
            taken[value] = number
    for number in range(1, min(n, len(names) + 1) + 1):
        if number not in names:
            fail(str(path), f"there are {n} alternatives, but '# ALTERNATIVE NAME {number}: …' is missing")
    return [names[number] for number in range(1, n + 1)]


def _order(line: str, place: str, n: int) -> tuple[list[int], int]:
    """The ranks and the count of a line ``count: 1,{2,3},4``."""
    count_text, colon, order = line.partition(":")
    if not colon:
        fail(place, f"expected 'count: 1,2,…' but there is no colon in {_short(line)}")
    count = whole_number(count_text, place, "count")
    groups: list[list[int]] = []
    ranked: set[int] = set()
    at, more = 0, True
    while more:
        match = _GROUP.match(order, at)
        if match is None:
            fail(
                place,
                f"expected an alternative's number or {{…}} at {_short(order[at:].strip() or 'the end')}",
            )
        listed = [match[1]] if match[1] else match[2].split(",")
        group = [whole_number(number.strip(), place, "alternative's number") for number in listed]
        for number in group:
            if number > n:
                fail(place, f"there is no alternative {number}; there are 1..{n}")
            if number in ranked:
                fail(place, f"alternative {number} is ranked twice")
            ranked.add(number)
        groups.append([number - 1 for number in group])
        at, more = match.end(), match[3] == ","
    return ranks_from_levels(groups, n), count


def _check_type(row: list[int], place: str, data_type: str, items: list[str]) -> None:
    rule = f"a .{data_type} file holds {TYPES[data_type]}"
    if data_type.startswith("s") and (
        tie := next((level for level in levels_of(row) if len(level) > 1), None)
    ):
        fail(place, f"{items[tie[0]]!r} and {items[tie[1]]!r} are tied; {rule}")
    if data_type.endswith("c") and UNRANKED in row:
        fail(place, f"{items[row.index(UNRANKED)]!r} is not ranked; {rule}")


def _short(text: str) -> str:
    return repr(text if len(text) <= 40 else text[:37] + "…")
