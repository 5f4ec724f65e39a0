"""Lehmer codes: inversions counted to the right or to the left of each position."""

from typing import Literal

from factorank.codes.base import KernelCode
from factorank.errors import CodeError


class Lehmer(KernelCode):
    r"""The Lehmer code of an order X.

    Right: :math:`L_i = \#\{j > i : X_j < X_i\}`, which is also the index of :math:`X_i` among the items not
    yet placed (sampling without replacement). Left: :math:`L_i = \#\{j < i : X_j > X_i\}`, the definition in
    the paper's text; its listing returns i minus this. Either sum is the Kendall distance to the identity.

    Lehmer, "Teaching combinatorial tricks to a computer", 1960.

    >>> import torch, factorank as fr
    >>> fr.Lehmer().encode(torch.tensor([2, 4, 3, 0, 1]))
    tensor([2, 3, 2, 0, 0])
    >>> fr.Lehmer(side="left").encode(torch.tensor([2, 4, 3, 0, 1]))
    tensor([0, 0, 1, 3, 3])
    """

    def __init__(self, side: Literal["right", "left"] = "right") -> None:
        if side not in ("right", "left"):
            raise CodeError(f"a Lehmer code counts to the side 'right' or 'left', not {side!r}")
        self.side = side
        self.name = "lehmer" if side == "right" else "left-lehmer"

    @property
    def title(self) -> str:
        return f"{self.side}-Lehmer"

    def __repr__(self) -> str:
        return f"Lehmer(side={self.side!r})"
