"""The first stage of a recommendation: which of all items a user is likely to come to, given those they have.

Weights between items in closed form (Steck, "Embarrassingly shallow autoencoders for sparse data", 2019), for
the most rated items exactly. Each of the others has the weights of the few of those that predict it best, so
that memory grows with the number of items and not with its square.
"""

from collections.abc import Iterator

import torch
from torch import Tensor
from torch.nn.functional import embedding_bag

from factorank.data.ratings import Ratings
from factorank.data.ratings.choices import chosen

MOST_ITEMS = 4096
"""So many items, the most rated ones, have all weights between them."""
NEIGHBOURS = 64
"""So many weights has each of the other items."""
PENALTY = 1000.0
"""Of the squared weights."""
HALF = 0.01
"""The share of all ratings after which an earlier one counts half for what is popular."""
TIES, POPULAR = 1e-4, (1e-4, 0.1, 0.3, 1.0, 3.0)
"""The weight of what is popular where there are no times, and those that are tried where there are."""
AT_ONCE = 4096


class FirstStage:
    """Scores of all items for users, from the items that they have rated.

    Args:
        head: the most rated items, int64 ``(h,)``.
        weights: of each of them (rows) for each of them (columns), ``(h, h)``.
        tail: the other items, int64 ``(t,)``.
        neighbours: places in ``head`` of the items that predict each of the others, ``(t, m)``.
        tail_weights: the weights of these, ``(t, m)``.
        counts: what is added to the scores of all users, ``(items,)``: how often an item was rated lately.
    """

    NAMES = ("head", "weights", "tail", "neighbours", "tail_weights", "counts")

    def __init__(self, **tensors: Tensor) -> None:
        self.head, self.weights, self.tail = tensors["head"], tensors["weights"], tensors["tail"]
        self.neighbours, self.tail_weights = tensors["neighbours"], tensors["tail_weights"]
        self.counts = tensors["counts"]

    @classmethod
    def fit(cls, ratings: Ratings, penalty: float = PENALTY) -> "FirstStage":
        """Learn from who rated, or chose, what; the ratings themselves do not matter.

        Where there are times, the weight of the latest ratings of everybody is the one that best finds the
        last tenth of the ratings from those before.
        """
        ratings = chosen(ratings.to("cpu"))
        stage, popular = cls._weights(ratings, penalty), recent_counts(ratings)
        stage.counts = TIES * popular
        if ratings.times is not None and bool((ratings.times != ratings.times[0]).any()):
            earlier, last = ratings.split_by_time(0.1)
            if len(earlier.items):
                stage.counts = _best_weight(cls._weights(earlier, penalty), earlier, last) * popular
        return stage

    @classmethod
    def _weights(cls, ratings: Ratings, penalty: float) -> "FirstStage":
        counts = torch.bincount(ratings.items, minlength=ratings.item_count)
        by_count = counts.argsort(descending=True, stable=True)
        head, tail = by_count[:MOST_ITEMS].sort().values, by_count[MOST_ITEMS:].sort().values
        place = torch.full((ratings.item_count,), -1, dtype=torch.int64)
        place[head] = torch.arange(len(head))
        place[tail] = torch.arange(len(tail))
        is_head = torch.zeros(ratings.item_count, dtype=torch.bool).index_fill_(0, head, True)
        gram = torch.zeros(len(head), len(head))
        for _, _, table in _tables(ratings, place, is_head, len(head)):
            gram += table.T @ table
        unit = torch.eye(len(head))
        inverse = torch.linalg.inv((gram + penalty * unit).double()).float()
        weights = unit - inverse / inverse.diagonal()
        m = min(NEIGHBOURS, len(head))
        neighbours = torch.zeros(len(tail), m, dtype=torch.int32)
        tail_weights = torch.zeros(len(tail), m)
        for start in range(0, len(tail), AT_ONCE):
            part = torch.arange(start, min(start + AT_ONCE, len(tail)))
            together = _together(ratings, place, is_head, part, len(head))
            best = (inverse @ together).topk(m, dim=0)
            neighbours[part], tail_weights[part] = best.indices.T.int(), best.values.T
        return cls(
            head=head,
            weights=weights.half(),
            tail=tail,
            neighbours=neighbours,
            tail_weights=tail_weights.half(),
            counts=torch.zeros(ratings.item_count),
        )

    @property
    def item_count(self) -> int:
        return len(self.counts)

    def scores(self, history: Tensor) -> Tensor:
        """Scores ``(rows, items)`` of all items for users with the items ``history (rows, r)``, -1 pads.

        Without any the items stand by how often they were rated lately.
        """
        place = torch.full((self.item_count + 1,), -1, dtype=torch.int64)
        place[self.head] = torch.arange(len(self.head))
        at = place[torch.where(history < 0, self.item_count, history)]
        mine = torch.zeros(len(history), len(self.head) + 1)
        mine.scatter_(1, torch.where(at < 0, len(self.head), at), 1.0)
        mine = mine[:, :-1]
        scores = torch.zeros(len(history), self.item_count)
        if history.shape[1] and len(history) * history.shape[1] < len(self.head):
            # Few items: their rows are added up, and the rest of the weights is not read.
            rows = self.weights[at.clamp(min=0)].float() * (at >= 0)[..., None]
            scores[:, self.head] = rows.sum(1)
        else:
            scores[:, self.head] = mine @ self.weights.float()
        if len(self.tail):
            columns = mine.T.contiguous()
            for part in torch.arange(len(self.tail)).split(1 << 14):
                # The sum is taken at once: a tensor of all neighbours would have 64 times its numbers.
                weights = self.tail_weights[part].float()
                found = embedding_bag(self.neighbours[part], columns, mode="sum", per_sample_weights=weights)
                scores[:, self.tail[part]] = found.T
        return scores.add_(self.counts)

    def state(self) -> dict[str, Tensor]:
        """The tensors, for a file."""
        return {name: getattr(self, name).contiguous() for name in self.NAMES}


def recent_counts(ratings: Ratings) -> Tensor:
    """How often each item was rated, as a share of the most: ``(items,)``. Late ratings count more."""
    weight = torch.ones(len(ratings.items))
    if ratings.times is not None:
        later = len(weight) - 1 - ratings.times.argsort(stable=True).argsort()  # how many came after
        weight = torch.exp2(-later / (HALF * len(weight)))
    counts = torch.zeros(ratings.item_count).index_add_(0, ratings.items.long(), weight)
    return counts / counts.max().clamp(min=1e-9)


def _best_weight(stage: FirstStage, earlier: Ratings, last: Ratings, users: int = 500, k: int = 10) -> float:
    """The weight of what is popular for which the most of the ``last`` ratings are among the first k."""
    some = ((earlier.lengths >= 1) & (last.lengths >= 1)).nonzero()[:, 0][:users]
    if not len(some):
        return TIES
    mine, wanted = earlier.of_users(some), last.of_users(some)
    seen, targets = (torch.zeros(len(some), stage.item_count, dtype=torch.bool) for _ in range(2))
    for table, part in ((seen, mine), (targets, wanted)):
        table[part.users, part.items.long()] = True
    history = torch.full((len(some), int(mine.lengths.max())), -1)
    history[mine.users, torch.arange(len(mine.items)) - mine.starts[mine.users]] = mine.items.long()
    scores, popular = stage.scores(history).masked_fill(seen, -torch.inf), recent_counts(earlier)

    def found(weight: float) -> int:
        best = (scores + weight * popular).topk(min(k, stage.item_count), dim=-1).indices
        return int(targets.gather(-1, best).sum())

    return max(POPULAR, key=found)


def _tables(
    ratings: Ratings, place: Tensor, is_head: Tensor, heads: int
) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """Some users at a time: who (by number among them) rated which of the other items, by place; and who
    rated which of the most rated ones, as a table ``(users, heads)`` of ones."""
    for first in range(0, len(ratings), AT_ONCE):
        last = min(first + AT_ONCE, len(ratings))
        rows = slice(int(ratings.starts[first]), int(ratings.starts[last]))
        users, items = ratings.users[rows] - first, ratings.items[rows].long()
        inside = is_head[items]
        table = torch.zeros(last - first, heads)
        table[users[inside], place[items[inside]]] = 1.0
        yield users[~inside], place[items[~inside]], table


def _together(ratings: Ratings, place: Tensor, is_head: Tensor, part: Tensor, heads: int) -> Tensor:
    """How many users rated both each of the most rated items and each of some others: ``(heads, part)``."""
    low, high = int(part[0]), int(part[-1])
    result = torch.zeros(heads, len(part))
    for users, others, table in _tables(ratings, place, is_head, heads):
        wanted = ((others >= low) & (others <= high)).nonzero()[:, 0]
        for some in wanted.split(AT_ONCE):  # a row of the table for each: of all at once they would be many
            result.index_add_(1, others[some] - low, table[users[some]].T.contiguous())
    return result
