"""The operations as comparisons, sums and choices of whole rows: what a graph for another runtime is made of.

Every function takes ``(rows, n)`` int64 and returns the same shape. Nothing is written in place, looked up or
sorted, and there is no loop in the graph: what has to be done position by position is written out n times.
"""

from collections.abc import Callable

import torch
from torch import Tensor


def transform(rows: Tensor, name: str) -> Tensor:
    """Apply one operation of the table to ``(rows, n)`` int64."""
    return FUNCTIONS[name](rows)


def inverse(order: Tensor) -> Tensor:
    places = _places(order)
    return ((order[:, None, :] == places[:, None]) * places).sum(-1)


def _places(rows: Tensor) -> Tensor:
    return torch.arange(rows.shape[1], device=rows.device)


def _encode_right(order: Tensor) -> Tensor:
    places = _places(order)
    after = places[:, None] < places
    return ((order[:, None, :] < order[:, :, None]) & after).sum(-1)


def _encode_left(order: Tensor) -> Tensor:
    places = _places(order)
    before = places[:, None] > places
    return ((order[:, None, :] > order[:, :, None]) & before).sum(-1)


def _decode_right(code: Tensor) -> Tensor:
    order, places = code, _places(code)
    for i in reversed(range(code.shape[1] - 1)):
        order = order + ((order[:, i : i + 1] <= order) & (places > i)).long()
    return order


def _decode_left(code: Tensor) -> Tensor:
    places = _places(code)
    order = places - code
    for i in range(1, code.shape[1]):
        order = order + ((order[:, i : i + 1] <= order) & (places < i)).long()
    return order


def _encode_fisher_yates(order: Tensor) -> Tensor:
    places = _places(order)
    held, draws = places.expand(order.shape), []
    for i in range(order.shape[1]):
        here = (held == order[:, i : i + 1]) & (places >= i)
        draws.append((here * places).sum(-1) - i)
        held = torch.where(here, held[:, i : i + 1], held)
    return torch.stack(draws, -1)


def _decode_fisher_yates(draws: Tensor) -> Tensor:
    places = _places(draws)
    order = places.expand(draws.shape)
    for i in range(draws.shape[1]):
        there = places == draws[:, i : i + 1] + i
        drawn = (there * order).sum(-1, keepdim=True)
        order = torch.where(places == i, drawn, torch.where(there, order[:, i : i + 1], order))
    return order


FUNCTIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "inverse": inverse,
    "encode-lehmer": _encode_right,
    "decode-lehmer": _decode_right,
    "encode-left-lehmer": _encode_left,
    "decode-left-lehmer": _decode_left,
    "encode-insertion": lambda order: _places(order) - _encode_left(inverse(order)),
    "decode-insertion": lambda code: inverse(_decode_left(_places(code) - code)),
    "encode-fisher-yates": _encode_fisher_yates,
    "decode-fisher-yates": _decode_fisher_yates,
}
