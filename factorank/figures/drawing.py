"""What all figures share: panels, a legend below them, means of results, and writing a figure whole."""

import io
import os
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any

from factorank.errors import FactorankError
from factorank.files import write_whole

AnyPath = str | os.PathLike[str]
BLUE, ORANGE, GREEN, VERMILION = "#0072B2", "#E69F00", "#009E73", "#D55E00"
PURPLE, SKY, BLACK, GREY = "#CC79A7", "#56B4E9", "#000000", "#777777"
"""Colours that people with any colour vision tell apart (Okabe and Ito, "Color universal design", 2008)."""
CODE_STYLES = {
    "inline": (GREY, "v", "-"),
    "lehmer": (BLUE, "o", "-"),
    "left-lehmer": (SKY, "s", "--"),
    "fisher-yates": (VERMILION, "^", "-"),
    "insertion": (GREEN, "D", "-."),
}
"""Colour, marker and line of each code; the last two tell them apart in print as well."""
METHOD_STYLES = {
    "gumbel-sinkhorn": ("Gumbel-Sinkhorn", ORANGE, "P"),
    "riffle-diffusion": ("riffle diffusion", PURPLE, "X"),
}
"""Name, colour and marker of each neural baseline."""


def panels(down: int, across: int, width: float, height: float, **options: Any) -> tuple[Any, Any]:
    """A figure of that size in inches, and its panels, an array ``(down, across)``."""
    return _pyplot().subplots(
        down, across, figsize=(width, height), squeeze=False, layout="constrained", **options
    )


def legend_below(figure: Any, columns: int, handles: Any, labels: Any, **options: Any) -> None:
    """A legend under all the panels."""
    figure.legend(handles, labels, loc="outside lower center", ncols=columns, frameon=False, **options)


def label_ends(axis: Any, ends: dict[str, tuple[float, float, str]], *, gap: float = 0.06) -> None:
    """Write each label beside the end of its line, ``(x, y, colour)``, apart from each other.

    ``gap`` is the least distance between two labels, as a share of the panel's height. The limits of the
    panel are those of what is drawn before.
    """
    axis.set(xlim=axis.get_xlim(), ylim=axis.get_ylim())
    to_share, to_data = axis.transAxes.inverted(), axis.transData
    places = {}
    for label, (x, y, colour) in ends.items():
        places[label] = (*to_share.transform(to_data.transform((x, y))), colour)
    height = -1.0
    for label, (across, up, colour) in sorted(places.items(), key=lambda item: item[1][1]):
        height = max(up, height + gap)
        style = {"color": colour, "fontsize": 8, "va": "center", "transform": axis.transAxes}
        axis.text(max(across + 0.02, 1.015), height, label, clip_on=False, **style)


def means(rows: list[dict[str, Any]], x: str, key: str, scale: float = 1.0) -> list[tuple[Any, float]]:
    """The mean of ``key`` over the rows of each ``x`` that have it, sorted by ``x``.

    >>> means([{"nfe": 2, "kl": 1.0}, {"nfe": 2, "kl": 2.0}, {"nfe": 1, "kl": None}], "nfe", "kl")
    [(2, 1.5)]
    """
    values: dict[Any, list[float]] = {}
    for row in rows:
        if row.get(key) is not None:
            values.setdefault(row[x], []).append(scale * row[key])
    return sorted((at, sum(some) / len(some)) for at, some in values.items())


def of_results(draw: Callable[[AnyPath, AnyPath], None]) -> Callable[[AnyPath, AnyPath], None]:
    """A figure that is drawn from a file of rows; an error names the file if a row lacks something."""

    @wraps(draw)
    def drawn(results: AnyPath, path: AnyPath) -> None:
        try:
            draw(results, path)
        except FactorankError:
            raise
        except KeyError as error:
            raise FactorankError(f"{results}: the rows lack {error.args[0]!r}, which is shown") from None
        except (TypeError, ValueError, LookupError, AttributeError, ArithmeticError, StopIteration) as error:
            raise FactorankError(f"{results}: the rows cannot be drawn: {error}") from None

    return drawn


UNSTABLE: dict[str, dict[str, None]] = {
    "png": {"Software": None},
    "svg": {"Creator": None, "Date": None},
    "svgz": {"Creator": None, "Date": None},
    "pdf": {"Creator": None, "Producer": None, "CreationDate": None},
}
"""What a format says of its making, unless told not to: without it the same results give the same bytes."""


def save(figure: Any, path: AnyPath) -> None:
    """Write a figure in the format of the path's suffix, whole or not at all."""
    data, kind = io.BytesIO(), Path(path).suffix.lstrip(".").lower() or "png"
    try:
        with _pyplot().rc_context({"svg.hashsalt": "factorank"}):
            figure.savefig(data, format=kind, dpi=150, metadata=UNSTABLE.get(kind))
    except ValueError as error:
        raise FactorankError(f"{path}: {error}") from None
    finally:
        _pyplot().close(figure)
    write_whole(path, data.getvalue())


def _pyplot() -> Any:
    try:
        import matplotlib
    except ImportError:
        raise FactorankError("figures need matplotlib: pip install 'factorank[figures]'") from None
    matplotlib.use("agg")
    from matplotlib import pyplot

    return pyplot
