"""Laws whose digits are truncated geometrics around a central order: Mallows and generalized Mallows.

A digit of size m has :math:`P(k) = q^k / (1 + q + … + q^{m-1})`.
"""

import math

import torch
from torch import Tensor

from factorank.distributions.drawing import log1p_, map_uniform
from factorank.distributions.factorized import FactorizedDistribution


class GeometricDistribution(FactorizedDistribution):
    """A factorized law with a ratio q for each position of the code; the central order is the mode."""

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
        scaled = log1p_(uniform.clone() if mixed else uniform).div_(log_ratio)
        out.copy_(torch.where(flat, uniform, scaled) if mixed else scaled)
        torch.minimum(out, sizes - 1, out=out)

    return map_uniform(invert, shape, mass.ndim, log_ratio.device, generator)
