"""What all figures share: reading results, and writing a figure whole."""

import os
from pathlib import Path
from typing import Any

from factorank.errors import FactorankError
from factorank.files import read_json_lines, write_whole


def read_results(path: str | os.PathLike[str]) -> list[dict[str, Any]]:
    """The rows of a results file."""
    return read_json_lines(path)


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


def pyplot_module() -> Any:
    try:
        import matplotlib
    except ImportError:
        raise FactorankError("figures need matplotlib: pip install 'factorank[figures]'") from None
    matplotlib.use("agg")
    from matplotlib import pyplot

    return pyplot


def save(figure: Any, path: str | os.PathLike[str]) -> None:
    """Write a figure in the format of the path's suffix, whole or not at all."""
    import io

    data, kind = io.BytesIO(), Path(path).suffix.lstrip(".").lower() or "png"
    # Without the name of the software the same results give the same bytes; JPEG has no place for it.
    metadata = None if kind in ("jpg", "jpeg", "webp", "tif", "tiff", "gif") else {"Software": None}
    try:
        figure.savefig(data, format=kind, dpi=150, metadata=metadata)
    except ValueError as error:
        raise FactorankError(f"{path}: {error}") from None
    finally:
        pyplot_module().close(figure)
    write_whole(path, data.getvalue())


CODE_STYLES = {
    "inline": ("0.6", "v", "-"),
    "lehmer": ("black", "o", "-"),
    "left-lehmer": ("0.35", "s", "--"),
    "fisher-yates": ("black", "^", "-"),
    "insertion": ("0.5", "D", "-."),
}
"""Grey, marker and line of each code, so that figures can be read in print."""
