"""Results as aligned text, for ``print``."""

from collections.abc import Sequence


def aligned(rows: Sequence[Sequence[str]]) -> str:
    """Rows of cells, the first column to the left, the others to the right.

    >>> print(aligned([["item", "share"], ["ann", "0.5"], ["bobby", "0.25"]]))
    item   share
    ann      0.5
    bobby   0.25
    """
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for first, *rest in rows:
        cells = [cell.rjust(width) for cell, width in zip(rest, widths[1:], strict=True)]
        lines.append("  ".join([first.ljust(widths[0]), *cells]).rstrip())
    return "\n".join(lines)
