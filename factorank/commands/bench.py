"""``factorank bench``: a benchmark of the checkout."""

import re
import sys
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Annotated, ClassVar

import tyro

from factorank.errors import FactorankError


def benchmarks() -> Path:
    """The folder of the benchmarks, which a checkout has."""
    return Path(__file__).parents[2] / "benchmarks"


def names() -> list[str]:
    """The benchmarks: the files there that have a ``main(argv)``; the others are what these share."""
    files = sorted(benchmarks().glob("*.py"))
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
        folder = benchmarks()
        if not folder.is_dir():
            raise FactorankError(
                f"there is no folder {folder}: the benchmarks are in a checkout of the source, not in the"
                " installed package"
            )
        if self.name not in names():
            raise FactorankError(
                f"there is no benchmark {self.name!r}; there are {', '.join(names()) or 'none'}"
            )
        sys.path.insert(0, str(folder.parent))
        return import_module(f"benchmarks.{self.name}").main(self.rest) or 0
