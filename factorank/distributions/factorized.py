"""Laws under which the positions of a code are independent: Mallows, generalized Mallows, RIM."""

import math

import torch
from torch import Tensor

from factorank.codes import code
from factorank.distributions.base import PermutationDistribution
from factorank.distributions.parameters import compact, relative_to
from factorank.distributions.places import code_places
from factorank.errors import DistributionError
from factorank.permutations import inverse


class FactorizedDistribution(PermutationDistribution):
    r"""A product of categoricals over the positions of a code of the order, relative to a reference.

    With :math:`c` the code of ``compose(inverse(reference), order)``,
    :math:`\log P(order) = \sum_i table[i, c_i]`. Sampling, entropy, mode, marginals and divergences follow
    from the table; a law overrides what it can do faster.
    """

    code_name: str
    """The code whose positions are independent, and that the law computes with."""

    @property
    def code_names(self) -> tuple[str, ...]:
        """All codes whose positions are independent."""
        return (self.code_name,)

    @property
    def _reference(self) -> Tensor:
        raise NotImplementedError

    def _digits(self, code_name: str, log: bool = True) -> Tensor:
        """:meth:`digit_log_probs`, not expanded, ``(*batch or ones, n, n)``; or the probabilities."""
        raise NotImplementedError

    def digit_log_probs(self, code_name: str) -> Tensor:
        """Log-probabilities ``(*batch, n, n)`` of the values at each position of a code of ``code_names``."""
        if code_name not in self.code_names:
            raise DistributionError(
                f"{type(self).__name__} has independent positions in the codes {', '.join(self.code_names)},"
                f" not in {code_name!r}"
            )
        return self._digits(code_name).expand(*self.batch_shape, self.n, self.n)

    @property
    def _table(self) -> Tensor:
        return self._digits(self.code_name)

    # From orders to codes and back.

    def _relative(self, order: Tensor) -> Tensor:
        return relative_to(self._reference, order)

    def _absolute(self, relative: Tensor) -> Tensor:
        reference = compact(self._reference, 1)
        if not reference.is_cuda and bool((reference == torch.arange(self.n)).all()):
            return relative
        return self._reference.expand(relative.shape).gather(-1, relative)

    def _encode(self, order: Tensor) -> Tensor:
        return code(self.code_name).encode(self._relative(order), check=False)

    def _decode(self, codes: Tensor) -> Tensor:
        return self._absolute(code(self.code_name).decode(codes, check=False))

    # The law.

    def _log_prob(self, order: Tensor) -> Tensor:
        return look_up(compact(self._table, 2), self._encode(order)).sum(-1).expand(self._result(order))

    def _result(self, order: Tensor) -> torch.Size:
        return torch.broadcast_shapes(order.shape[:-1], self.batch_shape)

    def _sample(self, shape: torch.Size, generator: torch.Generator | None) -> Tensor:
        cumulative = self._table.double().exp().cumsum(-1)
        cumulative = (
            (cumulative / cumulative[..., -1:]).expand(*self.batch_shape, self.n, self.n).contiguous()
        )
        draws = (*self.batch_shape, self.n, math.prod(shape))
        uniform = torch.rand(draws, dtype=torch.float64, device=self.device, generator=generator)
        codes = torch.searchsorted(cumulative, uniform, right=True).movedim(-1, 0)
        return self._decode(codes.reshape(*shape, *self.batch_shape, self.n))

    def _entropy(self) -> Tensor:
        table = self._table
        return -expected(table, table).expand(self.batch_shape)

    @property
    def mode(self) -> Tensor:
        if self.n == 0:
            return self._reference
        return self._decode(self._table.argmax(-1).expand(*self.batch_shape, self.n))

    def _marginals(self) -> Tensor:
        probs = self._digits(self.code_name, log=False)
        relative = code_places(self.code_name, probs)
        ranks = inverse(self._reference, check=False)[..., None].expand(*self.batch_shape, self.n, self.n)
        return relative.expand(*self.batch_shape, self.n, self.n).gather(-2, ranks)


def look_up(table: Tensor, codes: Tensor) -> Tensor:
    """``table[..., i, codes[..., i]]`` with broadcast batch shapes: ``(*batch, n)``.

    One flat index, so that the gradient is accumulated in the table's own size.
    """
    n = table.shape[-1]
    rows = torch.arange(table.shape[:-1].numel(), device=table.device).view(table.shape[:-1])
    return table.reshape(-1)[rows * n + codes]


def expected(log_probs: Tensor, values: Tensor) -> Tensor:
    """The sum over the last two dimensions of exp(log_probs) · values, where 0 · infinity counts as 0."""
    possible = log_probs > -math.inf
    products = log_probs.exp() * torch.where(possible, values, 0.0)
    return torch.where(possible, products, 0.0).sum((-1, -2))
