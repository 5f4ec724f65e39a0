"""Mixtures of laws over orders."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from factorank.distributions.base import PermutationDistribution
from factorank.distributions.fitting.mixture import fit_mixture
from factorank.distributions.fitting.partial_mallows import fit_mallows_mixture_partial
from factorank.distributions.fitting.report import FitError
from factorank.distributions.partial import PartialOrders
from factorank.distributions.tensors import as_reals
from factorank.errors import DistributionError


class Mixture(PermutationDistribution):
    r"""A mixture :math:`\sum_k w_k P_k` of laws over the same n items, of any families.

    Args:
        weights: ``(k,)``, 0 or more; they are divided by their sum.
        components: k laws without batch dimensions.

    (For components of one family as one batch, ``torch.distributions.MixtureSameFamily`` works as well.)

    >>> import factorank as fr
    >>> law = Mixture([0.3, 0.7], [fr.Mallows([0, 1, 2], 0.2), fr.PlackettLuce([0.0, 1.0, 2.0])])
    >>> law.log_prob(torch.tensor([0, 1, 2])).exp()
    tensor(0.2186)
    >>> law.sample((4,), generator=torch.Generator().manual_seed(0)).shape
    torch.Size([4, 3])
    """

    weights: Tensor
    components: tuple[PermutationDistribution, ...]

    def __init__(
        self,
        weights: Sequence[float] | Tensor,
        components: Sequence[PermutationDistribution],
        *,
        validate_args: bool | None = None,
    ) -> None:
        if not components:
            raise DistributionError("a mixture has at least one component")
        weights = as_reals(weights)
        if weights.shape != (len(components),):
            raise DistributionError(
                f"{len(components)} components take that many weights, not {tuple(weights.shape)}"
            )
        if not bool((weights >= 0).all() & weights.isfinite().all() & (weights.sum() > 0)):
            raise DistributionError(
                f"weights are finite, 0 or more and not all 0, but they are {weights.tolist()}"
            )
        for k, law in enumerate(components):
            if law.batch_shape or law.n != components[0].n:
                raise DistributionError(
                    "components are laws of one number of items without batch dimensions, but component"
                    f" {k} has {law.n} items and batch shape {tuple(law.batch_shape)}, component 0"
                    f" {components[0].n} items"
                )
        self.weights = weights / weights.sum()
        self.components = tuple(components)
        super().__init__((), components[0].n, validate_args)

    @classmethod
    def fit(
        cls,
        orders: Tensor | PartialOrders,
        weights: Tensor | None = None,
        *,
        components: int,
        family: str = "mallows",
        held_out: Tensor | PartialOrders | float | None = None,
        generator: torch.Generator | None = None,
        **options: Any,
    ) -> "Mixture":
        """A mixture of ``components`` laws of one family, by expectation-maximisation with restarts.

        EM raises the likelihood at every iteration, to a local maximum; the best of ``restarts`` (5) is kept.
        Each starts from clusters around voters who disagree. A component that loses all its votes stays at
        weight zero. ``law.report`` has the log-likelihood, its history, AIC, BIC, whether it converged, and
        the end of every restart.

        Args:
            orders: complete orders ``(*batch, n)``. For the families "plackett-luce" and "mallows" they may
                end in -1 if ``unranked`` says what that means, and "mallows" also takes
                :class:`PartialOrders`; its partial orders are completed by sampling
                (:func:`fit_mallows_mixture_partial`; the option ``samples``).
            weights: of the rankings, ``(*batch,)``.
            family: "mallows", "generalized-mallows", "rim" or "plackett-luce".
            held_out: more rankings, or the share of the rows (0.2, say), drawn at random, to be left out of
                the fit; ``law.report.held_out`` is then their mean log-likelihood, by weight.
            generator: decides the starts (and the share held out).
            options: ``restarts``, ``max_iterations``, ``tolerance`` (of the gain in nats a ranking),
                ``progress`` (a bar, on a terminal); ``smoothing`` for "rim", ``penalty`` for "plackett-luce";
                for orders that end in -1 ``unranked``, "below" for top-k lists and "incomparable" for
                rankings of subsets, and ``items``, their number where the orders are shorter than that.

        Dempster, Laird and Rubin, "Maximum likelihood from incomplete data via the EM algorithm", 1977.

        >>> import factorank as fr
        >>> g = torch.Generator().manual_seed(1)
        >>> votes = fr.Mallows(torch.arange(5), 0.3).sample((200,), generator=g)
        >>> both = torch.cat([votes, votes.flip(1)[:100]])
        >>> law = Mixture.fit(both, components=2, generator=g)
        >>> law.weights.sort().values, law.report.converged
        (tensor([0.33..., 0.66...], dtype=torch.float64), True)
        """
        out_weights = None
        if family == "mallows" and isinstance(orders, Tensor):
            orders, held_out = _as_partial(orders, held_out, options)
        if isinstance(held_out, float | int):
            orders, weights, held_out, out_weights = _split(orders, weights, float(held_out), generator)
        if held_out is not None and isinstance(held_out, PartialOrders) != isinstance(orders, PartialOrders):
            raise FitError("the rankings held out are complete if the others are, and partial if they are")
        options |= {"components": components, "generator": generator}
        options |= {"held_out": held_out, "held_out_weights": out_weights}
        if isinstance(orders, PartialOrders):
            if family != "mallows":
                raise FitError(
                    f"PartialOrders are fitted by the family 'mallows', not {family!r}; 'plackett-luce' takes"
                    " orders that end in -1, with unranked="
                )
            shares, laws, report = fit_mallows_mixture_partial(orders, weights, **options)
            fitted = cls(shares, laws)
        else:
            shares, found, report = fit_mixture(orders, weights, family=family, **options)
            fitted = cls(shares, found)
        fitted.report = report
        return fitted

    @property
    def device(self) -> torch.device:
        return self.weights.device

    def _parameters(self) -> dict[str, Any]:
        return {"weights": self.weights, "components": list(self.components)}

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        if tuple(batch_shape) == ():
            return self
        raise DistributionError("a Mixture has no batch dimensions; MixtureSameFamily takes batches")

    def _log_prob(self, order: Tensor) -> Tensor:
        return self._joint(order).logsumexp(-1)

    def _joint(self, order: Tensor) -> Tensor:
        each = [law._log_prob(order) for law in self.components]
        return torch.stack(each, -1) + self.weights.log()

    def responsibilities(self, order: Tensor) -> Tensor:
        """The probability that each order ``(*batch, n)`` came from each component: ``(*batch, k)``."""
        if self._validate_args:
            self._validate_sample(order)
        return self._joint(order.to(torch.int64)).softmax(-1)

    def _sample(self, shape: torch.Size, generator: torch.Generator | None) -> Tensor:
        count = shape.numel()
        if count == 0:
            return torch.empty((*shape, self.n), dtype=torch.int64, device=self.device)
        chosen = torch.multinomial(self.weights.double(), count, replacement=True, generator=generator)
        orders = torch.empty((count, self.n), dtype=torch.int64, device=self.device)
        for k, law in enumerate(self.components):
            mine = (chosen == k).nonzero().flatten()
            orders[mine] = law.sample((len(mine),), generator=generator).to(self.device)
        return orders.view(*shape, self.n)

    def _marginals(self) -> Tensor:
        return self._mean(lambda law: law.marginals())

    def _mean_ranks(self) -> Tensor:
        return self._mean(lambda law: law.mean_ranks())

    def _mean(self, of: Any) -> Tensor:
        return sum(weight * of(law) for weight, law in zip(self.weights, self.components, strict=True))


def _as_partial(orders: Tensor, held_out: Any, options: dict[str, Any]) -> tuple[Any, Any]:
    """Orders that leave items out as :class:`PartialOrders`; what says how is taken out of the options."""
    said: dict[str, Any] = {name: options.pop(name, None) for name in ("unranked", "items")}
    if said["unranked"] is None:
        if said["items"] is not None:
            raise FitError("items= goes with unranked=, which says what is known of the items left out")
        return orders, held_out
    more = [held_out] if isinstance(held_out, Tensor) else []
    if all(
        one.shape[-1] == (said["items"] or one.shape[-1]) and bool((one != -1).all())
        for one in (orders, *more)
    ):
        return orders, held_out
    made = [PartialOrders.from_orders(one, **said) for one in (orders, *more)]
    return made[0], made[1] if more else held_out


def _split(
    orders: Tensor | PartialOrders, weights: Tensor | None, share: float, generator: torch.Generator | None
) -> tuple[Any, Tensor | None, Any, Tensor | None]:
    """Leave a random share of the rankings out: those kept, their weights, and the same of those left out."""
    if isinstance(orders, Tensor) and orders.ndim > 1:
        orders = orders.reshape(-1, orders.shape[-1])
        weights = None if weights is None else weights.reshape(-1)
    count = len(orders)
    out = round(share * count)
    if not 0 < share < 1 or not 0 < out < count:
        raise FitError(f"held_out as a share leaves some of {count} rankings on both sides; {share} does not")
    shuffled = torch.randperm(
        count, generator=generator, device=generator.device if generator else None
    ).cpu()
    kept, left = shuffled[out:].sort().values, shuffled[:out].sort().values
    if weights is None:
        return orders[kept], None, orders[left], None
    return orders[kept], weights[kept], orders[left], weights[left]
