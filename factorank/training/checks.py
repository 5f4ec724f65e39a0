"""Checks of the data, made once before a run begins."""

from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves

from factorank.errors import PermutationError, TrainingError
from factorank.permutations import check_integer, check_permutation

Batch = tuple[Tensor, Any]
"""An order ``(batch, n)`` and its context: None, or tensors ``(batch, …)``, nested as the model likes."""


def check_table(batch: Batch, n: int | None, what: str) -> None:
    """Refuse orders that are no permutations of n items, and a context with another number of rows."""
    order, context = batch
    check_orders(order, n, what)
    if order.shape[0] == 0:
        raise TrainingError(f"{what} have no rows: the tensor is {tuple(order.shape)}")
    for leaf in tree_leaves(context):
        if isinstance(leaf, Tensor) and (leaf.ndim == 0 or leaf.shape[0] != order.shape[0]):
            raise TrainingError(
                f"{what} have {order.shape[0]} orders but a context tensor {tuple(leaf.shape)};"
                " the first dimension of both is the row"
            )


def check_orders(order: Tensor, n: int | None, what: str) -> None:
    """Refuse anything but permutations ``(rows, n)``; shorter lists end in -1."""
    check_integer(order, f"{what} are orders")
    if order.ndim != 2:
        raise PermutationError(f"{what} are orders (rows, n), not a tensor {tuple(order.shape)}")
    if n is not None and order.shape[1] != n:
        raise PermutationError(
            f"the model orders {n} items but {what} have {order.shape[1]}: {tuple(order.shape)}"
        )
    absent = order < 0
    if absent.any():
        place = torch.arange(order.shape[1], device=order.device, dtype=order.dtype)
        wrong = (absent & (order != -1)) | (absent[:, :1] if order.shape[1] else absent)
        wrong[:, 1:] |= absent[:, :-1] & ~absent[:, 1:]
        if wrong.any():
            row, position = (int(i) for i in wrong.nonzero()[0])
            raise PermutationError(
                f"{what}: a list shorter than n is its items and then -1 to the end, but row {row} is"
                f" {order[row].tolist()} (position {position})"
            )
        order = torch.where(absent, place, order)
    check_permutation(order, f"{what}: expected")


def fingerprint(batch: Batch) -> dict[str, Any]:
    """What tells one data set from another: the shapes, and a checksum of the orders."""
    order, context = batch
    mixed = order.reshape(-1).to(torch.int64)
    # A sum of products would not do: rows that are permutations have equal sums.
    mixed = mixed + torch.arange(mixed.numel(), device=order.device) * 0x9E3779B97F4A7C1
    for shift, factor in ((30, 0x3F58476D1CE4E5B9), (27, 0x14D049BB133111EB)):
        mixed = (mixed ^ (mixed >> shift)) * factor
    checksum = (mixed ^ (mixed >> 31)).sum()
    shapes = [list(leaf.shape) for leaf in tree_leaves(context) if isinstance(leaf, Tensor)]
    return {"rows": order.shape[0], "checksum": int(checksum), "context": shapes}
