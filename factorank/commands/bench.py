"""``factorank bench``: a benchmark of the checkout."""

import sys
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Annotated, ClassVar

import tyro

from factorank.errors import FactorankError


@dataclass
class Bench:
    """Run one of the checkout's benchmarks: speed beside what others offer."""

    name: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="NAME")]
    """The benchmark: benchmarks/NAME.py. What follows the name is passed on to it."""
    rest: tyro.conf.Suppress[list[str]] = field(default_factory=list)

    passes_on: ClassVar[bool] = True

    def run(self) -> int:
        folder = Path(__file__).parents[2] / "benchmarks"
        if not folder.is_dir():
            raise FactorankError(
                f"there is no folder {folder}: the benchmarks are in a checkout of the source, not in the"
                " installed package"
            )
        names = sorted(file.stem for file in folder.glob("*.py") if not file.name.startswith("_"))
        if self.name not in names:
            raise FactorankError(
                f"there is no benchmark {self.name!r}; there are {', '.join(names) or 'none'}"
            )
        sys.path.insert(0, str(folder.parent))
        main = getattr(import_module(f"benchmarks.{self.name}"), "main", None)
        if main is None:
            raise FactorankError(f"benchmarks/{self.name}.py has no main(argv)")
        return main(self.rest) or 0
