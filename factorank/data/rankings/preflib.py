"""PrefLib's files of votes: .soc, .soi, .toc and .toi, in the format of 2022.

Lines ``# KEY: value`` come first, then a line ``count: 1,{2,3},4`` for each distinct ranking: alternatives by
their numbers from 1, best first, tied ones in braces, unranked ones left out. Mattei and Walsh, "PrefLib: a
library for preferences", 2013; https://preflib.github.io/PrefLib-Jekyll/format.
"""

from collections.abc import Sequence
from pathlib import Path

from factorank.data.rankings.checks import cleaned_name, fail, levels_of, read_text, shown, whole_number
from factorank.data.rankings.rankings import Rankings
from factorank.data.rankings.rows import RankingRows

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
_NAME = "ALTERNATIVE NAME "


def parse(path: Path, data_type: str) -> tuple[Rankings, list[str]]:
    """Rankings from a PrefLib file of type ``data_type`` (``"soc"``, …), and the place of each."""
    lines = read_text(path).split("\n")
    head, where = _metadata(lines, path)
    stated, kind = head.get("DATA TYPE", data_type), f"{data_type} ({TYPES[data_type]})"
    if stated != data_type:
        fail(where["DATA TYPE"], f"the data type is {shown(stated)}, but the file is read as {kind}")
    numbers: dict[str, int] = {}
    for key, what in _NUMBERS.items():
        if key not in head:
            fail(str(path), f"the line '# {key}: …' is missing")
        numbers[key] = whole_number(head[key], where[key], f"number of {what}")
    rows = RankingRows(str(path), merge=True)
    n = numbers["NUMBER ALTERNATIVES"]
    _name_items(rows, head, where, n, path)

    items, left_out = list(rows.number), 0
    for number, line in enumerate(lines[len(where) :], start=len(where) + 1):
        if not line.strip():
            continue
        place = f"{path}:{number}"
        order, levels, count = _order(line, place, n)
        tied = next((at for at in range(1, len(levels)) if levels[at] == levels[at - 1]), None)
        pair = None if tied is None else (items[order[tied - 1]], items[order[tied]])
        complete = len(order) == n or not data_type.endswith("c")
        absent = None if complete else items[min(set(range(n)).difference(order))]
        _check_type(pair, absent, place, data_type)
        before = len(rows)
        row = rows.add(place, order, levels, count)
        left_out += row < 0
        if 0 <= row < before:
            first = rows.places[row].rpartition(":")[2]
            fail(place, f"this ranking is on line {first} already; each has one line, with its count")
    kept = {key: value for key, value in head.items() if key not in ("FILE NAME", "DATA TYPE", *_NUMBERS)}
    kept = {key: value for key, value in kept.items() if not key.startswith(_NAME)}
    rankings = rows.rankings(metadata=kept, read_as=f"read as: PrefLib {kind}")
    totals = {"NUMBER VOTERS": {rankings.voters}, "NUMBER UNIQUE ORDERS": {len(rows), len(rows) + left_out}}
    for key, right in totals.items():
        if numbers[key] not in right:
            claim = f"the file says {numbers[key]} {_NUMBERS[key]}"
            fail(where[key], f"{claim}, but its rankings are those of {min(right)}")
    return rankings, rows.places


def unparse(rankings: Rankings, path: Path, data_type: str) -> str:
    """The text of a PrefLib file of type ``data_type``; its first line holds the name of ``path``."""
    rows, items = rankings.ranks.tolist(), rankings.items
    head = {**rankings.metadata, "DATA TYPE": data_type}
    for key, value in head.items():
        if f"# {key}: {value}".splitlines() != [f"# {key}: {value}"] or ":" in key or value != value.strip():
            fail(str(path), f"the metadata {key!r}: {value!r} does not fit on a line '# KEY: value'")
    head = dict.fromkeys(_HEAD, "") | head
    head |= dict(zip(_NUMBERS, map(str, (len(items), rankings.voters, len(rows))), strict=True))
    head |= {f"{_NAME}{number}": name for number, name in enumerate(items, start=1)}
    lines = [f"# {key}: {value}" for key, value in ({"FILE NAME": path.name} | head).items()]
    for number, (row, count) in enumerate(zip(rows, rankings.counts.tolist(), strict=True)):
        levels = levels_of(row)
        tied = next(((items[level[0]], items[level[1]]) for level in levels if len(level) > 1), None)
        absent = items[row.index(-1)] if -1 in row else None
        _check_type(tied, absent, f"{path}: row {number}", data_type)
        groups = [",".join(str(item + 1) for item in level) for level in levels]
        lines.append(f"{count}: " + ",".join(f"{{{group}}}" if "," in group else group for group in groups))
    return "\n".join(lines) + "\n"


def _metadata(lines: list[str], path: Path) -> tuple[dict[str, str], dict[str, str]]:
    """The ``# KEY: value`` lines at the top, and the place of each."""
    head: dict[str, str] = {}
    where: dict[str, str] = {}
    for number, line in enumerate(lines, start=1):
        if not line.startswith("#"):
            break
        place = f"{path}:{number}"
        key, colon, value = line[1:].partition(":")
        key = key.strip()
        if not colon:
            fail(place, f"expected '# KEY: value', not {shown(line)}")
        if key in head:
            fail(place, f"'# {key}: …' is on line {where[key].rpartition(':')[2]} already")
        # Other white space may be half of a character that was read wrongly.
        head[key], where[key] = value.strip(" \t") if key.startswith(_NAME) else value.strip(), place
    if not head:
        expected = "expected '# FILE NAME: …' or other '# KEY: value' lines first"
        fail(f"{path}:1", f"{expected}; PrefLib's format from before 2022, without them, is not read")
    return head, where


def _name_items(rows: RankingRows, head: dict[str, str], where: dict[str, str], n: int, path: Path) -> None:
    """Number the items of the rows as the file does."""
    names: dict[int, str] = {}
    number_of: dict[str, int] = {}
    stated = [(key, text) for key, text in head.items() if key.startswith(_NAME)]
    plain = {text.strip() for _, text in stated if cleaned_name(text) == text.strip()}
    taken = set(plain)
    for key, text in stated:
        number = whole_number(key.removeprefix(_NAME), where[key], "alternative's number")
        if number > n:
            fail(where[key], f"there are {n} alternatives, but this is the name of number {number}")
        if text in number_of:
            fail(where[key], f"alternative {number_of[text]} has the name {shown(text)} already")
        name = rows.cleaned(text, where[key], () if text.strip() in plain else taken)
        taken.add(name)
        if number in names:
            fail(where[key], f"alternative {number} has the name {shown(names[number])} already")
        names[number], number_of[text] = name, number
    for number in range(1, min(n, len(names) + 1) + 1):
        if number not in names:
            fail(str(path), f"there are {n} alternatives, but '# {_NAME}{number}: …' is missing")
        rows.item(names[number], str(path))


def _order(line: str, place: str, n: int) -> tuple[list[int], list[int], int]:
    """The items of a line ``count: 1,{2,3},4``, their levels, and the count."""
    count_text, colon, text = line.partition(":")
    if not colon:
        fail(place, f"expected 'count: 1,2,…' but there is no colon in {shown(line)}")
    count = whole_number(count_text, place, "count", 0)
    items: list[int] = []
    levels: list[int] = []
    parts = text.split(",")
    last = max((at for at, part in enumerate(parts) if "}" in part), default=-1)
    level, inside = 0, False
    for at, part in enumerate(parts):
        number = part.strip()
        if number.startswith("{") and not inside:
            inside, number = True, number[1:].lstrip()
            if at > last:
                _expected(place, parts[at:])
        closes = inside and number.endswith("}")
        number = number[:-1].rstrip() if closes else number
        if not inside and not (number.isascii() and number.isdigit()):
            _expected(place, parts[at:])
        items.append(whole_number(number, place, "alternative's number") - 1)
        if items[-1] >= n:
            fail(place, f"there is no alternative {items[-1] + 1}; there are 1..{n}")
        levels.append(level)
        inside = inside and not closes
        level += not inside
    seen: set[int] = set()
    for item in items if len(set(items)) < len(items) else ():
        if item in seen:
            fail(place, f"alternative {item + 1} is ranked twice")
        seen.add(item)
    return items, levels, count


def _expected(place: str, parts: Sequence[str]) -> None:
    rest = ",".join(parts).strip() or "the end"
    fail(place, f"expected an alternative's number or {{…}} at {shown(rest)}")


def _check_type(tied: tuple[str, str] | None, absent: str | None, place: str, data_type: str) -> None:
    """Refuse a ranking that has tied items, or lacks one, in a file that says there is no such ranking."""
    rule = f"a .{data_type} file holds {TYPES[data_type]}"
    if data_type.startswith("s") and tied:
        fail(place, f"{tied[0]!r} and {tied[1]!r} are tied; {rule}")
    if data_type.endswith("c") and absent is not None:
        fail(place, f"{absent!r} is not ranked; {rule}")
