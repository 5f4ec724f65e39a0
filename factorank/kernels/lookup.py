"""Rows of a small table, picked by index, with a gradient that is a matrix product.

Many tokens share few rows. Torch sorts the indices to add up the gradients of each row, or adds them one by
one to the same addresses. A product with the table of which token has which row takes one pass over them.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

AT_ONCE = 32
"""Rows of indices that are added up by one product, at most."""


class Lookup(torch.autograd.Function):
    """``F.embedding(index, table)`` of indices ``(*rows, n)``; the plain twin is that function."""

    @staticmethod
    def forward(table: Tensor, index: Tensor) -> Tensor:
        return F.embedding(index, table)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor], output: Tensor) -> None:
        table, index = inputs
        ctx.size = table.shape[0]
        ctx.save_for_backward(index)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        (index,) = ctx.saved_tensors
        return grad_table(grad, index, ctx.size), None


def grad_table(grad: Tensor, index: Tensor, size: int) -> Tensor:
    """The gradient ``(size, width)`` of a table, given those of its rows ``(*rows, n, width)`` as picked.

    >>> grad_table(torch.tensor([[[1.0], [2.0], [4.0]]]), torch.tensor([[1, 0, 1]]), 2).tolist()
    [[2.0], [5.0]]
    """
    rows = index.shape[:-1].numel()
    each = next(each for each in (AT_ONCE, 16, 8, 4, 2, 1) if rows % each == 0)
    index = index.reshape(rows // each, each * index.shape[-1])
    has_row = index[:, None, :] == torch.arange(size, device=index.device)[:, None]
    with torch.autocast(grad.device.type, enabled=False):
        return torch.bmm(has_row.to(grad.dtype), grad.reshape(*index.shape, grad.shape[-1])).sum(0)
