"""What all figures share: reading results, and writing a figure whole."""

import json
import os
from pathlib import Path
from typing import Any

from factorank.errors import FactorankError


def read_results(path: str | os.PathLike[str]) -> list[dict[str, Any]]:
    """The objects of a results file, one a line."""
    rows = []
    for number, line in enumerate(Path(path).read_text(encoding="utf-8").splitlines(), start=1):
        try:
            rows.append(json.loads(line))
        except ValueError as error:
            raise FactorankError(f"{path}:{number}: not JSON: {error}") from None
    return rows


def pyplot_module() -> Any:
    try:
        import matplotlib
    except ImportError:
        raise FactorankError("figures need matplotlib: pip install 'factorank[figures]'") from None
    matplotlib.use("agg")
    from matplotlib import pyplot

    return pyplot


def save(figure: Any, path: str | os.PathLike[str]) -> None:
    import io

    from factorank.files import write_whole

    data = io.BytesIO()
    figure.savefig(data, format=Path(path).suffix.lstrip(".") or "png", dpi=150, metadata={"Software": None})
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
