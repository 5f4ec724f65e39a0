"""Plain text: aligned tables for the terminal, with no colour codes, and the command line itself."""

import sys
import unicodedata
from collections.abc import Sequence


def table(header: Sequence[str], rows: Sequence[Sequence[object]], align: str = "", indent: int = 2) -> str:
    """Columns under a header, aligned by ``align``: a letter ``l`` or ``r`` for each, ``r`` where it ends.

    >>> print(table(["item", "place"], [["ann", 1.25], ["bobby", 2]], "lr"))
      item   place
      ann     1.25
      bobby      2
    """
    lines = [[str(cell) for cell in row] for row in [header, *rows]]
    widths = [max(width(row[column]) for row in lines) for column in range(len(header))]
    sides = align.ljust(len(header), "r")
    text = []
    for row in lines:
        cells = [
            cell + " " * (w - width(cell)) if side == "l" else " " * (w - width(cell)) + cell
            for cell, w, side in zip(row, widths, sides, strict=True)
        ]
        text.append((" " * indent + "  ".join(cells)).rstrip())
    return "\n".join(text)


def counted(count: int, thing: str) -> str:
    """A number and its noun.

    >>> counted(1, "ranking"), counted(2, "ranking")
    ('1 ranking', '2 rankings')
    """
    return f"{count} {thing}" + ("" if count == 1 else "s")


def shorten(text: str, most: int) -> str:
    """The text, cut to ``most`` columns."""
    if width(text) <= most:
        return text
    while width(text) > most - 1:
        text = text[:-1]
    return text.rstrip() + "…"


def width(text: str) -> int:
    """The columns that a terminal gives the text: two for wide characters, none for combining ones."""
    return sum(
        0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text
    )


def command_line() -> str:
    """The command as it was typed, for rows of results."""
    return " ".join(["factorank", *sys.argv[1:]])
