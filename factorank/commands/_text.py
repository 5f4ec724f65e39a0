"""Plain text: aligned tables for the terminal, with no colour codes, and the command line itself."""

import re
import sys
import unicodedata
from collections.abc import Sequence
from typing import Any, TextIO

_CONTROL = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2028\u2029\u2066-\u2069\ud800-\udfff]"
)
"""Characters that steer a terminal or turn the direction of text; not tabs and line ends."""


def table(header: Sequence[str], rows: Sequence[Sequence[object]], align: str = "", indent: int = 2) -> str:
    """Columns under a header, aligned by ``align``: a letter ``l`` or ``r`` for each, ``r`` where it ends.

    >>> print(table(["item", "place"], [["ann", 1.25], ["bobby", 2]], "lr"))
      item   place
      ann     1.25
      bobby      2
    """
    lines = [[str(cell) for cell in row] for row in [header, *rows]]
    for column, side in enumerate(align.ljust(len(header), "r")):
        widths = [width(row[column]) for row in lines]
        widest = max(widths)
        for row, own in zip(lines, widths, strict=True):
            space = " " * (widest - own)
            row[column] = row[column] + space if side == "l" else space + row[column]
    return "\n".join((" " * indent + "  ".join(row)).rstrip() for row in lines)


def counted(count: int, thing: str) -> str:
    """A number and its noun.

    >>> counted(1, "ranking"), counted(2, "ranking")
    ('1 ranking', '2 rankings')
    """
    return f"{count:,} {thing}" + ("" if count == 1 else "s")


def duration(seconds: float) -> str:
    """Seconds as people say them.

    >>> duration(8), duration(260), duration(9000)
    ('8 seconds', '4 minutes', '2.5 hours')
    """
    if seconds < 90:
        return counted(max(round(seconds), 1), "second")
    return f"{seconds / 60:.0f} minutes" if seconds < 5400 else f"{seconds / 3600:.1f} hours"


def percent(share: float | None, digits: int = 1) -> str:
    """A share in percent; nothing for None."""
    return "" if share is None else f"{100 * share:.{digits}f}"


def shorten(text: str, most: int) -> str:
    """The text, cut to ``most`` columns.

    >>> shorten("ann > bob > cat", 10), shorten("ann", 10)
    ('ann > bob…', 'ann')
    """
    if width(text) <= most:
        return text
    if text.isascii():
        return text[: most - 1].rstrip() + "…"
    end, columns = 0, width(text[0])
    while columns <= most - 1:
        end += 1
        columns += width(text[end])
    return text[:end].rstrip() + "…"


def width(text: str) -> int:
    """The columns that a terminal gives the text: two for wide characters, none for combining ones."""
    if text.isascii():
        return len(text)
    return sum(
        0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text
    )


def visible(text: str) -> str:
    """A stranger's words as a terminal may show them: control characters become visible and do nothing.

    >>> print(visible("Heat" + chr(27) + "[31m (1995)" + chr(7)))
    Heat�[31m (1995)�
    """
    return _CONTROL.sub("\N{REPLACEMENT CHARACTER}", text)


class PlainStream:
    """A stream that shows every text as :func:`visible` does; commands print to it."""

    def __init__(self, stream: TextIO) -> None:
        self.stream = stream

    def write(self, text: str) -> int:
        self.stream.write(visible(text))
        return len(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


def command_line() -> str:
    """The command as it was typed, for rows of results."""
    return " ".join(["factorank", *sys.argv[1:]])
