"""What both kinds of EM share: settings, the rankings to fit to or to hold out, and where EM starts."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from factorank.distributions.fitting.checks import check_counts
from factorank.distributions.fitting.report import FitError
from factorank.distributions.partial_orders import PartialOrders


@dataclass(frozen=True)
class EMSettings:
    """How EM runs."""

    max_iterations: int
    tolerance: float
    samples: int = 1
    """Completions for each voter of partial orders."""
    components: int = 1
    restarts: int = 1
    generator: torch.Generator | None = None
    progress: bool = False

    def changed(self, **changes: Any) -> "EMSettings":
        """The settings with other values, where these are not None; checked."""
        settings = replace(self, **{name: value for name, value in changes.items() if value is not None})
        counts = ("components", "restarts", "max_iterations", "samples")
        check_counts(**{name: getattr(settings, name) for name in counts})
        return settings


@dataclass(frozen=True)
class Votes:
    """Rankings, orders ``(*batch, n)`` or :class:`PartialOrders`, and their weights."""

    orders: Any
    weights: Tensor | None


def hold_out(
    votes: Votes,
    held_out: Tensor | PartialOrders | float | None,
    held_out_weights: Tensor | None,
    generator: torch.Generator | None,
) -> tuple[Votes, Votes | None]:
    """The votes to fit to and those held out; ``held_out`` may be a share of the votes, drawn at random."""
    if held_out is None:
        return votes, None
    if isinstance(held_out, float | int):
        return _split(votes, float(held_out), generator)
    if isinstance(held_out, PartialOrders) != isinstance(votes.orders, PartialOrders):
        raise FitError("the rankings held out are complete if the others are, and partial if they are")
    return votes, Votes(held_out, held_out_weights)


def _split(votes: Votes, share: float, generator: torch.Generator | None) -> tuple[Votes, Votes]:
    orders, weights = votes.orders, votes.weights
    if isinstance(orders, Tensor) and orders.ndim > 1:
        orders = orders.reshape(-1, orders.shape[-1])
        weights = None if weights is None else weights.reshape(-1)
    count = len(orders)
    out = round(share * count)
    if not 0 < share < 1 or not 0 < out < count:
        raise FitError(f"held_out as a share leaves some of {count} rankings on both sides; {share} does not")
    device = None if generator is None else generator.device
    shuffled = torch.randperm(count, generator=generator, device=device).cpu()
    kept, left = shuffled[out:].sort().values, shuffled[:out].sort().values
    if weights is None:
        return Votes(orders[kept], None), Votes(orders[left], None)
    return Votes(orders[kept], weights[kept]), Votes(orders[left], weights[left])


def empty_components(weights: np.ndarray) -> list[str]:
    """A warning if some components have lost all their rankings."""
    empty = int((weights == 0).sum())
    return [f"{empty} of {len(weights)} components are empty"] if empty else []


def cluster_voters(
    distances_to: Callable[[int], np.ndarray], weights: np.ndarray, k: int, generator: torch.Generator | None
) -> np.ndarray:
    """Assign every voter to the nearest of k of them, ``(voters,)``, which are chosen as k-means++ does.

    ``distances_to(v)`` is the distance of all voters to voter v. The first centre is drawn by weight, each
    further one in proportion to weight times squared distance to the nearest centre (Arthur and
    Vassilvitskii, 2007).
    """
    weights = weights / weights.sum()
    nearest = np.full(len(weights), np.inf)
    label = np.zeros(len(weights), dtype=np.int64)
    for name in range(k):
        chance = weights if name == 0 else weights * nearest**2
        if not chance.sum() > 0:  # fewer different voters than components
            chance = weights
        device = "cpu" if generator is None else generator.device
        place = float(torch.rand((), dtype=torch.float64, generator=generator, device=device)) * chance.sum()
        centre = min(int(np.searchsorted(np.cumsum(chance), place, side="right")), len(weights) - 1)
        distance = distances_to(centre)
        closer = distance < nearest
        label[closer], nearest = name, np.minimum(nearest, distance)
    return label


def rounds(count: int, progress: bool, what: str) -> Iterator[int]:
    """``range(count)``, with a bar on a terminal that shows rate and estimate."""
    if not progress:
        yield from range(count)
        return
    from tqdm import tqdm

    yield from tqdm(range(count), unit=f" {what}", disable=None)  # None: only on a terminal
