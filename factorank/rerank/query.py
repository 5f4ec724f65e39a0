"""How lists are ranked and what an answer states: the options of ``Ranker.rerank`` as one object."""

from dataclasses import dataclass
from typing import Literal, get_args

from factorank.errors import FactorankError

By = Literal["gain", "place", "mode", "sample"]
ITEMS_DRAWN, MOST_DRAWS = 16_384, 1024
"""With ``samples=None``: the items that are drawn for a list, over all its draws, and the most draws. The
noise of few draws costs NDCG. Observed items are not drawn."""


@dataclass(frozen=True)
class Query:
    """Options of a ranking; :meth:`factorank.Ranker.rerank` explains them.

    >>> Query(k=3).by
    'gain'
    """

    k: int = 10
    """An answer states the probability of being among the first k."""
    by: By = "gain"
    """What sorts the answer."""
    nfe: int | None = None
    """Network evaluations of a draw: 1 unless given, n for autoregressive models."""
    references: int = 1
    """Random references to average over."""
    samples: int | None = 64
    """Draws over all references, where place probabilities are not exact. None: the fewer items are
    unobserved, the more."""
    level: float = 0.8
    """The probability of the interval for the place."""

    def __post_init__(self) -> None:
        if self.by not in get_args(By):
            raise FactorankError(
                f"an answer is {{parameter}} {', '.join(get_args(By))}, not {self.by!r}", parameter="by"
            )
        for name in ("k", "references", "samples"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise FactorankError(f"{{parameter}} is at least 1, not {value}", parameter=name)
        if not 0 < self.level < 1:
            raise FactorankError(f"the level of an interval is between 0 and 1, not {self.level}")

    def draws(self, n: int, r: int = 0) -> int:
        """How many orders of n items, r of them observed, are drawn over all references.

        >>> adaptive = Query(samples=None)
        >>> adaptive.draws(50), adaptive.draws(50, 25), adaptive.draws(20, 15), Query().draws(20)
        (327, 655, 1024, 64)
        """
        if self.samples is not None:
            return self.samples
        return min(max(ITEMS_DRAWN // max(n - r, 1), 1), MOST_DRAWS)
