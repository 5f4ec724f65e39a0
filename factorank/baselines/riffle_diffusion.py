"""Diffusion by riffle shuffles: lists are shuffled step by step, and a network learns the reverse steps."""

import itertools
import math
from collections.abc import Sequence
from functools import partial
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.types import _size

from factorank.baselines.generalized_plackett_luce import (
    beam_search,
    choice_log_prob,
    draw,
)
from factorank.baselines.ordering import OrderingModel, ScoreHead
from factorank.baselines.riffle_shuffle import denoising_schedule, riffle, riffle_entropy
from factorank.errors import ModelError
from factorank.kernels.gpu.graphs import replayed
from factorank.models import masked
from factorank.models.network import evaluating
from factorank.permutations import inverse, random_permutations

BEAM, PATHS = 200, 20
"""What a search keeps: the beginnings of a list within a step, and the lists from one step to the next."""
MOST_TOKENS = 2**21
"""Tokens that a search gives to the network at once; larger batches go through in parts."""


class RiffleDiffusion(OrderingModel):
    r"""A discrete diffusion over the order of the pieces of a context (SymmetricDiffusers).

    The list in order, :math:`X_0`, is riffled: :math:`X_t` is the list after t shuffles, almost uniform at
    t = T. A reverse step of the model leads from one number of shuffles in the schedule to the one before.
    Given the list :math:`X_t`, and t, a network gives scores, new place by place in :math:`X_t`, and
    :math:`X_s[i] = X_t[\sigma_i]` with σ from the generalized Plackett-Luce law with these scores.

    The network has n tokens for the pieces as :math:`X_t` lists them and n more for the new places, which
    look at all pieces and at the places before them. The score of a piece at a new place is the product of
    their two tokens (in the paper's code as it is, here with a matrix between them that is learnt).

    The paper trains on puzzles by REINFORCE, without using the shuffles; here, as in its other tasks, the
    shuffles are used, and the likelihood of the step is maximized.

    See :class:`factorank.baselines.ordering.OrderingModel` for the first arguments and for orders.

    Args:
        schedule: rising numbers of shuffles from 0 to T; by default
            :func:`factorank.baselines.denoising_schedule`. The reverse steps, and so the network evaluations
            of a sample, are one fewer.

    Zhang, Yang and Liao, "SymmetricDiffusers: Learning discrete diffusion on finite symmetric groups", 2025,
    https://arxiv.org/abs/2410.02942.

    >>> import factorank as fr
    >>> numbers = torch.rand(64, 4, 1)
    >>> model = RiffleDiffusion(4, encoder=nn.Linear(1, 16), width=16, depth=1, heads=2)
    >>> result = fr.train(model, (numbers.argsort(-2).squeeze(-1), numbers), steps=3, device="cpu")
    >>> model.mode(numbers, beam=24, paths=5).shape, model.sample(numbers, (10,)).shape
    (torch.Size([64, 4]), torch.Size([10, 64, 4]))
    """

    kind: ClassVar[str] = "riffle-diffusion"
    default_beam: ClassVar[int | None] = BEAM
    starts: Tensor
    packets: Tensor
    may_look: Tensor

    def __init__(self, *args: Any, schedule: Sequence[int] | None = None, **options: Any) -> None:
        super().__init__(*args, **options)
        n, width = self.n, self.width
        self.schedule = denoising_schedule(n) if schedule is None else list(schedule)
        pairs = list(itertools.pairwise(self.schedule))
        if not pairs or self.schedule[0] != 0 or any(s >= t for s, t in pairs) or self.schedule[-1] > 24:
            raise ModelError(
                f"a schedule is rising numbers of shuffles from 0 to at most 24, not {self.schedule}"
            )
        self.steps, self.head = len(pairs), ScoreHead(width, width)
        self.place, self.time, self.slot = (
            nn.Parameter(nn.init.normal_(torch.empty(size, width), std=0.5)) for size in (n, self.steps, n)
        )
        may_look = torch.ones((2 * n, 2 * n), dtype=torch.bool).tril()
        may_look[:, :n] = True
        self.register_buffer("may_look", may_look, persistent=False)
        self.register_buffer("starts", torch.tensor([2**s for s, _ in pairs]), persistent=False)
        self.register_buffer("packets", torch.tensor([2 ** (t - s) for s, t in pairs]), persistent=False)
        # The part of the bound on the likelihood that does not depend on the reverse steps; see _loss.
        self.constant = math.lgamma(n + 1) - sum(riffle_entropy(n, 2 ** (t - s)) for s, t in pairs)

    def scores(self, tokens: Tensor, step: Tensor | int) -> Tensor:
        """Scores ``(rows, n, n)``, new place by place in the list, of a reverse step.

        ``tokens (rows, n, width)`` are those of the pieces as the list has them, and ``step``, a number or
        int64 ``(rows,)``, says which pair of the schedule the step is between, 0 the one that ends at order.
        """
        time = self.time[step] if isinstance(step, int) else F.embedding(step, self.time)[:, None]
        pieces, slots = tokens + self.place + time, (self.slot + time).expand_as(tokens)
        pieces, slots = self.network(torch.cat([pieces, slots], 1), self.may_look).split(self.n, 1)
        with torch.autocast(tokens.device.type, enabled=False):
            listed = F.layer_norm(pieces.float(), (self.width,))
            return self.head(slots) @ listed.mT * self.width**-0.5

    def noise(
        self, batch: torch.Size, *, device: torch.device | str, generator: torch.Generator | None = None
    ) -> tuple[Tensor, ...]:
        # The strata share out the steps over the batch; each of two shuffles takes n numbers.
        return masked.noise(batch, 2 * self.n, device, generator)

    def _loss(self, order: Tensor, tokens: Tensor, context: Any, noise: tuple[Tensor, ...]) -> Tensor:
        r"""An estimate, in nats, of a bound on :math:`-\log p` of each order ``(*batch, n)``: ``(*batch,)``.

        .. math:: -\log p(X_0) \le \log n! - \mathbb{E} \sum_k
            \big[ \log p(X_{t_{k-1}} \mid X_{t_k}) - \log q(X_{t_k} \mid X_{t_{k-1}}) \big],

        where one step k is drawn for each row, stratified over the batch, and the mean of log q is the
        (exact) entropy of riffle shuffles.
        """
        strata, uniform = noise
        batch = tokens.shape[:-2]
        order, uniform = order.reshape(-1, self.n), uniform.reshape(-1, 2, self.n)
        step = (strata.reshape(-1) * self.steps).long().clamp(max=self.steps - 1)
        earlier = order.gather(-1, riffle(uniform[:, 0], self.starts[step]))
        shuffle = riffle(uniform[:, 1], self.packets[step])
        later = earlier.gather(-1, shuffle)
        scores = self.scores(_listed(tokens.reshape(-1, self.n, self.width), later), step)
        # Places of the later list, by place in the earlier one: the shuffle undone.
        losses = self.constant - self.steps * choice_log_prob(scores, inverse(shuffle, check=False))
        return losses.view(batch)

    @torch.no_grad()
    def sample(
        self, context: Any, sample_shape: _size = (), *, generator: torch.Generator | None = None
    ) -> Tensor:
        """Orders ``(*sample_shape, *batch, n)`` drawn by reverse steps from a uniform list."""
        with evaluating(self):
            tokens = self.tokens(context)
            lead = (*sample_shape, *tokens.shape[:-2])
            tokens = tokens.expand(*lead, *tokens.shape[-2:]).reshape(-1, self.n, self.width)
            lists = random_permutations(self.n, (tokens.shape[0],), generator=generator, device=tokens.device)
            for step in reversed(range(self.steps)):
                scores = self.scores(_listed(tokens, lists), step)
                lists = lists.gather(-1, draw(scores, generator))
        return lists.view(*lead, self.n)

    @property
    def nfe(self) -> int:
        return self.steps

    def solve(self, context: Tensor, *, beam: int | None = None) -> Tensor:
        width = BEAM if beam is None else beam
        search = partial(self.mode, beam=width, paths=min(width, PATHS))
        return replayed(self, ("mode", width), search, context, len(context) * self.n)

    def mode(self, context: Any, beam: int = BEAM, paths: int = PATHS) -> Tensor:
        """The end of the most likely reverse path that a beam search finds: orders ``(*batch, n)``.

        Args:
            context: the pieces, in a random arrangement, which is taken as the shuffled list.
            beam: the beginnings of a step's list that are kept; 1 is greedy.
            paths: the lists that are kept from one step to the next, at most as many as the beam.
        """
        return self.search(context, beam, paths)[0][..., 0, :]

    @torch.no_grad()
    def search(self, context: Any, beam: int = BEAM, paths: int = PATHS) -> tuple[Tensor, Tensor]:
        """The ends of the likeliest reverse paths ``(*batch, k, n)`` and their log-probabilities
        ``(*batch, k)``.

        The likeliest comes first; different paths may end in the same order. See :meth:`mode`.
        """
        if beam < 1 or paths < 1:
            raise ModelError(f"a search keeps 1 or more beginnings and paths, not {beam=}, {paths=}")
        with evaluating(self):
            tokens = self.tokens(context)  # once: the steps only list them anew
            batch = tokens.shape[:-2]
            at_once = max(1, MOST_TOKENS // (2 * self.n * paths))
            rows = tokens.reshape(batch.numel(), self.n, self.width)
            parts = [self._search(part, beam, paths) for part in rows.split(at_once)]
        lists, total = (torch.cat(each) for each in zip(*parts, strict=True))
        return lists.view(*batch, *lists.shape[1:]), total.view(*batch, total.shape[1])

    def _search(self, tokens: Tensor, beam: int, paths: int) -> tuple[Tensor, Tensor]:
        rows = tokens.shape[0]
        lists = torch.arange(self.n, device=tokens.device).expand(rows, 1, self.n)
        total = torch.zeros((rows, 1), device=tokens.device)
        for step in reversed(range(self.steps)):
            count = lists.shape[1]
            every = tokens[:, None].expand(-1, count, -1, -1)
            scores = self.scores(_listed(every, lists).flatten(0, 1), step)
            moves, log_probs = beam_search(scores, beam, min(beam, paths))
            each = moves.shape[1]
            candidates = (total[..., None] + log_probs.view(rows, count, each)).flatten(1)
            total, best = candidates.topk(min(paths, count * each))
            from_list = lists.gather(1, (best // each)[..., None].expand(-1, -1, self.n))
            move = moves.view(rows, count * each, self.n).gather(1, best[..., None].expand(-1, -1, self.n))
            lists = from_list.gather(-1, move)
        return lists, total

    def config(self) -> dict[str, Any]:
        return super().config() | {"schedule": self.schedule}


def _listed(tokens: Tensor, lists: Tensor) -> Tensor:
    """Tokens ``(rows, n, width)`` in the order of lists ``(rows, n)``."""
    return tokens.gather(-2, lists[..., None].expand_as(tokens))
