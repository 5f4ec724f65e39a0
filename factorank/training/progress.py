"""The progress of a run: ``metrics.jsonl``, TensorBoard where installed, a progress bar on a terminal."""

import json
import math
import os
import warnings
from importlib.util import find_spec
from pathlib import Path
from typing import Any

BITS = 1.0 / math.log(2.0)
"""Bits in a nat."""


class Metrics:
    """``metrics.jsonl``: one flat object a line, each with its step."""

    def __init__(self, folder: Path, step: int) -> None:
        self.path = folder / "metrics.jsonl"
        cut_back(self.path, step)
        self._file = open(self.path, "a", encoding="utf-8")  # noqa: SIM115
        self._board = _tensorboard(folder, step)

    def write(self, line: dict[str, Any]) -> None:
        """Add a line; numbers that JSON lacks (nan, infinity) become null."""
        plain = {k: None if isinstance(v, float) and not math.isfinite(v) else v for k, v in line.items()}
        self._file.write(json.dumps(plain) + "\n")
        self._file.flush()
        if self._board is not None:
            for name, value in line.items():
                if name != "step" and isinstance(value, int | float):
                    self._board.add_scalar(name, value, line["step"])

    def sync(self) -> None:
        """Wait until the disk has every line."""
        os.fsync(self._file.fileno())

    def close(self) -> None:
        self._file.close()
        if self._board is not None:
            self._board.close()


def cut_back(path: Path, step: int) -> None:
    """Drop the lines of ``metrics.jsonl`` after ``step``, and a last line that was cut short."""
    if not path.exists():
        return
    keep = 0
    with open(path, "rb") as file:
        for line in file:
            try:
                if not line.endswith(b"\n") or json.loads(line)["step"] > step:
                    break
            except (ValueError, KeyError, TypeError):
                break
            keep += len(line)
    os.truncate(path, keep)


def progress_bar(show: bool | None, step: int, steps: int) -> Any:
    """A progress bar; by default only on a terminal."""
    from tqdm import tqdm

    layout = "{percentage:3.0f}% |{bar}| step {n_fmt}/{total_fmt} [{elapsed}{postfix}]"
    hidden = None if show is None else not show
    return tqdm(total=steps, initial=step, bar_format=layout, dynamic_ncols=True, disable=hidden)


def _tensorboard(folder: Path, step: int) -> Any:
    if find_spec("tensorboard") is None:
        return None
    try:
        from torch.utils.tensorboard import SummaryWriter  # type: ignore[attr-defined,unused-ignore]

        return SummaryWriter(str(folder / "tensorboard"), purge_step=step + 1)  # type: ignore[no-untyped-call,unused-ignore]
    except Exception as error:  # a broken TensorBoard must not stop a run that does not need it
        warnings.warn(f"TensorBoard is installed but cannot be used: {error}", UserWarning, stacklevel=2)
        return None
