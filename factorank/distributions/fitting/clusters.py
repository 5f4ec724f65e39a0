"""The clusters that EM starts from: around voters who disagree."""

from collections.abc import Callable

import numpy as np
import torch


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
