"""The best assignment: the order that maximizes the sum of one score per place."""

import torch
from torch import Tensor

from factorank.errors import ModelError


def best_assignment(scores: Tensor) -> Tensor:
    r"""The order :math:`\arg\max_X \sum_i s_{i, X_i}` of each matrix of scores, place by item.

    ``(*batch, n, n)`` to int64 ``(*batch, n)``. The result is exact. Where the best items of all places
    differ, they are the answer, and stay on the device of the scores. Other matrices are solved by shortest
    augmenting paths in O(n³) (Jonker and Volgenant, 1987) on the CPU, in as many threads as torch has.

    >>> best_assignment(torch.tensor([[1.0, 5.0, 4.0], [2.0, 6.0, 1.0], [9.0, 1.0, 1.0]]))
    tensor([2, 1, 0])
    """
    if scores.ndim < 2 or scores.shape[-1] != scores.shape[-2] or not scores.is_floating_point():
        raise ModelError(
            "an assignment takes scores (*batch, n, n), place by item,"
            f" not {scores.dtype} {tuple(scores.shape)}"
        )
    n, shape = scores.shape[-1], scores.shape[:-1]
    if shape.numel() == 0:
        return torch.empty(shape, dtype=torch.int64, device=scores.device)
    matrices = scores.detach().reshape(-1, n, n)
    most = float(matrices.abs().max())
    if not most <= torch.finfo(torch.float64).max / (8 * n):  # sums along a path must not overflow
        raise ModelError(
            "an assignment takes finite scores with finite sums, but some are too large, infinite or not a"
            " number"
        )
    orders = matrices.argmax(-1)
    taken = torch.zeros_like(orders, dtype=torch.bool).scatter_(1, orders, True)
    clashing = (~taken.all(1)).nonzero().squeeze(1)
    if len(clashing):
        from factorank.kernels.assignment import assign  # numba loads slowly

        costs = -matrices[clashing].cpu().double()
        mended = torch.empty(costs.shape[:2], dtype=torch.int64)
        assign(costs.numpy(), mended.numpy())
        orders[clashing] = mended.to(orders.device)
    return orders.view(shape)
