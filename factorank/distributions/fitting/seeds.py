"""Starting points of the mixtures: voters who disagree, and whom the others are nearest to."""

from collections.abc import Callable

import numpy as np
import torch


def spread_voters(
    distances_to: Callable[[int], np.ndarray], voters: np.ndarray, k: int, generator: torch.Generator | None
) -> np.ndarray:
    """Assign every voter to one of k of them, ``(voters,)``, chosen as k-means++ does.

    ``distances_to(v)`` gives the distance of all voters to voter v. The first is drawn by weight, each
    further one in proportion to weight times squared distance to the nearest chosen (Arthur and
    Vassilvitskii, 2007).
    """
    weights = voters / voters.sum()
    nearest = np.full(len(weights), np.inf)
    label = np.zeros(len(weights), dtype=np.int64)
    for name in range(k):
        chance = weights if name == 0 else weights * nearest**2
        if not chance.sum() > 0:  # fewer different voters than components
            chance = weights
        device = "cpu" if generator is None else generator.device
        place = float(torch.rand((), dtype=torch.float64, generator=generator, device=device)) * chance.sum()
        seed = min(int(np.searchsorted(np.cumsum(chance), place, side="right")), len(weights) - 1)
        distance = distances_to(seed)
        closer = distance < nearest
        label[closer], nearest = name, np.minimum(nearest, distance)
    return label
