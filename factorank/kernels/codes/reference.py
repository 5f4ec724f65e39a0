"""The operations in plain torch: the definition the fast kernels are tested against, and the fallback.

Every function takes ``(rows, n)`` int64 and returns the same shape. Lehmer and insertion codes follow the
paper's algorithm, one vector operation per position. Nothing here raises on bad values: rows that hold
any come out as garbage of the right shape, and :func:`faulty_rows` says which they are.
"""

import torch
from torch import Tensor

from factorank.kernels.codes.table import OPERATIONS, Domain


def transform(rows: Tensor, name: str) -> Tensor:
    """Apply one operation of the table to ``(rows, n)`` int64."""
    n = rows.shape[1]
    safe = rows.clamp(0, max(n - 1, 0))
    return FUNCTIONS[name](safe)


def faulty_rows(rows: Tensor, name: str) -> Tensor:
    """Bool ``(rows,)``: which rows the operation does not accept."""
    n = rows.shape[1]
    domain = OPERATIONS[name].domain
    if domain is Domain.PERMUTATION:
        inside = (rows >= 0) & (rows < n)
        present = torch.zeros_like(rows, dtype=torch.bool)
        present.scatter_(1, rows.clamp(0, max(n - 1, 0)), True)
        return ~(inside.all(1) & present.all(1))
    sizes = domain.sizes(n, rows.device)
    return ((rows < 0) | (rows >= sizes)).any(1)


def _inverse(order: Tensor) -> Tensor:
    places = torch.arange(order.shape[1], device=order.device).expand_as(order)
    return torch.empty_like(order).scatter_(1, order, places)


def _encode_right(order: Tensor) -> Tensor:
    code = order.clone()
    for i in range(1, code.shape[1]):
        code[:, i:] -= (code[:, i - 1 : i] < code[:, i:]).to(code.dtype)
    return code


def _decode_right(code: Tensor) -> Tensor:
    order = code.clone()
    for i in reversed(range(order.shape[1] - 1)):
        order[:, i + 1 :] += (order[:, i : i + 1] <= order[:, i + 1 :]).to(order.dtype)
    return order


def smaller_to_the_left(order: Tensor) -> Tensor:
    """#{j < i : X_j < X_i}, which is i minus the left-Lehmer code."""
    count = order.clone()
    for i in reversed(range(1, count.shape[1])):
        count[:, :i] -= (count[:, i : i + 1] <= count[:, :i]).to(count.dtype)
    return count


def order_of_smaller_to_the_left(count: Tensor) -> Tensor:
    order = count.clone()
    for i in range(1, order.shape[1]):
        order[:, :i] += (order[:, i : i + 1] <= order[:, :i]).to(order.dtype)
    return order


def _flip_left(code: Tensor) -> Tensor:
    return torch.arange(code.shape[1], device=code.device) - code


def _encode_fisher_yates(order: Tensor) -> Tensor:
    draws = torch.empty_like(order)
    held = torch.arange(order.shape[1], device=order.device).repeat(order.shape[0], 1)
    place = held.clone()  # place[v] is where held has v
    for i in range(order.shape[1]):
        j = place.gather(1, order[:, i : i + 1])
        moved = held[:, i : i + 1].clone()
        draws[:, i : i + 1] = j - i
        held.scatter_(1, j, moved)
        place.scatter_(1, moved, j)
    return draws


def _decode_fisher_yates(draws: Tensor) -> Tensor:
    n = draws.shape[1]
    order = torch.arange(n, device=draws.device).repeat(draws.shape[0], 1)
    for i in range(n):
        j = (draws[:, i : i + 1] + i).clamp(max=n - 1)
        drawn, current = order.gather(1, j), order[:, i : i + 1].clone()
        order.scatter_(1, j, current)
        order[:, i : i + 1] = drawn
    return order


def longest_increasing(rows: Tensor) -> Tensor:
    """Length of the longest increasing subsequence of each row: patience sorting, one step per position."""
    count, n = rows.shape
    tops = torch.full((count, n + 1), n, dtype=rows.dtype, device=rows.device)
    for i in range(n):
        value = rows[:, i : i + 1].contiguous()
        tops.scatter_(1, torch.searchsorted(tops, value), value)
    return (tops < n).sum(1)


FUNCTIONS = {
    "inverse": _inverse,
    "encode-lehmer": _encode_right,
    "decode-lehmer": _decode_right,
    "encode-left-lehmer": lambda x: _flip_left(smaller_to_the_left(x)),
    "decode-left-lehmer": lambda c: order_of_smaller_to_the_left(_flip_left(c).clamp(min=0)),
    "encode-insertion": lambda x: smaller_to_the_left(_inverse(x)),
    "decode-insertion": lambda c: _inverse(order_of_smaller_to_the_left(c).clamp(0, max(c.shape[1] - 1, 0))),
    "encode-fisher-yates": _encode_fisher_yates,
    "decode-fisher-yates": _decode_fisher_yates,
}
