"""Partitions of the positions into blocks that are revealed together: one block for each network evaluation.

Everything has the shape ``(samples, rows, …)``: samples of each row of a batch, which share its context.
A block is a pair of positions ``(samples, rows, size)``, distinct in each row, and a bool of that shape that
is false where a row has fewer positions than the longest, or None if there is no such place.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from factorank.errors import ModelError

Block = tuple[Tensor, Tensor | None]

CERTAINTY_STEPS = 4096
"""Certainties are compared in steps of this fraction: rounding in the network must not decide a tie."""


def listing(
    free: Tensor,
    samples: int,
    unmask: str,
    generator: torch.Generator | None = None,
    order: Sequence[int] | None = None,
) -> Tensor:
    """The free positions ``(rows, n)`` in the order of revealing, then the others: ``(samples, rows, n)``.

    An order that depends on what is predicted is not known here; it is left to right then. ``order`` gives
    the free positions themselves.
    """
    rows, n = free.shape
    if order is not None:
        rest = [position for position in range(n) if position not in order]
        return torch.tensor([*order, *rest], device=free.device).expand(samples, rows, n)
    if unmask == "right-to-left":
        at = torch.arange(n, 0, -1, device=free.device)
        return torch.where(free, at, n + 1).argsort(dim=-1, stable=True).expand(samples, rows, n)
    if unmask != "random":
        return (~free).to(torch.uint8).argsort(dim=-1, stable=True).expand(samples, rows, n)
    scores = torch.rand((samples, rows, n), dtype=torch.float64, device=free.device, generator=generator)
    return torch.where(free, scores, 2.0).argsort(-1)


@dataclasses.dataclass(frozen=True)
class Blocks:
    """How many positions are revealed together: ``nfe`` blocks of a schedule, or blocks of these sizes.

    "equal": sizes differ by at most one, the larger blocks first. "growing": sizes grow with what is revealed
    already, because little is known at first.

    >>> [Blocks(4).bounds(10, step) for step in range(4)]
    [(0, 3), (3, 6), (6, 8), (8, 10)]
    >>> [Blocks(4, "growing").bounds(10, step) for step in range(4)]
    [(0, 1), (1, 3), (3, 6), (6, 10)]
    >>> Blocks(3, sizes=(1, 2, 7)).bounds(10, 2)
    (3, 10)
    """

    nfe: int
    schedule: str = "equal"
    sizes: tuple[int, ...] | None = None

    def bounds(self, length: int | Tensor, step: int) -> tuple[int | Tensor, int | Tensor]:
        """Where block ``step`` begins and ends in a listing of that many positions, or ``(rows,)``."""
        self.check(length)
        return self._first(length, step), self._first(length, step + 1)

    def check(self, length: int | Tensor) -> None:
        """Refuse given sizes that do not sum to the number of free positions, one or ``(rows,)``."""
        if isinstance(length, Tensor) and not length.numel():
            return
        if self.sizes is not None and (isinstance(length, Tensor) or sum(self.sizes) != length):
            raise ModelError(
                f"the sizes of the blocks sum to the number of free positions, which is"
                f" {'not the same in every row' if isinstance(length, Tensor) else length}, not"
                f" {sum(self.sizes)}",
                parameter="nfe",
            )

    def _first(self, length: Any, block: int) -> Any:
        if self.sizes is not None:
            return sum(self.sizes[:block])
        if self.schedule == "equal":
            larger = length % self.nfe
            more = larger.clamp(max=block) if isinstance(larger, Tensor) else min(larger, block)
            return block * (length // self.nfe) + more
        least = length.clamp(max=block) if isinstance(length, Tensor) else min(length, block)
        rest = length.sub(self.nfe).clamp(min=0) if isinstance(length, Tensor) else max(length - self.nfe, 0)
        return least + rest * block**2 // self.nfe**2

    def widest(self, n: int, step: int) -> int:
        """At least as many positions as block ``step`` of up to n has."""
        if self.schedule == "equal":
            return -(-n // self.nfe)
        return 2 + -(-n * (2 * step + 1) // self.nfe**2)


def block(listed: Tensor, length: int | Tensor, blocks: Blocks, step: int) -> Block:
    """Block ``step`` of the partition that cuts a listing ``(samples, rows, n)`` into blocks.

    ``length`` is the number of free positions: one for all rows, or ``(rows,)``.
    """
    start, stop = blocks.bounds(length, step)
    if isinstance(start, int) and isinstance(stop, int):
        return listed[..., start:stop], None
    n = listed.shape[-1]
    at = torch.arange(min(n, blocks.widest(n, step)), device=listed.device)
    inside = start + at[:, None] < stop
    # Modulo: where a row has no more, any position not yet named will do.
    places = (start + at[:, None]).T % n
    return listed.gather(-1, places.expand(*listed.shape[:-1], -1)), inside.T.expand(*listed.shape[:-1], -1)


def confident(logits: Tensor, remaining: Tensor, length: int | Tensor, blocks: Blocks, step: int) -> Block:
    """The most certain of the remaining positions ``(samples, rows, n)``, as many as block ``step`` has.

    Certainty is the largest probability; ties go to the smaller index.
    """
    certainty = (logits.softmax(-1).amax(-1) * CERTAINTY_STEPS).round()
    ranked = torch.where(remaining, certainty, -1).argsort(dim=-1, descending=True, stable=True)
    start, stop = blocks.bounds(length, step)
    if isinstance(start, int) and isinstance(stop, int):
        return ranked[..., : stop - start], None
    n = ranked.shape[-1]
    at = torch.arange(min(n, blocks.widest(n, step)), device=ranked.device)
    inside = (at[:, None] < stop - start).T
    return ranked[..., : len(at)], inside.expand(*ranked.shape[:-1], -1)


def within_entropy(logits: Tensor, remaining: Tensor, bound: float, unmask: str) -> Block:
    """As many remaining positions as keep the sum of their entropies less the largest at or below the bound.

    This is what the joint entropy of positions drawn independently can exceed that of the truth by (Ben-Hamu
    et al., "Accelerated sampling from masked diffusion models via entropy bounded unmasking", 2025).
    Positions are taken from the least entropy up ("confident"), or in the order of ``unmask``; always at
    least one.
    """
    entropy = entropies(logits).expand(remaining.shape)
    places = torch.arange(logits.shape[-2], device=logits.device)
    if unmask == "confident":
        steps = (entropy * CERTAINTY_STEPS).round()
    else:
        steps = -places if unmask == "right-to-left" else places
    order = torch.where(remaining, steps, torch.inf).argsort(dim=-1, stable=True)
    sorted_entropy = entropy.gather(-1, order)
    shared = sorted_entropy.cumsum(-1) - sorted_entropy.cummax(-1).values
    return order, (shared <= bound + 1e-9) & remaining.gather(-1, order)


def entropies(logits: Tensor) -> Tensor:
    """The entropy in nats of each categorical ``(*batch, values)``, in float64."""
    log_probs = logits.double().log_softmax(-1)
    return -(log_probs.exp() * log_probs.clamp(min=-1e300)).sum(-1)
