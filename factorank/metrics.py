"""What results are measured by."""

import math

import torch
from torch import Tensor

from factorank.arguments import guard
from factorank.errors import FactorankError
from factorank.permutations import check_integer, check_permutation, is_cyclic, is_permutation


def ndcg(order: Tensor, relevance: Tensor, k: int | None = None, *, gain: str = "exponential") -> Tensor:
    r"""Normalised discounted cumulative gain of orders ``(*batch, n)`` of items: ``(*batch,)`` in [0, 1].

    ``relevance`` ``(*batch, n)`` is of the items, not the places. With gain :math:`2^{rel} - 1`, or
    :math:`rel` for ``gain="linear"``, and discount :math:`1/\log_2(\text{place} + 2)` from place 0,

    .. math:: \text{DCG@k} = \sum_{i<k} \text{gain}(rel_{order_i}) / \log_2(i + 2),

    divided by that of the best order. Where no item has any gain the value is 1: every order is best.

    Järvelin and Kekäläinen, "Cumulated gain-based evaluation of IR techniques", 2002.

    >>> ndcg(torch.tensor([1, 0, 2]), torch.tensor([3.0, 2.0, 0.0]), k=2)
    tensor(0.8340)
    """
    check_permutation(order, "ndcg takes")
    if order.shape[-1] != relevance.shape[-1]:
        raise FactorankError(
            f"ndcg takes a relevance for each of the {order.shape[-1]} items, not {relevance.shape[-1]}"
        )
    if gain not in ("exponential", "linear"):
        raise FactorankError(f"gain is 'exponential' or 'linear', not {gain!r}")
    if k is not None and k < 1:
        raise FactorankError(f"ndcg is taken at k of at least 1, not {k}")
    if relevance.is_complex():
        raise FactorankError(f"ndcg takes real relevances, not {relevance.dtype}")
    relevance = relevance if relevance.is_floating_point() else relevance.to(torch.get_default_dtype())
    if not bool((relevance >= 0).all()):
        raise FactorankError("ndcg takes relevances of 0 or more")
    gains = relevance if gain == "linear" else torch.exp2(relevance) - 1
    if not bool(gains.isfinite().all()):
        raise FactorankError(
            f"ndcg takes finite gains, but one is of the relevance {float(relevance.max()):g}"
        )
    shape = torch.broadcast_shapes(order.shape, gains.shape)
    got = gains.expand(shape).gather(-1, order.to(torch.int64).expand(shape))[..., :k]
    best = gains.sort(-1, descending=True).values[..., :k]
    discount = torch.arange(2, 2 + got.shape[-1], device=got.device, dtype=got.dtype).log2()
    most = (best / discount).sum(-1)
    return torch.where(most > 0, (got / discount).sum(-1) / most, torch.ones_like(most))


def distinct(sequences: Tensor) -> dict[str, int]:
    """How many different sequences there are among ``(samples, n)``, how many of those are permutations, and
    how many of those are one cycle.

    >>> distinct(torch.tensor([[1, 2, 0], [1, 2, 0], [0, 1, 2], [0, 0, 0]]))
    {'unique': 3, 'unique_valid': 2, 'unique_cyclic': 1}
    """
    unique = torch.unique(sequences, dim=0)
    valid = unique[is_permutation(unique)]
    cyclic = int(is_cyclic(valid, check=False).sum())
    return {"unique": len(unique), "unique_valid": len(valid), "unique_cyclic": cyclic}


def expected_distinct(samples: int, size: int) -> float:
    """How many different values ``samples`` uniform draws from a set of ``size`` have on average.

    >>> round(expected_distinct(10_000, math.factorial(9)))  # 98.6%: what a perfect model reaches
    9863
    """
    return -size * math.expm1(samples * math.log1p(-1 / size)) if size > 1 else float(min(samples, size))


def cyclic_share(sequences: Tensor) -> float:
    """The share of ``(samples, n)`` sequences that are permutations of one cycle."""
    valid = sequences[is_permutation(sequences)]
    return float(is_cyclic(valid, check=False).sum()) / max(len(sequences), 1) if len(valid) else 0.0


def share_among(sequences: Tensor, known: Tensor) -> float:
    """The share of ``(samples, n)`` sequences that are rows of ``known``; 0 where there are no samples."""
    for rows in (sequences, known):
        check_integer(rows, "share_among takes sequences")
        if rows.numel() and int(rows.min()) < 0:
            raise FactorankError(f"share_among takes sequences of values of 0 or more, not {int(rows.min())}")
    if not len(sequences):
        return 0.0
    base = int(max(sequences.max(), known.max())) + 1
    if base ** known.shape[1] > 2**62:
        raise FactorankError(f"sequences of {known.shape[1]} values up to {base - 1} are too long to compare")
    weights = torch.tensor([base**i for i in range(known.shape[1])], device=sequences.device)
    ours, theirs = ((rows.to(weights.device) * weights).sum(1) for rows in (sequences, known))
    return float(torch.isin(ours, theirs).float().mean())


guard(__name__)
