"""Draws from a law that are orders, also where the law can leave the permutations."""

import torch
from torch import Tensor

from factorank.distributions import PermutationDistribution
from factorank.errors import FactorankError
from factorank.models.law import PermutationLaw
from factorank.permutations import is_permutation

MOST_DRAWS = 100
"""Draws for each order that is asked for, after which too few of them were orders."""


def draw_orders(
    law: PermutationDistribution, count: int, generator: torch.Generator | None = None
) -> tuple[Tensor, str]:
    """Orders ``(count, n)`` drawn from a law, and how they were drawn where that is worth a word.

    Inline codes can hold an item twice, and no evaluation of the network rules that out. Such draws are
    rejected: what is kept follows the law given that it is an order. If hardly any draw is one, an error says
    what helps.

    >>> from factorank import Mallows
    >>> orders, how = draw_orders(Mallows([2, 0, 1], 0.5), 5)
    >>> orders.shape, how
    (torch.Size([5, 3]), '')
    """
    if not isinstance(law, PermutationLaw) or law.model.code.factorized:
        return law.sample((count,), generator=generator), ""
    kept, right, drawn = [], 0, 0
    while right < count and drawn < MOST_DRAWS * count:
        orders = law.sample((max(count, 64),), generator=generator)
        orders = orders[is_permutation(orders)]
        kept.append(orders)
        right, drawn = right + len(orders), drawn + max(count, 64)
    if right < count:
        raise FactorankError(
            f"{right} of {drawn} draws at nfe={law.nfe} are orders: an inline code holds items twice unless"
            f" the network rules it out; {{parameter={law.n}}} is the most that can be done, and other codes"
            " give orders always",
            parameter="nfe",
        )
    share = "all draws were orders" if right == drawn else f"{right / drawn:.1%} of the draws were orders"
    return torch.cat(kept)[:count], f"inline code, nfe={law.nfe}, by rejection: {share}"
