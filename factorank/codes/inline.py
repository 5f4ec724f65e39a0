"""The inline notation itself, as a code: the baseline that is not factorized."""

import math
from collections.abc import Sequence

from torch import Tensor

from factorank.codes.base import Code
from factorank.errors import CodeError
from factorank.kernels.codes import Domain


class Inline(Code):
    """The order as it stands. Not factorized: a sequence within the domains need not be a permutation.

    ``decode`` checks the range only; :func:`factorank.is_permutation` tells the rest.

    >>> import torch, factorank as fr
    >>> fr.Inline().decode(torch.tensor([1, 1, 0]))
    tensor([1, 1, 0])
    """

    name = "inline"
    factorized = False

    def sizes(self, n: int) -> Tensor:
        return Domain.ANY.sizes(n)

    def _encode(self, order: Tensor) -> Tensor:
        return order.clone()

    def _decode(self, code: Tensor) -> Tensor:
        return code.clone()


def max_inline_entropy(blocks: Sequence[int]) -> float:
    r"""The largest entropy, in nats, of an inline model that only makes permutations.

    ``blocks`` are the sizes of the sets of positions that are drawn together, in turn; their sum is n. The
    values that the m positions of a block may take must be disjoint, so they share the R values left over:
    the best split gives each :math:`\lfloor R/m \rfloor` or one more, and the block adds the logarithm of
    the product. (The bound printed in the paper, :math:`\log(R - m + 1)` a block, is too low.)

    >>> max_inline_entropy([5])  # everything at once: only a single permutation can be represented
    0.0
    >>> round(max_inline_entropy([2, 2]) / math.log(2), 3)
    2.0
    """
    if any(size < 1 for size in blocks):
        raise CodeError(f"a block holds at least one position, but the sizes are {list(blocks)}")
    left, entropy = sum(blocks), 0.0
    for size in blocks:
        share, over = divmod(left, size)
        entropy += over * math.log(share + 1) + (size - over) * math.log(share)
        left -= size
    return entropy
