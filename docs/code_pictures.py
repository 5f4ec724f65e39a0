"""Pictures of the codes for the documentation: the same staircases as in the playground, as SVG files."""

from pathlib import Path

import torch

import factorank as fr

ORDER = [2, 4, 3, 0, 1]
HUES = [20, 92, 164, 236, 308]
SIZE, GAP = 34, 6


def write(folder: Path) -> None:
    """Write ``code-NAME.svg`` for each factorized code, and ``inserting.svg`` and ``swapping.svg``."""
    folder.mkdir(exist_ok=True)
    for name in ("lehmer", "left-lehmer", "fisher-yates", "insertion"):
        (folder / f"code-{name}.svg").write_text(staircase(name), encoding="utf-8")
    (folder / "inserting.svg").write_text(inserting(), encoding="utf-8")
    (folder / "swapping.svg").write_text(swapping(), encoding="utf-8")


def staircase(name: str) -> str:
    """The values of a code as steps: a column for each position, as tall as its domain."""
    code = fr.code(name)
    values, sizes = code.encode(torch.tensor(ORDER)).tolist(), code.sizes(len(ORDER)).tolist()
    parts = []
    for i, (value, size) in enumerate(zip(values, sizes, strict=True)):
        item = i if name == "insertion" else ORDER[i]
        for step in range(size):
            on = step == value
            fill = colour(item) if on else "#8884"
            parts.append(box(i, 5 - step, fill, str(value) if on else ""))
    return picture(parts, 6)


def inserting() -> str:
    """Items inserted one after the other."""
    values = fr.Insertion().encode(torch.tensor(ORDER)).tolist()
    parts, order = [], []
    for item, slot in enumerate(values):
        order.insert(slot, item)
        parts += [box(place, item, colour(other), str(other)) for place, other in enumerate(order)]
        parts.append(words(5.2, item, f"item {item} into slot {slot}"))
    return picture(parts, 5, 300)


def swapping() -> str:
    """The shuffle that the draws of a Fisher-Yates code stand for."""
    values, parts = fr.FisherYates().encode(torch.tensor(ORDER)).tolist(), []
    order = list(range(len(ORDER)))
    for i, draw in enumerate(values):
        order[i], order[i + draw] = order[i + draw], order[i]
        parts += [box(place, i, colour(item), str(item), place <= i) for place, item in enumerate(order)]
        parts.append(
            words(5.2, i, f"draw {draw}: swap places {i} and {i + draw}" if draw else "draw 0: stay")
        )
    return picture(parts, 5, 300)


def colour(item: int) -> str:
    return f"hsl({HUES[item]} 70% 72%)"


def box(column: int, row: int, fill: str, text: str, settled: bool = True) -> str:
    x, y = column * (SIZE + GAP), row * (SIZE + GAP)
    opacity = "" if settled else ' opacity=".45"'
    label = (
        f'<text x="{x + SIZE / 2}" y="{y + SIZE / 2 + 5}" text-anchor="middle" fill="#1c1a2e">{text}</text>'
    )
    return (
        f'<g{opacity}><rect x="{x}" y="{y}" width="{SIZE}" height="{SIZE}" rx="8" fill="{fill}"/>{label}</g>'
    )


def words(column: float, row: int, text: str) -> str:
    return f'<text x="{column * (SIZE + GAP)}" y="{row * (SIZE + GAP) + 22}" fill="#777788">{text}</text>'


def picture(parts: list[str], rows: int, more: int = 0) -> str:
    width, height = 5 * (SIZE + GAP) - GAP + more, rows * (SIZE + GAP) - GAP
    style = "font:600 14px system-ui,sans-serif"
    size = f'viewBox="0 0 {width} {height}" width="{width}" height="{height}"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} style="{style}">'
    return head + "".join(parts) + "</svg>\n"
