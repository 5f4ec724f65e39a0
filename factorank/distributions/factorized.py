"""Laws under which the positions of a code are independent: Mallows, generalized Mallows, RIM."""

import math

import numpy as np
import torch
from torch import Tensor

from factorank.codes import code
from factorank.distributions.base import PermutationDistribution
from factorank.distributions.drawing import log_, map_uniform
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
        cumulative = self._table.double().exp().cumsum(-1).expand(*self.batch_shape, self.n, self.n)
        cumulative = (cumulative / cumulative[..., -1:]).contiguous()
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


class GeometricDistribution(FactorizedDistribution):
    """A factorized law whose digits are truncated geometrics: Mallows and generalized Mallows.

    A digit of size m has :math:`P(k) = q^k / (1 + q + … + q^{m-1})`, with a ratio q for each position of the
    code. The central order is the mode.
    """

    central: Tensor

    @property
    def _ratio(self) -> Tensor:
        """The ratio of each position: ``(*batch or ones, n)``, in [0, 1]."""
        raise NotImplementedError

    @property
    def mode(self) -> Tensor:
        """The central order."""
        return self.central

    @property
    def _reference(self) -> Tensor:
        return self.central

    @property
    def _sizes(self) -> Tensor:
        """The number of values of each position."""
        return code_sizes(self.code_name, self.n, self.device)

    @property
    def _log_normaliser(self) -> Tensor:
        return geometric_sums(self._ratio, self._sizes)[0].log().sum(-1)

    def _digits(self, code_name: str, log: bool = True) -> Tensor:
        return geometric_table(self._ratio, code_name, log)

    def _entropy(self) -> Tensor:
        total, moment = geometric_sums(self._ratio, self._sizes)
        entropies = total.log() - times_log(moment / total, self._ratio)
        return entropies.sum(-1).expand(self.batch_shape)


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


def code_sizes(code_name: str, n: int, device: torch.device) -> Tensor:
    """The number of values of each position of the Lehmer or the insertion code."""
    rising = code_name == "insertion"
    return torch.arange(1, n + 1, device=device) if rising else torch.arange(n, 0, -1, device=device)


def geometric_sums(ratio: Tensor, sizes: Tensor, largest: int | None = None) -> tuple[Tensor, Tensor]:
    r""":math:`\sum_{k<m} q^k` and :math:`\sum_{k<m} k q^k` for each ratio q in [0, 1] and size m.

    ``largest`` is the largest size; the number of ratios, n, unless given.

    By doubling the number of terms: only positive numbers are added and multiplied, so that values and
    gradients are right to a few units of the last digit everywhere, q = 0 and q = 1 included.
    """
    total, moment, power = torch.zeros_like(ratio), torch.zeros_like(ratio), torch.ones_like(ratio)
    terms = torch.zeros_like(sizes)
    for bit in reversed(range((ratio.shape[-1] if largest is None else largest).bit_length())):
        moment = moment + power * (moment + terms * total)
        total = total * (1 + power)
        power, terms = power * power, terms * 2
        odd = (sizes >> bit) & 1 == 1
        moment = torch.where(odd, ratio * (moment + total), moment)
        total = torch.where(odd, 1 + ratio * total, total)
        power, terms = torch.where(odd, power * ratio, power), torch.where(odd, terms + 1, terms)
    return total, moment


def times_log(count: Tensor, ratio: Tensor) -> Tensor:
    """``count · log(ratio)``, where a count of zero gives zero also for a ratio of zero.

    Where the ratio is zero no gradient goes to it: it would be infinite, or not a number.
    """
    zero = ratio == 0
    product = count * torch.where(zero, 1.0, ratio).log()
    return torch.where(zero & (count > 0), -math.inf, product)


def geometric_table(ratio: Tensor, code_name: str, log: bool) -> Tensor:
    """Probabilities ``(*batch, n, n)`` of the values at each position of a code, or their logarithms.

    Lehmer digits have P(k) in proportion to q^k, item i goes to slot v in proportion to q^(i - v). The
    logarithms do not underflow; the probabilities have the right gradient also where q is zero.
    """
    n = ratio.shape[-1]
    k = torch.arange(n, device=ratio.device)
    sizes = code_sizes(code_name, n, ratio.device)
    if code_name == "insertion":
        k = sizes[:, None] - 1 - k
    outside = (k < 0) | (k >= sizes[:, None])
    power = k.clamp(min=0).to(ratio.dtype)
    total = geometric_sums(ratio, sizes)[0][..., None]
    if log:
        return (times_log(power, ratio[..., None]) - total.log()).masked_fill(outside, -math.inf)
    return (ratio[..., None] ** power / total).masked_fill(outside, 0.0)


def draw_geometric(
    log_ratio: Tensor, sizes: Tensor, shape: tuple[int, ...], generator: torch.Generator | None
) -> Tensor:
    """Draw ``shape`` (which ends in n) truncated geometrics by inverting their distribution function.

    In float64 whatever the parameters are, so that no value is favoured by rounding.
    """
    log_ratio = log_ratio.double()
    flat = log_ratio == 0
    mass = torch.where(flat, sizes.double(), torch.expm1(log_ratio * sizes))
    mixed = log_ratio.is_cuda or bool(flat.any())  # on a GPU asking would cost a synchronisation

    def invert(uniform: Tensor, out: Tensor) -> None:
        uniform.mul_(mass)
        scaled = log_(uniform.clone() if mixed else uniform, np.log1p).div_(log_ratio)
        out.copy_(torch.where(flat, uniform, scaled) if mixed else scaled)
        torch.minimum(out, sizes - 1, out=out)

    return map_uniform(invert, shape, mass.ndim, log_ratio.device, generator)
