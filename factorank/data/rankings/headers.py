"""What the columns of a table mean, by their names: its layout, and which columns hold voters and counts."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import islice

from factorank.data.rankings.checks import fail, shown
from factorank.data.rankings.numbering import Numbers, missing
from factorank.data.rankings.tables import Table

LAYOUTS = ("orders", "ranks", "scores", "long", "pairs")
_LOOKED_AT = 1000
"""Rows that help to tell one layout from another."""

_COUNT = {"count", "counts", "frequency", "freq", "weight", "weights", "voters", "multiplicity"}
_WHO = ("voter", "user", "respondent", "participant", "subject", "judge", "rater", "ballot")
_VOTER = {f"{who}{end}" for who in _WHO for end in ("", " id", "id")}
_INDEX = {"", "index", "id", "row", "row number", "unnamed: 0", "#"}
_ITEM = {"item", "item id", "itemid", "alternative", "candidate", "option", "object", "product"}
_RANK = {"rank", "ranking", "place", "position"}
_SCORE = {"score", "rating"}
_WORDS = ["first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth", "tenth"]
_PLACE = re.compile(
    r"(?P<sure>(?:place|rank|position) ?)?(?P<number>[0-9]{1,9})(?P<th>st|nd|rd|th)?"
    r"(?: (?:choice|place|rank))?"
    r"|(?P<word>" + "|".join(_WORDS) + r")(?: (?:choice|place|rank))?"
    r"|(?:choice|preference|pref) ?(?P<maybe>[0-9]{1,9})",
    re.ASCII,
)


@dataclass
class Columns:
    """The numbers of the columns, by what they hold."""

    layout: str
    cells: list[int] = field(default_factory=list)
    """Items or places in a wide table; item and rank (or score) in a long one; winner and loser of pairs."""
    count: int | None = None
    voter: int | None = None
    index: list[int] = field(default_factory=list)
    """Columns that only number the rows."""
    scores: bool = False
    """Whether numbers are scores, the highest best, not ranks."""

    def read_as(self, table: Table, first_rank: int) -> str:
        """What was understood, in a line."""
        name = [shown(column) for column in table.columns]
        row = "one row a voter" if self.count is None else f"one row for {name[self.count]} voters"
        numbers = "scores, the highest is best" if self.scores else f"ranks, {first_rank} is best"
        if self.layout == "long":
            parts = [f"one row a voter ({name[self.voter or 0]}) and item ({name[self.cells[0]]})"]
            parts += [f"{name[self.cells[1]]} holds {numbers}"]
        elif self.layout == "pairs":
            row = (
                "one row a comparison"
                if self.count is None
                else f"one row for {name[self.count]} comparisons"
            )
            parts = [row, f"{name[self.cells[0]]} beats {name[self.cells[1]]}"]
        elif self.layout == "orders":
            parts = [row, "columns are places, best first, cells are items"]
        else:
            parts = [row, f"columns are items, cells are {numbers}"]
        parts += [table.about] if table.about else []
        if self.voter is not None and self.layout in ("orders", "ranks", "scores"):
            parts.append(f"{name[self.voter]} names the voters")
        parts += [f"column {number + 1} numbers the rows" for number in self.index]
        return "read as: " + ", ".join(parts)


def understood(table: Table, layout: str | None) -> Columns:
    """The columns of a table, whose layout is the given one or the one that its names tell."""
    names = [normal(column) for column in table.columns]
    _check_distinct(table, names)
    counts = [i for i, name in enumerate(names) if name in _COUNT]
    voters = [i for i, name in enumerate(names) if name in _VOTER]
    index = [i for i, name in enumerate(names) if name in _INDEX]
    for what, several in ("counts", counts), ("voters", voters):
        if len(several) > 1:
            two = " and ".join(shown(table.columns[i]) for i in several[:2])
            fail(table.header, f"{two} both seem to hold the {what}; leave one of them out")
    if not voters and index:
        voters, index = index[:1], index[1:]
    columns = Columns(
        "", count=counts[0] if counts else None, voter=voters[0] if voters else None, index=index
    )
    others = [i for i in range(len(names)) if i not in {*counts, *voters, *index}]

    pair = [_only(names, {word}) for word in ("winner", "loser")]
    triple = [_only(names, _ITEM), _only(names, _RANK), _only(names, _SCORE)]
    if layout is None:
        layout = _layout(table, names, others, pair, triple, columns.voter)
    columns.layout = layout
    if layout == "pairs":
        columns.cells = _chosen(table, pair, ("winner", "loser"))
    elif layout == "long":
        columns.scores = triple[1] is None and triple[2] is not None
        value = triple[2] if columns.scores else triple[1]
        columns.cells = _chosen(table, [triple[0], value], ("item", "rank"))
        if columns.voter is None:
            fail(table.header, f"a long table has voter, item, rank and perhaps count; {_there(table)}")
    else:
        columns.cells, columns.scores = others, layout == "scores"
        if layout == "orders":
            _check_places(table, names, others)
    return columns


def normal(column: str) -> str:
    """The name of a column in small letters, with single spaces.

    >>> normal("Voter_ID"), normal("1st  Choice")
    ('voter id', '1st choice')
    """
    return " ".join(re.split(r"[\s_.\-]+", column.strip().lower())).strip()


def reserved(name: str) -> bool:
    """Whether a column of this name holds no item in a table of ranks."""
    return normal(name) in _COUNT | _VOTER | _INDEX


def mistaken(items: Sequence[str]) -> str | None:
    """The layout that a table of ranks of these items would be taken for; None if it is seen as what it is.

    >>> mistaken(["winner", "loser"]), mistaken(["1st", "2nd"]), mistaken(["ann", "bob"])
    ('pairs', 'orders', None)
    """
    names = [normal(item) for item in items]
    if set(names) == {"winner", "loser"}:
        return "pairs"
    return "orders" if names and all(map(_sure, names)) else None


def place_number(name: str) -> int | None:
    """The place that the name of a column says, as normal; None if it says none."""
    match = _PLACE.fullmatch(name)
    if match is None:
        return None
    return _WORDS.index(match["word"]) + 1 if match["word"] else int(match["number"] or match["maybe"])


def _layout(
    table: Table,
    names: list[str],
    others: list[int],
    pair: Sequence[int | None],
    triple: Sequence[int | None],
    voter: int | None,
) -> str:
    item, rank, score = triple
    value = score if rank is None else rank
    for layout, known in ("pairs", pair), ("long", (item, value)):
        if None not in known and (layout == "pairs" or voter is not None):
            odd = [table.columns[i] for i in others if i not in known]
            if odd:
                fault = f"the columns are those of a table of {layout} and {', '.join(map(shown, odd[:3]))}"
                advice = (
                    f"say {{parameter={layout!r}}} to leave these out, {{parameter='ranks'}} if all are items"
                )
                fail(table.header, f"{fault}: {advice}", parameter="format")
            return layout
    if others and all(place_number(names[i]) is not None for i in others):
        if all(_sure(names[i]) for i in others) or _holds_names(table, others):
            return "orders"
        numbers = all(names[i].isdigit() for i in others)
        kind = "by numbers only" if numbers else "like places or like items, and all cells are numbers"
        ways = "say {parameter='orders'} if they are places, {parameter='ranks'} if they are items"
        more = ", and add a line of column names if this is a ranking" if numbers else ""
        fail(table.header, f"the columns are named {kind}: {ways}{more}", parameter="format")
    _refuse_a_ranking(table, others)
    return "ranks"


def _sure(name: str) -> bool:
    match = _PLACE.fullmatch(name)
    return match is not None and bool(match["sure"] or match["th"] or match["word"])


def _holds_names(table: Table, columns: Iterable[int]) -> bool:
    """Whether a cell is a name: neither a number nor missing."""
    numbers = Numbers(table.decimal_comma)
    rows = islice(table.rows(), _LOOKED_AT)
    return any(numbers[cells[i]] == float("inf") for _, cells in rows for i in columns)


def _check_places(table: Table, names: Sequence[str], columns: Sequence[int]) -> None:
    """Columns that are named as places are in order; other names are taken as they stand."""
    if not columns:
        fail(table.header, "there is no column 'place 1'")
    places = [place_number(names[i]) for i in columns]
    if all(place is None for place in places):
        _refuse_a_ranking(table, columns)
        return
    first = 0 if places[0] == 0 else 1
    for number, (i, place) in enumerate(zip(columns, places, strict=True), start=first):
        if place != number:
            fail(table.header, f"column {shown(table.columns[i])} is where 'place {number}' should be")


def _refuse_a_ranking(table: Table, columns: Sequence[int]) -> None:
    """A first line that is a ranking has cells that later rows hold, too."""
    names = {table.columns[i] for i in columns}
    for where, cells in islice(table.rows(), _LOOKED_AT):
        for i in columns:
            if cells[i] in names and not cells[i].isdigit() and not missing(cells[i]):
                places = ",".join(f"place {number}" for number in range(1, min(len(columns), 3) + 1))
                like = (
                    f"this line looks like a ranking, for {shown(cells[i])} is in a ranking at {where}, too"
                )
                more = ",…" if len(columns) > 3 else ""
                fail(table.header, f"{like}; the first line names the columns: {places}{more}")


def _check_distinct(table: Table, names: Sequence[str]) -> None:
    first: dict[str, int] = {}
    for number, column in enumerate(table.columns):
        if not column and number:
            fail(table.header, f"column {number + 1} has no name")
        if first.setdefault(column, number) != number:
            fail(table.header, f"there are two columns {shown(column)}")


def _only(names: Sequence[str], wanted: set[str]) -> int | None:
    there = [i for i, name in enumerate(names) if name in wanted]
    return there[0] if len(there) == 1 else None


def _chosen(table: Table, columns: Sequence[int | None], words: Sequence[str]) -> list[int]:
    for column, word in zip(columns, words, strict=True):
        if column is None:
            fail(table.header, f"there is no single column {word!r}; {_there(table)}")
    return [column for column in columns if column is not None]


def _there(table: Table) -> str:
    more = ", …" if len(table.columns) > 8 else ""
    return f"the columns are {', '.join(map(shown, table.columns[:8]))}{more}"
