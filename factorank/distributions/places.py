"""Where items stand when the positions of a code are independent: exact place probabilities for every code.

Each function takes the probabilities of the values at each position, ``(*batch, position, value)``, and gives
``(*batch, item, place)``, items named by the reference that the code is relative to.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from factorank.errors import DistributionError
from factorank.kernels.derivatives import is_transformed


def code_places(code_name: str, probs: Tensor) -> Tensor:
    """Place probabilities ``(*batch, item, place)`` of independent values ``(*batch, n, n)`` of a code.

    >>> code_places("fisher-yates", torch.tensor([[0.0, 0.5, 0.5], [0.0, 1.0, 0.0], [1.0, 0.0, 0.0]]))
    tensor([[0.0000, 0.5000, 0.5000],
            [0.5000, 0.0000, 0.5000],
            [0.5000, 0.5000, 0.0000]])
    """
    if code_name not in _PLACES:
        raise DistributionError(
            f"place probabilities have a closed form for {', '.join(_PLACES)}, not for {code_name!r};"
            " samples= gives an estimate"
        )
    return _PLACES[code_name](probs)


def has_places(code_name: str) -> bool:
    """Whether :func:`code_places` knows the code."""
    return code_name in _PLACES


def insertion_places(probs: Tensor) -> Tensor:
    """Insertion: an item moves back one place when a later one is inserted at or before its place."""
    if probs.requires_grad and torch.is_grad_enabled():
        return _insertion_steps(probs)[0]
    loop = probs.device.type == "cpu" and probs.dtype in (torch.float32, torch.float64)
    if loop and not is_transformed() and not torch.compiler.is_compiling():
        from factorank.kernels.places import insertion_rows

        values = probs.detach().reshape(probs.shape[:-2].numel(), *probs.shape[-2:]).contiguous()
        filled = torch.zeros_like(values)
        insertion_rows(values.numpy(), filled.numpy())
        return filled.clamp_(min=0.0).view(probs.shape)
    return insertion_places_by_torch(probs)


def insertion_places_by_torch(probs: Tensor) -> Tensor:
    """The same, one item after the other, on any device."""
    places, at_or_before = torch.zeros_like(probs), probs.cumsum(-1)
    for k in range(probs.shape[-1]):
        moves = places[..., :k, :k] * at_or_before[..., k, None, :k]
        places[..., :k, :k] -= moves
        places[..., :k, 1 : k + 1] += moves
        places[..., k, : k + 1] = probs[..., k, : k + 1]
    return places.clamp(min=0.0)


def insertion_precedence(probs: Tensor) -> Tensor:
    """Insertion: for a < b entry ``[a, b]`` is the probability that a comes before b, zero elsewhere."""
    return _insertion_steps(probs)[1]


def _insertion_steps(probs: Tensor) -> tuple[Tensor, Tensor]:
    """Places and precedence, with gradients: an item stays where it is when the next one goes behind it."""
    n, pad = probs.shape[-1], torch.nn.functional.pad
    places, before = probs.new_zeros(*probs.shape[:-2], 0, 0), []
    for k in range(n):
        row = probs[..., k, : k + 1]
        behind = row.flip(-1).cumsum(-1).flip(-1)[..., None, 1:]  # P(V_k > s) for s = 0..k-1
        stays = places * behind
        before.append(pad(stays.sum(-1), (0, n - k)))
        moves = places * row.cumsum(-1)[..., None, :-1]
        places = torch.cat((pad(stays, (0, 1)) + pad(moves, (1, 0)), row[..., None, :]), -2)
    return places, torch.stack(before, -1) if n else places


def lehmer_places(probs: Tensor) -> Tensor:
    """Right-Lehmer: follows the index that each item has among those not yet placed.

    It drops by one when a smaller one is taken, and the item stands at place i when the digit i is its index.
    """

    def step(index: Tensor, digit: Tensor) -> Tensor:
        above = digit.flip(-1).cumsum(-1).flip(-1)[..., 1:]  # P(L_i > s) for s = 0..n-i-2
        below = digit.cumsum(-1)[..., :-1]  # P(L_i < s) for s = 1..n-i-1
        return index[..., :-1] * above + index[..., 1:] * below

    return _follow(probs, step)


def left_lehmer_places(probs: Tensor) -> Tensor:
    """Left-Lehmer: by V(X)_k = k - L_left(X⁻¹)_k the inverse order has independent insertion values."""
    n = probs.shape[-1]
    k = torch.arange(n, device=probs.device)
    values = k[:, None] - k
    insertion = probs.gather(-1, values.clamp(min=0).expand(probs.shape)) * (values >= 0)
    return insertion_places(insertion).transpose(-1, -2)


def fisher_yates_places(probs: Tensor) -> Tensor:
    """Fisher-Yates: follows each item through the swaps of place i with place i + draw."""
    return _follow(
        probs, lambda item, draw: item[..., 1:] * (1 - draw[..., 1:]) + item[..., :1] * draw[..., 1:]
    )


def _follow(probs: Tensor, step: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
    """The law of each item's index among those left, moved on by ``step(index, digit)`` as places fill."""
    n = probs.shape[-1]
    index = torch.eye(n, dtype=probs.dtype, device=probs.device).expand(*probs.shape[:-2], n, n)
    places = []
    for i in range(n):
        digit = probs[..., None, i, : n - i]
        places.append((index * digit).sum(-1))
        index = step(index, digit)
    return torch.stack(places, -1) if n else index


def inline_places(probs: Tensor) -> Tensor:
    """Inline: position i holds the item itself; rows need not sum to one, as an item may stand twice."""
    return probs.transpose(-1, -2)


_PLACES = {
    "inline": inline_places,
    "lehmer": lehmer_places,
    "left-lehmer": left_lehmer_places,
    "fisher-yates": fisher_yates_places,
    "insertion": insertion_places,
}
