"""Baselines of re-ranking: rankers that score the items of a list, given some of a user's preferences."""

from typing import Any

from factorank.baselines.rankers.baseline import BaselineRanker, RatedLists
from factorank.baselines.rankers.ease import EASE
from factorank.baselines.rankers.factorisation import MatrixFactorisation
from factorank.baselines.rankers.lambdamart import LambdaMART
from factorank.baselines.rankers.mallows_mixture import MallowsMixture
from factorank.baselines.rankers.score_and_sort import ScoreAndSort
from factorank.baselines.rankers.unpersonalised import MeanRating, Popularity, UniformRIM
from factorank.errors import RankerError

_UNTRAINED = (Popularity, UniformRIM, MeanRating)
_TRAINED = (MatrixFactorisation, EASE, LambdaMART, ScoreAndSort, MallowsMixture)
RANKERS: dict[str, type[BaselineRanker]] = {kind.name: kind for kind in (*_UNTRAINED, *_TRAINED)}
"""The baselines by their names in results."""


def ranker(name: str, **options: Any) -> BaselineRanker:
    """A ranker by its name in results, to be fitted; options are those of its class.

    >>> ranker("ease").reads
    'ratings'
    """
    if name not in RANKERS:
        raise RankerError(f"there is no ranker {name!r}; there are {', '.join(RANKERS)}")
    return RANKERS[name](**options)


__all__ = [
    "EASE",
    "RANKERS",
    "BaselineRanker",
    "LambdaMART",
    "MallowsMixture",
    "MatrixFactorisation",
    "MeanRating",
    "Popularity",
    "RankerError",
    "RatedLists",
    "ScoreAndSort",
    "UniformRIM",
    "ranker",
]
