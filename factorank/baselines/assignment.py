"""The best assignment: the order that maximizes the sum of one score per place."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import torch
from torch import Tensor

from factorank.errors import ModelError

GRAIN = 1 << 18
"""Products of elements and n that a thread should have at least: about a millisecond of work."""


def best_assignment(scores: Tensor) -> Tensor:
    r"""The order :math:`\arg\max_X \sum_i s_{i, X_i}` of each matrix of scores, place by item.

    ``(*batch, n, n)`` to int64 ``(*batch, n)``. Exact, by shortest augmenting paths in O(n³) (Jonker and
    Volgenant, 1987). Runs on the CPU, over torch's threads; scores on another device are copied there and the
    orders back.

    >>> best_assignment(torch.tensor([[1.0, 5.0, 4.0], [2.0, 6.0, 1.0], [9.0, 1.0, 1.0]]))
    tensor([2, 1, 0])
    """
    if scores.ndim < 2 or scores.shape[-1] != scores.shape[-2] or not scores.is_floating_point():
        raise ModelError(
            "an assignment takes scores (*batch, n, n), place by item,"
            f" not {scores.dtype} {tuple(scores.shape)}"
        )
    n = scores.shape[-1]
    costs = (-scores.detach()).to(device="cpu", dtype=torch.float64).reshape(scores.shape[:-2].numel(), n, n)
    if not bool(costs.isfinite().all()):
        raise ModelError("an assignment takes finite scores, but some here are infinite or not a number")
    costs = costs.contiguous()
    orders = torch.empty(costs.shape[:2], dtype=torch.int64)
    if orders.numel():
        _assign_all(costs.numpy(), orders.numpy())
    return orders.view(scores.shape[:-1]).to(scores.device)


def _assign_all(costs: np.ndarray, orders: np.ndarray) -> None:
    from factorank.baselines.assignment_kernel import assign

    parts = min(torch.get_num_threads(), len(costs), max(1, costs.size * costs.shape[-1] // GRAIN))
    if parts == 1:
        assign(costs, orders)
        return
    edges = [len(costs) * i // parts for i in range(parts + 1)]
    with ThreadPoolExecutor(parts) as pool:
        list(pool.map(lambda a, b: assign(costs[a:b], orders[a:b]), edges[:-1], edges[1:]))
