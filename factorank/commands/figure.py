"""``factorank figure``: the figure of an experiment, drawn again from its results."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

Name = Literal["cyclic", "cyclic-curve", "codes", "jigsaw", "rerank", "rerank-calibration", "speed", "votes"]


@dataclass
class Figure:
    """Draw the figure of an experiment from its results file."""

    name: Annotated[Name, tyro.conf.Positional]
    """The experiment or benchmark."""
    results: Path | None = None
    """Its results; results/NAME.jsonl unless given."""
    out: Path | None = None
    """The figure to write, by its suffix .png, .pdf or .svg; a .png beside the results unless given."""

    def run(self) -> None:
        from factorank.figures import draw

        results = self.results or Path("results") / f"{self.name}.jsonl"
        out = self.out or results.with_suffix(".png")
        draw(self.name, results, out)
        print(f"drawn from {results}: {out}")
