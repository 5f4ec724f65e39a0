"""The lexicographic list of all permutations of n items: the index of each, and the permutation at an index.

The Lehmer code of a permutation is its index in the factorial number system, digit by digit.
"""

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from factorank.errors import PermutationError
from factorank.permutations import check_dtype, check_permutation, item_count, transformed, whole_number


def index_of(order: Tensor) -> Any:
    """The place of each permutation in the lexicographic list of all n!, from 0.

    One permutation gives an int, of any size; a batch gives an int64 tensor ``(*batch,)`` up to n = 20 and
    (nested) lists of ints beyond.

    >>> index_of(torch.tensor([2, 4, 3, 0, 1]))
    70
    >>> index_of(torch.tensor([[0, 1, 2], [2, 1, 0]]))
    tensor([0, 5])
    """
    check_permutation(order, "index_of takes")
    n = order.shape[-1]
    if order.ndim > 1 and n <= 20:
        digits = transformed(order.to(torch.int64), "encode-lehmer")
        return (digits * _factorials(n, order.device)).sum(-1)
    if order.ndim > 1:
        return [index_of(row) for row in order]
    index = 0
    for i, digit in enumerate(transformed(order.to(torch.int64), "encode-lehmer").tolist()):
        index = index * (n - i) + digit
    return index


def permutation_at(
    index: int | Sequence[Any] | Tensor,
    n: int,
    *,
    dtype: torch.dtype = torch.int64,
    device: torch.device | str | None = None,
) -> Tensor:
    """The permutation of n items at a lexicographic index; the inverse of :func:`index_of`.

    A tensor of indices (n up to 20) or a list of ints of any size gives a batch.

    >>> permutation_at(70, 5)
    tensor([2, 4, 3, 0, 1])
    >>> permutation_at(torch.tensor([0, 5]), 3)
    tensor([[0, 1, 2],
            [2, 1, 0]])
    """
    n = item_count(n)
    check_dtype(dtype, n)
    if isinstance(index, Tensor):
        if index.is_floating_point() or index.is_complex() or index.dtype == torch.bool:
            raise PermutationError(f"permutation_at takes integer indices, not {index.dtype}")
        if n > 20:
            return permutation_at(index.tolist(), n, dtype=dtype, device=device or index.device)
        wide = index.to(torch.int64)
        outside = (wide < 0) | (wide >= math.factorial(n))
        if outside.any():
            value = int(index[outside].flatten()[0])
            raise PermutationError(f"the permutations of {n} items have indices 0..{n}!-1, not {value}")
        digits = wide[..., None] // _factorials(n, index.device) % torch.arange(n, 0, -1, device=index.device)
        return transformed(digits, "decode-lehmer").to(device=device or index.device, dtype=dtype)
    if isinstance(index, Sequence) and not isinstance(index, str):
        rows = [permutation_at(each, n, dtype=dtype, device=device) for each in index]
        return torch.stack(rows) if rows else torch.empty((0, n), dtype=dtype, device=device)
    rest = whole_number(index)
    if not 0 <= rest < math.factorial(n):
        raise PermutationError(f"the permutations of {n} items have indices 0..{n}!-1, not {index!r}")
    listed = []
    for base in range(1, n + 1):
        rest, digit = divmod(rest, base)
        listed.append(digit)
    digits = torch.tensor(listed[::-1], dtype=torch.int64)
    return transformed(digits, "decode-lehmer").to(device=device, dtype=dtype)


def _factorials(n: int, device: torch.device) -> Tensor:
    return torch.tensor([math.factorial(n - 1 - i) for i in range(n)], dtype=torch.int64, device=device)
