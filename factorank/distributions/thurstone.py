"""Thurstone's law: the order of normal scores."""

import math
from collections.abc import Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.distributions import constraints

from factorank.distributions.base import PermutationDistribution
from factorank.distributions.drawing import Estimate
from factorank.distributions.parameters import as_reals, common_batch, finite_vector
from factorank.errors import DistributionError

POINTS = 2**14
"""Points of the rule that integrates the probability of an order."""
DRAWS, LIKELIHOOD_DRAWS = 2**16, 2**7
"""Draws of an estimate where their number is not given: of places, and of what needs the probabilities."""


class Thurstone(PermutationDistribution):
    r"""The order, largest first, of scores that are jointly normal.

    It is the law of the order of true scores that are known up to an error, such as those of a fit. Mean
    ranks and :meth:`above` are exact. The probability of an order is an integral over n - 1 dimensions: it is
    computed by the separation of variables on 16,384 points of a low-discrepancy rule with a fixed seed, and
    so the law is not ``exact``: three digits up to n = 8, two beyond for an order that is not likely.
    Marginals are estimated, by default from 65,536 draws with a fixed seed; entropy and divergences from 128.

    Args:
        loc: the mean of the scores, ``(*batch, n)``.
        covariance: their covariance, ``(*batch, n, n)``; only that of their differences matters.

    Thurstone, "A law of comparative judgment", 1927; Genz, "Numerical computation of multivariate normal
    probabilities", 1992.

    >>> law = Thurstone([0.0, 1.0, 2.0], torch.eye(3))
    >>> law.mode, law.above()[2, 0]
    (tensor([2, 1, 0]), tensor(0.9214))
    """

    arg_constraints: ClassVar[dict[str, constraints.Constraint]] = {"loc": finite_vector}
    _batched: ClassVar[tuple[str, ...]] = ("covariance", "_root")
    exact = False
    loc: Tensor
    covariance: Tensor

    def __init__(
        self,
        loc: Sequence[Any] | Tensor,
        covariance: Sequence[Any] | Tensor,
        *,
        validate_args: bool | None = None,
    ) -> None:
        mean = as_reals(loc)
        covariance = as_reals(covariance, mean, mean.dtype)
        if mean.ndim == 0 or covariance.shape[-2:] != (mean.shape[-1], mean.shape[-1]):
            raise DistributionError(
                "Thurstone takes a loc (*batch, n) and a covariance (*batch, n, n), not shapes"
                f" {tuple(mean.shape)} and {tuple(covariance.shape)}"
            )
        batch = common_batch("Thurstone", mean=mean.shape[:-1], covariance=covariance.shape[:-2])
        n = mean.shape[-1]
        self.loc, self.covariance = mean.expand(*batch, n), covariance.expand(*batch, n, n)
        self._root = _checked_root(covariance).expand(*batch, n, n)
        super().__init__(batch, n, validate_args)

    @property
    def estimates(self) -> frozenset[str]:
        return frozenset(("entropy", "marginals")) if self.n > 2 else frozenset()

    def estimate(
        self,
        what: str,
        *,
        samples: int | None = None,
        other: PermutationDistribution | None = None,
        generator: torch.Generator | None = None,
    ) -> Estimate:
        if generator is None:  # the same call gives the same answer
            generator = torch.Generator(self.device).manual_seed(0)
        if samples is None:
            samples = DRAWS if what in ("marginals", "mean_ranks") else LIKELIHOOD_DRAWS
        return super().estimate(what, samples=samples, other=other, generator=generator)

    @property
    def mode(self) -> Tensor:
        """The items by falling mean score; equal means keep their order.

        The most likely order where the scores have one variance and one correlation. Elsewhere an item that
        is known badly may make another order likelier by a little.
        """
        return self.loc.argsort(dim=-1, descending=True, stable=True)

    def above(self) -> Tensor:
        """The probability ``(*batch, a, b)`` that item a stands above item b; one half on the diagonal."""
        difference = self.loc[..., :, None] - self.loc[..., None, :]
        return torch.special.ndtr(difference / _spread(self.covariance).clamp(min=1e-30))

    def _sample(self, shape: torch.Size, generator: torch.Generator | None) -> Tensor:
        noise = torch.randn(
            (*shape, *self.batch_shape, self.n),
            dtype=self.loc.dtype,
            device=self.device,
            generator=generator,
        )
        scores = self.loc + (self._root @ noise[..., None])[..., 0]
        return scores.argsort(dim=-1, descending=True)

    def _mean_ranks(self) -> Tensor:
        return self.above().sum(-2) - 0.5

    def _log_prob(self, order: Tensor) -> Tensor:
        shape = torch.broadcast_shapes(order.shape[:-1], self.batch_shape)
        n = self.n
        if n < 2:
            return self.loc.new_zeros(shape)
        order = order.expand(*shape, n)
        mean = self.loc.expand(*shape, n).gather(-1, order)
        covariance = self.covariance.expand(*shape, n, n)
        covariance = covariance.gather(-2, order[..., :, None].expand(*shape, n, n))
        covariance = covariance.gather(-1, order[..., None, :].expand(*shape, n, n))
        lead = mean[..., :-1] - mean[..., 1:]
        spread = covariance[..., :-1, :] - covariance[..., 1:, :]
        spread = spread[..., :-1] - spread[..., 1:]
        return _log_positive(lead, spread)


def _log_positive(mean: Tensor, covariance: Tensor) -> Tensor:
    """The log-probability that normal variables ``(*rows, k)`` are all positive.

    One variable after the other is drawn given those before it, from its normal law cut at zero; the product
    of the probabilities that it is positive is averaged over the points (Genz, 1992).
    """
    rows, k = mean.shape[:-1], mean.shape[-1]
    mean, covariance = mean.reshape(-1, k), covariance.reshape(-1, k, k)
    root = torch.linalg.cholesky_ex(covariance.double())[0].to(mean.dtype)
    engine = torch.quasirandom.SobolEngine(max(k - 1, 1), scramble=True, seed=0)
    points = engine.draw(POINTS).to(mean)
    parts = []
    for lead, factor in zip(mean.split(64), root.split(64), strict=True):
        log = lead.new_zeros((len(lead), POINTS))
        drawn: list[Tensor] = []
        for i in range(k):
            shift = lead[:, i, None].expand_as(log)
            if drawn:
                shift = shift + torch.einsum("rj,rjp->rp", factor[:, i, :i], torch.stack(drawn, 1))
            least = -shift / factor[:, i, i, None].clamp(min=1e-30)
            # The upper tail: of the two it is the one that is small without losing digits.
            tail = torch.special.log_ndtr(-least)
            log = log + tail
            if i + 1 < k:
                inside = (points[:, i] * tail.exp()).clamp(min=torch.finfo(log.dtype).tiny)
                drawn.append(-torch.special.ndtri(inside).clamp(max=8.0))
        parts.append(log.logsumexp(1) - math.log(POINTS))
    return torch.cat(parts).reshape(rows) if parts else mean.new_zeros(rows)


def _spread(covariance: Tensor) -> Tensor:
    """The standard deviation of the difference of two scores, ``(*batch, n, n)``."""
    own = covariance.diagonal(dim1=-2, dim2=-1)
    return (own[..., :, None] + own[..., None, :] - 2 * covariance).clamp(min=0).sqrt()


def _checked_root(covariance: Tensor) -> Tensor:
    """A square root of a covariance, which may be singular."""
    if not bool(covariance.isfinite().all()):
        raise DistributionError("Thurstone takes a covariance that is finite")
    scale = covariance.diagonal(dim1=-2, dim2=-1).abs().amax(-1)[..., None, None].clamp(min=1e-30)
    if bool(((covariance - covariance.mT).abs() > 1e-5 * scale).any()):
        raise DistributionError("Thurstone takes a covariance that is symmetric")
    values, vectors = torch.linalg.eigh(((covariance + covariance.mT) / 2).double())
    if bool((values < -1e-5 * scale[..., 0]).any()):
        least = float(values.min())
        raise DistributionError(f"a covariance has no negative eigenvalue, but this one has {least:.3g}")
    return (vectors * values.clamp(min=0).sqrt()[..., None, :]).to(covariance.dtype)
