"""Results to figures: drawn from plain numbers, as the result files hold them, without torch."""

from factorank.errors import FactorankError
from factorank.figures.ambiguous import ambiguous_figure
from factorank.figures.cyclic import curve_figure, cyclic_figure
from factorank.figures.drawing import AnyPath
from factorank.figures.jigsaw import jigsaw_figure
from factorank.figures.laws import laws_figure
from factorank.figures.leaderboard import coverage_figure
from factorank.figures.photograph_failures import failures_figure
from factorank.figures.photographs import photographs_figure
from factorank.figures.puzzles import solution_picture, steps_animation
from factorank.figures.rerank import calibration_figure, rerank_figure
from factorank.figures.sort import sort_figure
from factorank.figures.speed import codes_figure, speed_figure
from factorank.figures.votes import fit_figure, goodness_figure, votes_figure, votes_means
from factorank.files import read_json_lines

__all__ = [
    "FIGURES",
    "draw",
    "fit_figure",
    "goodness_figure",
    "solution_picture",
    "steps_animation",
    "votes_means",
]

FIGURES = {
    "ambiguous": ambiguous_figure,
    "cyclic": cyclic_figure,
    "cyclic-curve": curve_figure,
    "codes": codes_figure,
    "jigsaw": jigsaw_figure,
    "photograph-failures": failures_figure,
    "photographs": photographs_figure,
    "laws": laws_figure,
    "leaderboard": coverage_figure,
    "rerank": rerank_figure,
    "rerank-calibration": calibration_figure,
    "sort": sort_figure,
    "speed": speed_figure,
    "votes": votes_figure,
}
"""The figures that are drawn from a results file, by the name of the experiment in its rows."""


def draw(name: str, results: AnyPath, path: AnyPath) -> None:
    """Draw the figure of an experiment from its results file."""
    if name not in FIGURES:
        raise FactorankError(f"there is no figure {name!r}; there are {', '.join(FIGURES)}")
    experiments = {str(row.get("experiment")) for row in read_json_lines(results)}
    if experiments != {name}:
        held = f"results of {', '.join(sorted(experiments))}" if experiments else "no results"
        raise FactorankError(
            f"{results}: a figure of {name} is drawn from its results, but the file holds {held}"
        )
    FIGURES[name](results, path)
