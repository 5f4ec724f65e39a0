"""``factorank figure``: the figure of an experiment, drawn again from its results."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from factorank.errors import FactorankError

Name = Literal[
    "ambiguous",
    "codes",
    "cyclic",
    "cyclic-curve",
    "jigsaw",
    "laws",
    "leaderboard",
    "photograph-failures",
    "photographs",
    "rerank",
    "rerank-calibration",
    "sort",
    "speed",
    "votes",
]

MADE_BY: dict[str, str] = {
    "ambiguous": "factorank ambiguous",
    "cyclic": "factorank cyclic",
    "cyclic-curve": "factorank cyclic --watch",
    "codes": "factorank bench codes",
    "jigsaw": "factorank jigsaw train",
    "laws": "factorank laws",
    "leaderboard": "factorank coverage ranks",
    "photograph-failures": "factorank.experiments.photograph_failures",
    "photographs": "factorank jigsaw eval --pictures",
    "rerank": "factorank rerank eval",
    "rerank-calibration": "factorank rerank eval",
    "sort": "factorank sort train",
    "speed": "factorank bench sample (or train)",
    "votes": "factorank votes",
}
"""The commands that write the results."""


@dataclass
class Figure:
    """Draw the figure of an experiment from its results file."""

    name: Annotated[Name, tyro.conf.Positional]
    """The experiment or benchmark."""
    results: Path | None = None
    """Its results; results/NAME.jsonl in the current folder unless given."""
    out: Path | None = None
    """The figure to write, by its suffix .png, .pdf or .svg; a .png beside the results unless given."""

    def run(self) -> None:
        from factorank.figures import draw

        results = self.results or Path("results") / f"{self.name}.jsonl"
        if not results.exists():
            given = "" if self.results else "; --results FILE draws from another"
            missing = f"there is no file {results}{given}"
            raise FactorankError(f"{missing}; {MADE_BY[self.name]} writes such a file")
        out = self.out or results.with_suffix(".png")
        draw(self.name, results, out)
        print(f"drawn from {results}: {out}")
