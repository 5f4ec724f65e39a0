"""What is measured of every method: lengths of lists, numbers of observed items, ranks k, and the lists."""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from factorank.data.ratings import Ratings, order_of
from factorank.errors import FactorankError
from factorank.permutations import inverse
from factorank.rerank.lists import Lists
from factorank.rerank.ranker import Ranker
from factorank.rerank.reranking import Query
from factorank.training.random_streams import stream_seed

KS = (1, 3, 5, 10)
USUAL_NS = (10, 20, 50)


@dataclass(frozen=True)
class Evaluation:
    """What is measured of every method."""

    ns: tuple[int, ...] = ()
    """Lengths of the lists; unless given 10, 20 and 50, as far as a ranker was trained on them. Those that
    are given may be longer, up to what it ranks."""
    rs: tuple[int, ...] = ()
    """Numbers of observed items; a range from 0 to n - 2 unless given."""
    ks: tuple[int, ...] = KS
    """NDCG is that of the first k."""
    lists: int = 1000
    """How many lists at least, as many of each user."""
    fillers: tuple[float, ...] = (0.0,)
    """Shares of a list that are items which the user has not rated, drawn at random, of relevance 0. That a
    user rated an item at all says that it suits: lists of rated items alone flatter methods that read
    nothing, and methods that learn which items are rated. Each share is measured."""
    by_time: bool = False
    """Whether the observed items are those that the user rated first, and not any; the table has times."""
    query: Query = Query(samples=None)  # noqa: RUF009, it is frozen
    """How a ranker ranks them."""
    calibrate: bool = True
    """Whether the calibration of a ranker is measured as well."""
    seed: int = 0
    """Decides the lists and the references."""

    def sizes(self, ratings: Ratings, ranker: Ranker | None = None) -> list[int]:
        """The lengths that users have ratings for, and that a ranker takes."""
        longest, lengths = int(ratings.lengths.max()), None if ranker is None else ranker.lengths
        if ranker is not None and lengths is not None and self.ns and self.query.by in ("gain", "place"):
            lengths = range(lengths.start, ranker.longest + 1)
        ns = self.ns or USUAL_NS
        sizes = [n for n in ns if n <= longest and (lengths is None or n in lengths)]
        if not sizes:
            raise FactorankError(
                f"none of the sizes n = {ns} can be measured: users have up to {longest} ratings"
                + ("" if lengths is None else f", the model takes {lengths.start}..{lengths.stop - 1}")
            )
        return sizes

    def observed_counts(self, n: int, fillers: float = 0.0) -> list[int]:
        """The numbers of observed items of lists of n; only rated ones can be."""
        most = n - filler_count(n, fillers) - 2
        rs = [r for r in self.rs or default_rs(n) if 0 <= r <= most]
        if not rs:
            raise FactorankError(f"of n = {n} items 0 to {most} can be observed, not r = {self.rs}")
        return rs

    def shares(self, ratings: Ratings, n: int) -> list[float]:
        """The shares of fillers that lists of n can have: somebody must have left so many items unrated."""
        return [share for share in self.fillers if len(who_can_fill(ratings, n, share))]

    def draw(self, ratings: Ratings, n: int, fillers: float = 0.0) -> "EvaluationLists":
        """The lists of n, with a share of fillers."""
        options = {"seed": self.seed, "lists": self.lists, "by_time": self.by_time}
        return draw_lists(ratings, n, fillers=fillers, **options)  # type: ignore[arg-type]


def default_rs(n: int) -> list[int]:
    """Numbers of observed items from 0 to n - 2: all up to n = 10, some beyond.

    >>> default_rs(20)
    [0, 1, 2, 3, 5, 8, 10, 15, 18]
    """
    if n <= 10:
        return list(range(max(n - 1, 1)))
    some = {0, 1, 2, 3, 5, 8, 10, 15, 20, 25, 30, 35, 40, 45, 60, 75, 90, n - 5, n - 2}
    return sorted(r for r in some if r <= n - 2)


def who_can_fill(ratings: Ratings, n: int, fillers: float = 0.0) -> Tensor:
    """The users who have rated enough items for lists of n with a share of fillers, and left enough."""
    unrated = filler_count(n, fillers)
    enough = (ratings.lengths >= n - unrated) & (ratings.lengths <= ratings.item_count - unrated)
    return enough.nonzero()[:, 0].cpu()


def filler_count(n: int, fillers: float) -> int:
    """How many items of a list of n the user has not rated."""
    return round(fillers * n)


@dataclass
class EvaluationLists:
    """Lists that all methods rank: the first r places of each are observed."""

    items: Tensor
    """int64 ``(lists, n)``, in random order, or by time; fillers last (see :meth:`showing`)."""
    relevance: Tensor
    """float32 ``(lists, n)``."""
    order: Tensor
    """int64 ``(lists, n)``: places in the list, best first; ties broken at random, once for all methods."""
    users: Tensor
    """The user of each list, int64 ``(lists,)``."""
    seed: int = 0
    """The seed that they were drawn by."""
    fillers: float = 0.0
    """The share of items that the user has not rated."""

    def showing(self, r: int) -> "EvaluationLists":
        """The same lists with the places from r on in random order, so that ties tell nothing."""
        generator = torch.Generator().manual_seed(stream_seed(self.seed, "shuffle", r))
        keys = torch.rand(self.items.shape, generator=generator)
        keys[:, :r] = torch.arange(r) - r
        shuffle = keys.argsort(-1)
        order = inverse(shuffle, check=False).gather(-1, self.order)
        items, relevance = (part.gather(-1, shuffle) for part in (self.items, self.relevance))
        return replace(self, items=items, relevance=relevance, order=order)

    @property
    def n(self) -> int:
        return self.items.shape[-1]

    def observed(self, r: int) -> Tensor:
        """The first r places of the list, best first: int64 ``(lists, r)``."""
        return self.order[self.order < r].view(len(self.order), r)

    def for_ranker(self, ranker: Ranker, r: int) -> Lists:
        """The lists padded to the n of a ranker's model, with what it reads of the first r items."""
        observed = self.observed(r)
        return Lists(
            torch.nn.functional.pad(self.items, (0, max(ranker.model.n - self.n, 0)), value=-1),
            observed,
            relevance=self.relevance.gather(1, observed) if ranker.told != "order" else None,
        )


def draw_lists(
    ratings: Ratings,
    n: int,
    *,
    seed: int = 0,
    lists: int = 1000,
    fillers: float = 0.0,
    by_time: bool = False,
) -> EvaluationLists:
    """At least ``lists`` lists of n, as many of each user who has enough ratings; the seed decides all.

    See :class:`Evaluation` for fillers and by_time.
    """
    if not 0 <= fillers < 1:
        raise FactorankError(f"{{parameter}} are shares of 0 to below 1, not {fillers}", parameter="fillers")
    unrated = filler_count(n, fillers)
    users = who_can_fill(ratings, n, fillers)
    if not len(users):
        left = f" and {unrated} items unrated" if unrated else ""
        raise FactorankError(f"no user to test on has {n - unrated} ratings{left}")
    users = users.repeat(-(-lists // len(users)))
    generator = torch.Generator().manual_seed(stream_seed(seed, "lists", n))
    ratings = ratings.to("cpu")
    rows = ratings.list_rows(n - unrated, users, generator)
    if by_time:
        if ratings.times is None:
            raise FactorankError("the ratings have no times, so that none are earlier", parameter="by_time")
        rows = rows.gather(-1, ratings.times[rows].argsort(dim=-1, stable=True))
    items, relevance = ratings.items[rows].long(), ratings.relevance(ratings.values[rows])
    if unrated:
        items = torch.cat([items, unrated_items(ratings, users, unrated, generator)], -1)
        relevance = torch.nn.functional.pad(relevance, (0, unrated))
    return EvaluationLists(items, relevance, order_of(relevance, generator), users, seed, fillers)


def unrated_items(ratings: Ratings, users: Tensor, count: int, generator: torch.Generator) -> Tensor:
    """Items that each of the users ``(lists,)`` has not rated, drawn at random: ``(lists, count)``."""
    drawn = []
    for part in users.split(1024):
        keys = torch.rand((len(part), ratings.item_count), generator=generator)
        for row, user in enumerate(part.tolist()):
            keys[row, ratings.items[ratings.starts[user] : ratings.starts[user + 1]].long()] = -1.0
        drawn.append(keys.topk(count).indices)
    return torch.cat(drawn)
