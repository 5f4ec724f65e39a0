"""``factorank bench``: a benchmark of the checkout."""

import re
import sys
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Annotated, ClassVar

import tyro

from factorank.errors import FactorankError

FOLDER = Path(__file__).parents[2] / "benchmarks"
"""The benchmarks, which a checkout has."""


def names() -> list[str]:
    """The files there that have a ``main(argv)``; the others are what these share."""
    files = sorted(FOLDER.glob("*.py"))
    return [file.stem for file in files if re.search(r"^def main\(", file.read_text("utf-8"), re.MULTILINE)]


@dataclass
class Bench:
    """Run one of the checkout's benchmarks: speed beside what others offer."""

    name: Annotated[
        str,
        tyro.conf.Positional,
        tyro.conf.arg(metavar="NAME", help=f"{', '.join(names())}. What follows is passed on to it."),
    ]
    rest: tyro.conf.Suppress[list[str]] = field(default_factory=list)

    passes_on: ClassVar[bool] = True

    def run(self) -> int:
        if self.name not in names():
            there = ", ".join(names()) or "none outside a checkout of the source"
            raise FactorankError(f"there is no benchmark {self.name!r}; there are {there}")
        sys.path.insert(0, str(FOLDER.parent))
        return import_module(f"benchmarks.{self.name}").main(self.rest) or 0
