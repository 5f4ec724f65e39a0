"""What is measured of every method: lengths of lists, numbers of observed items, ranks k, and how."""

from dataclasses import dataclass

from factorank.data.ratings import Ratings
from factorank.errors import FactorankError
from factorank.rerank.query import Query

KS = (1, 3, 5, 10)


@dataclass(frozen=True)
class Evaluation:
    """What is measured of every method."""

    ns: tuple[int, ...] = (10, 20, 50)
    """Lengths of the lists."""
    rs: tuple[int, ...] = ()
    """Numbers of observed items; a range from 0 to n - 2 unless given."""
    ks: tuple[int, ...] = KS
    """NDCG is that of the first k."""
    lists: int = 1000
    """How many lists at least, as many of each user."""
    query: Query = Query(references=8, samples=None)  # noqa: RUF009, it is frozen
    """How a ranker ranks them."""
    calibrate: bool = True
    """Whether the calibration of a ranker is measured as well."""
    seed: int = 0
    """Decides the lists and the references."""

    def sizes(self, ratings: Ratings, lengths: range | None = None) -> list[int]:
        """The lengths that users have ratings for, and that a model takes, if it takes those ``lengths``."""
        longest = int(ratings.lengths.max())
        sizes = [n for n in self.ns if n <= longest and (lengths is None or n in lengths)]
        if not sizes:
            raise FactorankError(
                f"none of the sizes n = {self.ns} can be measured: users have up to {longest} ratings"
                + ("" if lengths is None else f", the model takes {lengths.start}..{lengths.stop - 1}")
            )
        return sizes

    def observed_counts(self, n: int) -> list[int]:
        """The numbers of observed items of lists of n."""
        rs = [r for r in self.rs if 0 <= r <= n - 2] if self.rs else default_rs(n)
        if not rs:
            raise FactorankError(f"of n = {n} items 0 to {n - 2} can be observed, not r = {self.rs}")
        return rs


def default_rs(n: int) -> list[int]:
    """Numbers of observed items from 0 to n - 2: all up to n = 10, some beyond.

    >>> default_rs(20)
    [0, 1, 2, 3, 5, 8, 10, 15, 18]
    """
    if n <= 10:
        return list(range(max(n - 1, 1)))
    some = {0, 1, 2, 3, 5, 8, 10, 15, 20, 25, 30, 35, 40, 45, 60, 75, 90, n - 5, n - 2}
    return sorted(r for r in some if r <= n - 2)
