"""Rankings as columns and rows of a table, in any layout that a reader knows."""

from typing import Any

from factorank.data.rankings.checks import fail, levels_of
from factorank.data.rankings.headers import mistaken, reserved
from factorank.data.rankings.layouts import TIE
from factorank.data.rankings.numbering import missing
from factorank.data.rankings.rankings import Rankings

WRITTEN = ("orders", "ranks", "long")
"""The layouts that rankings are written in."""


def unparse(rankings: Rankings, layout: str, source: str) -> tuple[list[str], list[list[Any]]]:
    """Columns and rows of a table in a layout; rankings that it would not give back raise an error."""
    items, ranks, counts = list(rankings.items), rankings.ranks.tolist(), rankings.counts.tolist()
    counted = any(count != 1 for count in counts)
    columns, cells = ["count"] if counted else [], [[count] if counted else [] for count in counts]
    numbers = [[None if rank < 0 else rank + 1 for rank in row] for row in ranks]
    if layout == "long":
        return ["voter", "item", "rank", *columns], [
            [voter, name, number, *count]
            for voter, (row, count) in enumerate(zip(numbers, cells, strict=True), start=1)
            for name, number in zip(items, row, strict=True)
        ]
    if layout == "ranks":
        for name in filter(reserved, items):
            fail(source, f"an item is called {name!r}, as a column of its own in a table of ranks; use long")
        if other := mistaken(items):
            fail(source, f"items called {items[0]!r}, … make the table look like one of {other}; use long")
        return columns + items, [count + row for count, row in zip(cells, numbers, strict=True)]
    for number, name in enumerate(items):
        if TIE in f" {name} ":
            fail(source, f"the item {name!r} holds {TIE!r}, which marks a tie in a table of orders; use long")
        if missing(name):
            fail(source, f"the item {name!r} means that nothing is there in a table of orders; use long")
        if all(row[number] < 0 for row in ranks):
            fail(source, f"nobody ranks {name!r}, so a table of orders would lose it; use ranks or long")
    longest = 1 + max(max(row) for row in ranks)
    rows: list[list[Any]] = []
    for count, row in zip(cells, ranks, strict=True):
        places = [TIE.join(items[item] for item in level) for level in levels_of(row)]
        rows.append([*count, *places, *[None] * (longest - len(places))])
    return columns + [f"place {place}" for place in range(1, longest + 1)], rows
