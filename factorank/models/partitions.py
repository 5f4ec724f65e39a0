"""Partitions of the positions into blocks that are revealed together: one block for each network evaluation.

Everything has the shape ``(samples, rows, …)``: samples of each row of a batch, which share its context.
A block is a pair of positions ``(samples, rows, size)``, distinct in each row, and a bool of that shape that
is false where a row has fewer positions than the longest, or None if there is no such place.
"""

import torch
from torch import Tensor

Block = tuple[Tensor, Tensor | None]

CERTAINTY_STEPS = 4096
"""Certainties are compared in steps of this fraction: rounding in the network must not decide a tie."""


def listing(free: Tensor, samples: int, unmask: str, generator: torch.Generator | None = None) -> Tensor:
    """The free positions ``(rows, n)`` in the order of revealing, then the others: ``(samples, rows, n)``.

    An order that depends on what is predicted is not known here; it is left to right then.
    """
    rows, n = free.shape
    if unmask == "right-to-left":
        at = torch.arange(n, 0, -1, device=free.device)
        return torch.where(free, at, n + 1).argsort(dim=-1, stable=True).expand(samples, rows, n)
    if unmask != "random":
        return (~free).to(torch.uint8).argsort(dim=-1, stable=True).expand(samples, rows, n)
    scores = torch.rand((samples, rows, n), dtype=torch.float64, device=free.device, generator=generator)
    return torch.where(free, scores, 2.0).argsort(-1)


def bounds(length: int | Tensor, nfe: int, step: int) -> tuple[int | Tensor, int | Tensor]:
    """Where block ``step`` of ``nfe`` begins and ends in a listing: sizes differ by at most one.

    The larger blocks come first: the more is revealed, the more does each position depend on the others.

    >>> [bounds(10, 4, step) for step in range(4)]
    [(0, 3), (3, 6), (6, 8), (8, 10)]
    """
    size, larger = length // nfe, length % nfe

    def first(block: int) -> int | Tensor:
        more = larger.clamp(max=block) if isinstance(larger, Tensor) else min(larger, block)
        return block * size + more

    return first(step), first(step + 1)


def block(listed: Tensor, length: int | Tensor, nfe: int, step: int) -> Block:
    """Block ``step`` of the partition that cuts a listing ``(samples, rows, n)`` into ``nfe`` blocks.

    ``length`` is the number of free positions: one for all rows, or ``(rows,)``.
    """
    start, stop = bounds(length, nfe, step)
    if isinstance(start, int) and isinstance(stop, int):
        return listed[..., start:stop], None
    n = listed.shape[-1]
    at = torch.arange(-(-n // nfe), device=listed.device)
    inside = start + at[:, None] < stop
    places = (
        start + at[:, None]
    ).T % n  # modulo: where a row has no more, any position not yet named will do
    return listed.gather(-1, places.expand(*listed.shape[:-1], -1)), inside.T.expand(*listed.shape[:-1], -1)


def confident(logits: Tensor, remaining: Tensor, length: int | Tensor, nfe: int, step: int) -> Block:
    """The most certain of the remaining positions ``(samples, rows, n)``, as many as block ``step`` has.

    Certainty is the largest probability; ties go to the smaller index.
    """
    certainty = (logits.softmax(-1).amax(-1) * CERTAINTY_STEPS).round()
    ranked = torch.where(remaining, certainty, -1).argsort(dim=-1, descending=True, stable=True)
    start, stop = bounds(length, nfe, step)
    if isinstance(start, int) and isinstance(stop, int):
        return ranked[..., : stop - start], None
    at = torch.arange(-(-ranked.shape[-1] // nfe), device=ranked.device)
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
