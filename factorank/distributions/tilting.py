"""Laws tilted by a reward: p(x) exp(strength · reward(x)), normalised."""

import math
import numbers
from collections.abc import Callable
from typing import Any, ClassVar

import torch
from torch import Tensor

from factorank.distributions.base import PermutationDistribution
from factorank.distributions.derived import derives
from factorank.distributions.drawing import count_places, draw_index
from factorank.errors import DistributionError

Reward = Callable[[Tensor], Tensor]
PROPOSALS = 4096
"""Draws of the law, where it is too large to list, that the normaliser and the marginals are estimated by."""
LEAST_EFFECTIVE = 16
"""The effective sample size of these draws below which a tilt is refused."""


@derives("tilted")
def tilted(
    law: PermutationDistribution,
    reward: Reward,
    strength: float,
    samples: int | None,
    generator: torch.Generator | None,
) -> "Tilted":
    """See :meth:`PermutationDistribution.tilt`."""
    real = isinstance(strength, numbers.Real) and not isinstance(strength, bool) and math.isfinite(strength)
    if not real or not callable(reward):
        raise law.error(
            "a tilt takes a function that gives a reward for each order, and a finite strength, not"
            f" {reward!r} and {strength!r}"
        )
    if samples is None and law.enumerable:
        return TiltedByEnumeration(law, reward, float(strength))
    samples = PROPOSALS if samples is None else samples
    return TiltedByResampling(law, reward, float(strength), samples, generator)


class Tilted(PermutationDistribution):
    """A law tilted by a reward."""

    _batched: ClassVar[tuple[str, ...]] = ("law", "log_normaliser")
    log_normaliser: Tensor
    """The logarithm of the mean of exp(strength · reward) under ``law``, ``(*batch,)``."""

    def __init__(self, law: PermutationDistribution, reward: Reward, strength: float) -> None:
        self.law, self.reward, self.strength = law, reward, strength
        super().__init__(law.batch_shape, law.n, law._validate_args)

    def _parameters(self) -> dict[str, Any]:
        name = getattr(self.reward, "__name__", type(self.reward).__name__)
        return {"law": self.law, "reward": f"<{name}>", "strength": self.strength}

    @property
    def device(self) -> torch.device:
        return self.law.device

    def _gains(self, orders: Tensor) -> Tensor:
        """Strength times reward of orders ``(*sample, *batch, n)``, checked."""
        gains = self.reward(orders)
        if not isinstance(gains, Tensor) or gains.shape != orders.shape[:-1] or gains.is_complex():
            got = f"{gains.dtype} {tuple(gains.shape)}" if isinstance(gains, Tensor) else type(gains).__name__
            raise DistributionError(
                f"a reward gives a real number for each order, {tuple(orders.shape[:-1])} for orders"
                f" {tuple(orders.shape)}, not {got}"
            )
        gains = self.strength * gains.to(torch.promote_types(gains.dtype, torch.get_default_dtype()))
        if bool(((gains == math.inf) | gains.isnan()).any()):
            raise DistributionError("a reward is a number below infinity, but one here is infinite or NaN")
        return gains

    def _log_prob(self, order: Tensor) -> Tensor:
        shape = torch.broadcast_shapes(order.shape[:-1], self.batch_shape)
        gains = self._gains(order.expand(*shape, self.n))
        return self.law._log_prob(order) + gains - self.log_normaliser


class TiltedByEnumeration(Tilted):
    """All orders are listed: everything is exact."""

    _batched = (*Tilted._batched, "_log_probs")

    def __init__(self, law: PermutationDistribution, reward: Reward, strength: float) -> None:
        super().__init__(law, reward, strength)
        self._orders, log_probs = law._enumerated("a tilt")
        rows = self._orders.view(len(self._orders), *(1 for _ in law.batch_shape), law.n)
        gains = self._gains(rows.expand(len(rows), *law.batch_shape, law.n))
        self.log_normaliser = (log_probs + gains).logsumexp(0)
        if bool((self.log_normaliser == -math.inf).any()):
            raise DistributionError("every order that the law can draw has a reward of minus infinity")
        self._log_probs = (log_probs + gains - self.log_normaliser).movedim(0, -1)

    def _sample(self, shape: torch.Size, generator: torch.Generator | None) -> Tensor:
        return self._orders[draw_index(self._log_probs.expand(*shape, *self._log_probs.shape), generator)]

    def _enumerated(self, what: str) -> tuple[Tensor, Tensor]:
        return self._orders, self._log_probs.movedim(-1, 0)


class TiltedByResampling(Tilted):
    """Draws of the law, weighted by the exponential of their reward; ``exact`` is False.

    ``sample`` resamples from fresh draws of the law, at least sixteen for each: its draws approach the tilted
    law as these are more. ``log_prob`` has the error ``log_normaliser_error``. Marginals are those of the
    weighted draws.
    """

    exact = False
    _batched = (*Tilted._batched, "log_normaliser_error", "effective_sample_size", "_estimated_marginals")

    def __init__(
        self,
        law: PermutationDistribution,
        reward: Reward,
        strength: float,
        samples: int,
        generator: torch.Generator | None,
    ) -> None:
        super().__init__(law, reward, strength)
        self._check_samples(samples)
        self.samples = samples
        generator = generator or torch.Generator(law.device).manual_seed(0)
        orders = law.sample((samples,), generator=generator)
        gains = self._gains(orders)
        weights = gains.double().softmax(0)
        self.effective_sample_size = 1 / weights.square().sum(0)
        """How many equally weighted draws the weighted ones are worth, ``(*batch,)``."""
        if not bool((self.effective_sample_size >= min(LEAST_EFFECTIVE, samples)).all()):
            least = float(self.effective_sample_size.nan_to_num(0).min())
            raise DistributionError(
                f"the reward leaves {least:.1f} effective draws of {samples}, fewer than {LEAST_EFFECTIVE}:"
                " take a smaller strength, or more {parameter}",
                parameter="samples",
            )
        self.log_normaliser = gains.logsumexp(0) - math.log(samples)
        self.log_normaliser_error = (1 / self.effective_sample_size - 1 / samples).clamp(min=0).sqrt()
        self._estimated_marginals = count_places(law._whole(orders), weights.to(gains.dtype))

    @property
    def estimates(self) -> frozenset[str]:
        return frozenset({"entropy"})

    def _log_prob(self, order: Tensor) -> Tensor:
        if not self.law.exact:
            return self.law.log_prob(order)  # which says why there is none
        return super()._log_prob(order)

    def _sample(self, shape: torch.Size, generator: torch.Generator | None) -> Tensor:
        count = shape.numel()
        orders = self.law.sample((max(16 * count, self.samples),), generator=generator)
        cumulative = self._gains(orders).movedim(0, -1).double().softmax(-1).cumsum(-1).contiguous()
        uniform = torch.rand(
            (*self.batch_shape, count), dtype=torch.float64, device=self.device, generator=generator
        )
        chosen = torch.searchsorted(cumulative, uniform * cumulative[..., -1:]).movedim(-1, 0)
        chosen = chosen.clamp(max=len(orders) - 1)[..., None].expand(count, *self.batch_shape, self.n)
        return orders.gather(0, chosen).view(*shape, *self.batch_shape, self.n)

    @property
    def mode(self) -> Tensor:
        """The best of 1,024 draws; where the law has no ``log_prob``, the items by their mean rank."""
        if not self.law.exact:
            return self.mean_ranks().argsort(dim=-1, stable=True)
        orders = self.sample((1024,), generator=torch.Generator(self.device).manual_seed(0))
        best = self._log_prob(orders).argmax(0)
        return orders.gather(0, best[None, ..., None].expand(1, *orders.shape[1:])).squeeze(0)

    def _marginals(self) -> Tensor:
        return self._estimated_marginals
