"""What both kinds of EM share: settings, and where EM starts."""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from factorank.distributions.fitting.checks import check_counts, check_strength


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
        check_counts(**{name: changes[name] for name in counts if changes.get(name) is not None})
        check_strength("tolerance", settings.tolerance)
        return settings


def empty_components(weights: np.ndarray) -> list[str]:
    """A warning if some components have lost all their rankings."""
    empty = int((weights == 0).sum())
    return [f"{empty} of {len(weights)} components are empty"] if empty else []


def cluster_voters(
    distances_to: Callable[[int], np.ndarray], weights: np.ndarray, k: int, generator: torch.Generator | None
) -> tuple[np.ndarray, np.ndarray]:
    """Assign every voter to the nearest of k of them, which are chosen as k-means++ does.

    The result is the number of that one, and the distance to it, ``(voters,)`` each. ``distances_to(v)`` is
    the distance of all voters to voter v. The first centre is drawn by weight. For each further one a few
    candidates are drawn in proportion to weight times squared distance to the nearest centre, and the one
    that leaves the least of it is taken (Arthur and Vassilvitskii, 2007, with greedy choice).
    """
    weights = weights / weights.sum()
    nearest = np.full(len(weights), np.inf)
    label = np.zeros(len(weights), dtype=np.int64)
    for name in range(k):
        chance = weights if name == 0 else weights * nearest**2
        if not chance.sum() > 0:  # fewer different voters than components
            chance = weights
        device = "cpu" if generator is None else generator.device
        tries = 1 if name == 0 else 2 + int(math.log(k))
        places = torch.rand(tries, dtype=torch.float64, generator=generator, device=device).cpu().numpy()
        centres = np.searchsorted(np.cumsum(chance), places * chance.sum(), side="right")
        distances = [distances_to(min(int(centre), len(weights) - 1)) for centre in centres]
        distance = min(distances, key=lambda each: float(weights @ np.minimum(nearest, each) ** 2))
        closer = distance < nearest
        label[closer], nearest = name, np.minimum(nearest, distance)
    return label, nearest


def rounds(count: int, progress: bool, what: str) -> Iterator[int]:
    """``range(count)``, with a bar on a terminal that shows rate and estimate."""
    if not progress:
        yield from range(count)
        return
    from tqdm import tqdm

    yield from tqdm(range(count), unit=f" {what}", disable=None)  # None: only on a terminal
