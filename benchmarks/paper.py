"""The paper's algorithms for the codes: one vector operation (or a few) per position, on ``(rows, n)`` int64.

The Lehmer and insertion codes are those of ``factorank.kernels.codes.reference``, with the inverse by
sorting.
"""

import torch
from torch import Tensor

from factorank.kernels.codes import reference


def transform(rows: Tensor, name: str) -> Tensor:
    if name == "encode-fisher-yates":
        return fisher_yates_encode(rows)
    if name == "decode-fisher-yates":
        return fisher_yates_decode(rows)
    if name == "encode-insertion":
        return reference.smaller_to_the_left(rows.argsort())
    if name == "decode-insertion":
        return reference.order_of_smaller_to_the_left(rows).argsort()
    return reference.FUNCTIONS[name](rows)


def fisher_yates_encode(order: Tensor) -> Tensor:
    """Each step looks its item up in the whole list, then swaps."""
    count, n = order.shape
    shelf = torch.arange(n, device=order.device).repeat(count, 1)
    draws = torch.empty_like(order)
    for i in range(n):
        at = (shelf == order[:, i : i + 1]).nonzero(as_tuple=True)[1]
        draws[:, i] = at - i
        pair = torch.stack([torch.full_like(at, i), at], dim=1)
        shelf.scatter_(1, pair, shelf.gather(1, pair).flip(1))
    return draws


def fisher_yates_decode(draws: Tensor) -> Tensor:
    count, n = draws.shape
    order = torch.arange(n, device=draws.device).repeat(count, 1)
    row = torch.arange(count, device=draws.device)
    for i in range(n):
        at = draws[:, i] + i
        drawn = order[row, at]
        order[row, at] = order[:, i]
        order[:, i] = drawn
    return order
