"""Mixtures of laws over orders."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from factorank.distributions.base import PermutationDistribution
from factorank.distributions.fitting.checks import Unranked, check_unused
from factorank.distributions.fitting.mixture import COMPLETE_EM, fit_by_em
from factorank.distributions.fitting.mixture_families import FAMILIES
from factorank.distributions.fitting.partial_mallows import PARTIAL_EM, as_partial_orders, fit_partial_mallows
from factorank.distributions.fitting.report import FitError
from factorank.distributions.mallows import Mallows
from factorank.distributions.parameters import as_reals
from factorank.distributions.partial_orders import PartialOrders
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
        unranked: Unranked | None = None,
        items: int | None = None,
        smoothing: float = 0.0,
        penalty: float = 0.0,
        restarts: int = 5,
        max_iterations: int | None = None,
        tolerance: float | None = None,
        samples: int | None = None,
        start: "Mixture | None" = None,
        generator: torch.Generator | None = None,
        progress: bool = False,
    ) -> "Mixture":
        """A mixture of laws of one family, by expectation-maximisation with restarts.

        EM raises the likelihood at every iteration, to a local maximum; the best restart is kept. Each starts
        from clusters around voters who disagree. A component that loses all its votes stays at weight zero.
        ``law.report`` has the log-likelihood, its history, AIC, BIC, whether it converged, and the end of
        every restart. Partial orders are fitted as by :meth:`Mallows.fit`.

        Args:
            orders: complete orders ``(*batch, n)``. For the families "plackett-luce" and "mallows" they may
                end in -1 if ``unranked`` is given, and "mallows" also takes :class:`PartialOrders`.
            weights: of the rankings, ``(*batch,)``.
            components: the number of laws.
            family: "mallows", "generalized-mallows", "rim" or "plackett-luce".
            unranked: as of :meth:`PlackettLuce.fit`.
            items: as of :meth:`PlackettLuce.fit`.
            smoothing: of the family "rim", as of :meth:`RIM.fit`.
            penalty: of the family "plackett-luce", as of :meth:`PlackettLuce.fit`.
            restarts: the number of starts.
            max_iterations: of EM; 500 unless given, 100 for partial orders.
            tolerance: at which EM stops: of the gain in nats a ranking, 1e-6 unless given; for partial orders
                of the change of the parameters, 1e-4.
            samples: completions for each voter of partial orders; 50 unless given.
            start: a mixture at which EM begins, instead of at clusters; for complete orders.
            generator: decides the starts (and completions).
            progress: whether to show a bar, on a terminal.

        Dempster, Laird and Rubin, "Maximum likelihood from incomplete data via the EM algorithm", 1977.

        >>> import factorank as fr
        >>> g = torch.Generator().manual_seed(1)
        >>> votes = fr.Mallows(torch.arange(5), 0.3).sample((200,), generator=g)
        >>> both = torch.cat([votes, votes.flip(1)[:100]])
        >>> law = Mixture.fit(both, components=2, generator=g)
        >>> law.weights.sort().values, law.report.converged
        (tensor([0.33..., 0.66...], dtype=torch.float64), True)
        """
        if family not in FAMILIES:
            raise FitError(f"there is no family {family!r}; there are {', '.join(FAMILIES)}")
        if family == "mallows":
            orders = as_partial_orders(orders, unranked, items)
            unranked = items = None
        partial = isinstance(orders, PartialOrders)
        if partial and family != "mallows":
            raise FitError(
                f"PartialOrders are fitted by the family 'mallows', not {family!r}; 'plackett-luce' takes"
                " orders that end in -1, with unranked="
            )
        model = FAMILIES[family](smoothing, penalty, unranked, items)
        settings = (PARTIAL_EM if partial else COMPLETE_EM).changed(
            components=components,
            restarts=restarts,
            max_iterations=max_iterations,
            tolerance=tolerance,
            samples=samples,
            generator=generator,
            progress=progress,
        )
        laws: list[PermutationDistribution]
        if isinstance(orders, PartialOrders):
            check_unused("a fit to partial orders", start=start)
            shares, parameters, report = fit_partial_mallows(orders, weights, settings)
            laws = [Mallows(*pair) for pair in parameters]
        else:
            check_unused("a fit to complete orders", samples=samples)
            if start is not None and len(start.components) != components:
                raise FitError(f"start has {len(start.components)} components, but {components} are fitted")
            begin = None if start is None else (start.weights.double().numpy(), list(start.components))
            shares, laws, report = fit_by_em(model, orders, weights, settings, begin)
        mixture = Mixture(shares, laws)
        mixture.report = report
        return mixture

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
            rows = (chosen == k).nonzero().flatten()
            orders[rows] = law.sample((len(rows),), generator=generator).to(self.device)
        return orders.view(*shape, self.n)

    def _marginals(self) -> Tensor:
        return self._mean([law.marginals() for law in self.components])

    def _mean_ranks(self) -> Tensor:
        return self._mean([law.mean_ranks() for law in self.components])

    def _mean(self, values: list[Tensor]) -> Tensor:
        weighted = [weight * value for weight, value in zip(self.weights, values, strict=True)]
        return torch.stack(weighted).sum(0)
