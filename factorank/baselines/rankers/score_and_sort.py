"""A network that gives every item of a list a score, and sorts: Plackett-Luce given the observed order."""

from typing import Any, ClassVar, Self

import torch
from torch import Tensor, nn

from factorank.baselines.rankers.baseline import BaselineRanker, Grid, RatedLists
from factorank.baselines.rankers.unpersonalised import mean_relevance
from factorank.data.ratings import Ratings, order_of
from factorank.errors import RankerError
from factorank.models.transformer import Transformer

TOKENS_AT_ONCE = 1 << 16
"""Tokens that are scored at a time."""


class ScoreNetwork(nn.Module):
    r"""Logits of the items of a list, from the items and the places of the observed ones.

    A token is an item's embedding plus, if the item is observed, one of its place from above and one of its
    place from below among the observed; a transformer without any notion of the list's order reads them, and
    a linear map gives each item a logit. The law is Plackett-Luce given the observed order,

    .. math:: P(X \mid O) = \prod_{i<n} \frac{e^{s_{X_i}}}{\sum_{j \ge i} e^{s_{X_j}}} \Big/
        \prod_{i<r} \frac{e^{s_{O_i}}}{\sum_{j \ge i} e^{s_{O_j}}},

    whose denominator is the probability of the observed order O.
    """

    def __init__(
        self, items: int, n: int, width: int = 64, depth: int = 3, heads: int = 4, dropout: float = 0.1
    ) -> None:
        super().__init__()
        sizes = {"items": items, "n": n, "width": width, "depth": depth, "heads": heads, "dropout": dropout}
        self.n, self.sizes = n, sizes
        self.item = nn.Embedding(items, width)
        self.above, self.below = nn.Embedding(n, width), nn.Embedding(n, width)
        self.unobserved = nn.Parameter(torch.zeros(width))
        self.transformer = Transformer(width, depth, heads, dropout)
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 1)
        self.bias = nn.Embedding(items, 1)
        for table in (self.item, self.above, self.below):
            nn.init.normal_(table.weight, std=0.1)
        nn.init.zeros_(self.bias.weight)
        nn.init.zeros_(self.head.weight)

    def forward(self, items: Tensor, place: Tensor, count: Tensor) -> Tensor:
        """Logits ``(batch, n)`` of items ``(batch, n)``; ``place (batch, n)`` is an observed item's place
        among the ``count (batch, 1)`` observed ones, best 0, and anything from ``count`` on for others."""
        observed = (place < count)[..., None]
        rank = self.above(place.clamp(0, self.n - 1)) + self.below((count - 1 - place).clamp(0, self.n - 1))
        tokens = self.transformer(self.item(items) + torch.where(observed, rank, self.unobserved))
        return (self.head(self.norm(tokens)) + self.bias(items)).squeeze(-1)

    def loss(
        self, order: Tensor, context: Tensor, *, generator: torch.Generator | None = None, **_: Any
    ) -> Tensor:
        """-log P(order | order of the first r), ``(batch,)``, for r uniform in 0..n-1; context: the items."""
        batch, n = order.shape
        uniform = torch.rand((batch, 1), device=order.device, generator=generator)
        return self.nats(order, context, (uniform * n).to(torch.int64).clamp(max=n - 1))

    def nats(self, order: Tensor, items: Tensor, count: Tensor) -> Tensor:
        """-log P(order | order of the first ``count (batch, 1)`` items of the list), ``(batch,)``."""
        observed = order < count
        rank = torch.where(observed, observed.cumsum(1) - 1, order.shape[1])
        place = torch.empty_like(rank).scatter_(1, order, rank)
        logits = self(items, place, count).float().gather(1, order)
        return chain_nats(logits) - chain_nats(logits.masked_fill(~observed, -torch.inf))

    def config(self) -> dict[str, Any]:
        return {"kind": "score-and-sort"} | self.sizes

    def save_pretrained(self, path: Any) -> None:
        raise RankerError("a baseline ranker is not saved; fit it again")


def chain_nats(logits: Tensor) -> Tensor:
    """Minus the Plackett-Luce log-probability ``(batch,)`` that items with logits ``(batch, n)`` come in this
    order; items of logit minus infinity do not take part."""
    remaining = logits.flip(-1).logcumsumexp(-1).flip(-1)
    return torch.where(logits > -torch.inf, remaining - logits, 0.0).sum(-1)


class ScoreAndSort(BaselineRanker):
    """:class:`ScoreNetwork`, trained on random lists of the training users with random numbers observed.

    The score is the logit, which sorts the items by the mode of the law. The network reads the order only
    and is trained by the same loop as the models of this library. The number of steps is chosen on lists of
    the validation users, by likelihood; the learning rate and the other settings are options.

    Args:
        steps: of training, at most; options of :func:`factorank.train` may follow.
    """

    name = "score-and-sort"
    reads = "order"
    learned: ClassVar[Grid] = {"dropout": (0.1,)}

    def __init__(
        self, *, steps: int = 10_000, width: int = 64, depth: int = 3, heads: int = 4, **options: Any
    ) -> None:
        self.options: dict[str, Any] = {"lr": 1e-3, "batch_size": 512, "steps": steps} | options
        self.sizes = {"width": width, "depth": depth, "heads": heads}

    def fit(self, train: Ratings, validation: Ratings, *, n: int = 50, seed: int = 0, **options: Any) -> Self:
        lists = RatedLists.of(validation, n, seed=seed)
        self._n, self._seed = n, seed
        generator = torch.Generator(lists.items.device).manual_seed(seed)
        self._held_out = order_of(lists.relevance, generator), lists.items
        return super().fit(train, validation, n=n, seed=seed, **options)

    def learn(self, train: Ratings, dropout: float = 0.1) -> None:
        from factorank.training import train as optimise

        with torch.random.fork_rng(devices=[]):
            torch.random.default_generator.manual_seed(self._seed)
            self.network = ScoreNetwork(train.item_count, self._n, dropout=dropout, **self.sizes)
        with torch.no_grad():  # without the head, which starts at zero, the network is the mean rating
            means = mean_relevance(train, prior=10.0).cpu()
            self.network.bias.weight.copy_((means - means.mean())[:, None])
        n = self._n

        def batches(size: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
            items, relevance = data.draw(n, size, generator)
            return order_of(relevance, generator), items

        batches.capturable = True  # type: ignore[attr-defined]
        device = self.options.get("device") or ("cuda" if torch.cuda.is_available() else "cpu")
        data = train.to(device)
        data.draw(n, 1, torch.Generator(device).manual_seed(0))  # what it keeps is made before any capture
        defaults: dict[str, Any] = {"held_out": self._held_out, "seed": self._seed, "progress": False}
        self.result = optimise(self.network, batches, **defaults | self.options)

    @torch.no_grad()
    def _scores(self, items: Tensor, r: int, observed: Tensor, generator: torch.Generator | None) -> Tensor:
        n = items.shape[1]
        if r > self._n:
            raise RankerError(
                f"the network was trained on lists of {self._n} items, of which r = {r} cannot be observed"
            )
        place = torch.full_like(items, n)
        place[:, :r] = observed.argsort(-1)
        device = self.network.bias.weight.device
        count = torch.tensor([[r]], device=device)
        rows = max(1, TOKENS_AT_ONCE // max(n, 1))
        parts = [
            self.network(part.to(device), where.to(device), count)
            for part, where in zip(items.clamp(min=0).split(rows), place.split(rows), strict=True)
        ]
        return torch.cat(parts).float().to(items.device) if parts else items.float()
