"""The one table of operations: what each takes, and how the fast kernels compute it.

All but Fisher-Yates are one of two walks along a row, over the set of values (or places) met so far.

*Counting* walks forward; at place i it meets ``x`` and counts the ``c`` smaller values met before:

    right-Lehmer  out[i] = x - c        left-Lehmer  out[i] = i - c        insertion  out[x] = c

(the last is the theorem V(X)_k = k - L_left(X⁻¹)_k without ever forming the inverse: item x is inserted
behind those smaller items that stand before it). *Selecting* undoes it: it takes the k-th smallest value
(or place) still free.

    right-Lehmer  forward,  k = c[i],      out[i] = taken
    left-Lehmer   backward, k = i - c[i],  out[i] = taken
    insertion     backward, k = c[i],      out[taken] = i
"""

import enum
from dataclasses import dataclass

import torch
from torch import Tensor

NO_FAULT = torch.iinfo(torch.int64).max
"""The index of the first faulty row when there is none."""


class Domain(enum.Enum):
    """What a row must be."""

    PERMUTATION = "permutation"
    ANY = "0..n-1 everywhere"
    SHRINKING = "0..n-1-i at position i"
    GROWING = "0..i at position i"

    def sizes(self, n: int, device: torch.device | str | None = None) -> Tensor:
        """How many values each position may hold: ``(n,)`` int64."""
        if self is Domain.SHRINKING:
            return torch.arange(n, 0, -1, device=device)
        if self is Domain.GROWING:
            return torch.arange(1, n + 1, device=device)
        return torch.full((n,), n, device=device)


class Walk(enum.IntEnum):
    """The algorithm behind an operation."""

    INVERT = 0
    COUNT = 1
    SELECT = 2
    SWAP_ENCODE = 3
    SWAP_DECODE = 4


RIGHT, LEFT, INSERTION = 0, 1, 2
"""Which of the three lines of the module's tables a COUNT or SELECT walk follows."""


@dataclass(frozen=True)
class Operation:
    domain: Domain
    walk: Walk
    form: int = 0


OPERATIONS = {
    "inverse": Operation(Domain.PERMUTATION, Walk.INVERT),
    "encode-lehmer": Operation(Domain.PERMUTATION, Walk.COUNT, RIGHT),
    "encode-left-lehmer": Operation(Domain.PERMUTATION, Walk.COUNT, LEFT),
    "encode-insertion": Operation(Domain.PERMUTATION, Walk.COUNT, INSERTION),
    "encode-fisher-yates": Operation(Domain.PERMUTATION, Walk.SWAP_ENCODE),
    "decode-lehmer": Operation(Domain.SHRINKING, Walk.SELECT, RIGHT),
    "decode-left-lehmer": Operation(Domain.GROWING, Walk.SELECT, LEFT),
    "decode-insertion": Operation(Domain.GROWING, Walk.SELECT, INSERTION),
    "decode-fisher-yates": Operation(Domain.SHRINKING, Walk.SWAP_DECODE),
}
