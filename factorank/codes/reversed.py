"""Another code read from its last position to its first."""

from torch import Tensor

from factorank.codes.base import Code


class Reversed(Code):
    """A code whose position i is position n - 1 - i of another.

    An autoregressive model predicts positions from the first to the last. Of insertion and left-Lehmer codes
    the last ones tell most by themselves, so they are better read from there.

    >>> import torch
    >>> import factorank as fr
    >>> order = torch.tensor([2, 0, 3, 1])
    >>> fr.code("insertion").encode(order), Reversed(fr.code("insertion")).encode(order)
    (tensor([0, 1, 0, 2]), tensor([2, 0, 1, 0]))
    """

    def __init__(self, code: Code) -> None:
        self.code = code
        self.name = f"reversed {code.name}"
        self.factorized = code.factorized

    def sizes(self, n: int) -> Tensor:
        return self.code.sizes(n).flip(-1)

    def _encode(self, order: Tensor) -> Tensor:
        return self.code.encode(order, check=False).flip(-1)

    def _decode(self, code: Tensor) -> Tensor:
        return self.code.decode(code.flip(-1), check=False)

    def __repr__(self) -> str:
        return f"Reversed({self.code!r})"
