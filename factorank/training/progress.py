"""What is shown of a run in progress: a bar on a terminal, plain lines elsewhere, or nothing."""

import sys
import time
from typing import TextIO

from tqdm import tqdm

FIRST, BETWEEN = 3.0, 30.0
"""Seconds until the first plain line, and between two of them."""


class Lines:
    """Plain lines of progress, with the methods of tqdm's bar that a run calls.

    The first line comes after a few seconds, with an estimate of the time left.
    """

    def __init__(self, total: int, initial: int, file: TextIO | None = None) -> None:
        self.total, self.first, self.n = total, initial, initial
        self.file = sys.stderr if file is None else file
        self.status = ""
        self._began = time.monotonic()
        self._next = self._began + FIRST

    def update(self) -> None:
        """Count a step."""
        self.n += 1
        now = time.monotonic()
        if now < self._next or self.n == self.total:
            return
        self._next = now + BETWEEN
        rate = (self.n - self.first) / max(now - self._began, 1e-9)
        left = tqdm.format_interval((self.total - self.n) / rate)
        said = f"{self.status}, " if self.status else ""
        text = f"step {self.n:,} of {self.total:,}: {said}{rate:.3g} steps/s, {left} left"
        print(text, file=self.file, flush=True)

    def set_postfix_str(self, text: str) -> None:
        """What the next lines begin with; a rate and a time left, its last two parts, get old."""
        self.status = ", ".join(text.split(", ")[:-2])

    def close(self) -> None:
        """Nothing is left to do: every line is written when it comes."""


def progress(show: bool | str | None, total: int, initial: int) -> tqdm | Lines:
    """A bar, shown if ``show``, or on a terminal if that is None; with "lines", plain lines off terminals."""
    if show == "lines" and not sys.stderr.isatty():
        return Lines(total, initial)
    return tqdm(
        total=total,
        initial=initial,
        bar_format="{percentage:3.0f}% |{bar}| step {n_fmt}/{total_fmt} [{elapsed}<{remaining}{postfix}]",
        dynamic_ncols=True,
        disable=None if show in (None, "lines") else not show,
    )
