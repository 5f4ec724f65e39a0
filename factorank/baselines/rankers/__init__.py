"""Rankers to compare with on lists of rated items."""

from factorank.baselines.rankers.ease import EASE
from factorank.baselines.rankers.factorisation import MatrixFactorisation
from factorank.baselines.rankers.ranker import Lists, Ranker, RankerError, whole_order
from factorank.baselines.rankers.simple import MeanRating, Popularity, UniformRIM

RANKERS: dict[str, type[Ranker]] = {
    each.name: each for each in (Popularity, UniformRIM, MeanRating, MatrixFactorisation, EASE)
}
"""All of them by the names they have in results."""


def ranker(name: str) -> Ranker:
    """A ranker by its name in results, to be fitted.

    >>> ranker("ease").reads
    'ratings'
    """
    if name not in RANKERS:
        raise RankerError(f"there is no ranker {name!r}; there are {', '.join(RANKERS)}")
    return RANKERS[name]()


__all__ = [
    "EASE",
    "RANKERS",
    "Lists",
    "MatrixFactorisation",
    "MeanRating",
    "Popularity",
    "Ranker",
    "RankerError",
    "UniformRIM",
    "ranker",
    "whole_order",
]
