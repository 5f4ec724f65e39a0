"""Mixtures of laws over orders."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from factorank.distributions.base import PermutationDistribution
from factorank.distributions.fitting.ballots import Votes, read_ballots
from factorank.distributions.fitting.checks import Unranked
from factorank.distributions.fitting.errors import FitError
from factorank.distributions.fitting.mixture import MIXTURE_EM, fit_by_em
from factorank.distributions.fitting.mixture_families import FAMILIES
from factorank.distributions.generalized_mallows import GeneralizedMallows
from factorank.distributions.mallows import Mallows
from factorank.distributions.parameters import as_reals
from factorank.distributions.plackett_luce import PlackettLuce
from factorank.distributions.rim import RIM
from factorank.errors import DistributionError

LAWS: dict[str, type[PermutationDistribution]] = {
    "mallows": Mallows,
    "generalized-mallows": GeneralizedMallows,
    "rim": RIM,
    "plackett-luce": PlackettLuce,
}
"""The families of the components."""


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
        orders: Votes,
        weights: Tensor | None = None,
        *,
        components: int,
        family: str = "mallows",
        unranked: Unranked | None = None,
        items: int | None = None,
        smoothing: float = 0.0,
        penalty: float = 0.0,
        restarts: int | None = None,
        max_iterations: int | None = None,
        tolerance: float | None = None,
        samples: int | None = None,
        start: "Mixture | None" = None,
        generator: torch.Generator | None = None,
        progress: bool = False,
    ) -> "Mixture":
        """A mixture of laws of one family, by expectation-maximisation with many starts.

        EM raises the likelihood at every iteration, to a local maximum. Each start is a clustering around
        voters who disagree. All starts are run for a few iterations, the best tenth of them to the end; then
        components of the best are merged and split, as long as that helps. A component that loses all its
        votes stays at weight zero. ``law.report`` has the log-likelihood, its history, AIC, BIC, whether it
        converged, and how far the ends of the starts lie apart.

        Ties and top lists have a closed form in mixtures of Mallows laws, top lists and rankings of subsets
        in those of Plackett-Luce. In other cases EM sums over all orders that agree with a voter, or over
        particles where these are too many; the likelihood is then an estimate and has a standard error.

        Args:
            orders: as of :meth:`Mallows.fit`.
            weights: of the rankings, ``(*batch,)``.
            components: the number of laws.
            family: "mallows", "generalized-mallows", "rim" or "plackett-luce".
            unranked: as of :meth:`PlackettLuce.fit`.
            items: as of :meth:`PlackettLuce.fit`.
            smoothing: of the family "rim", as of :meth:`RIM.fit`.
            penalty: of the family "plackett-luce", as of :meth:`PlackettLuce.fit`.
            restarts: the number of starts; 50 unless given.
            max_iterations: of EM; 500 unless given.
            tolerance: of the gain in nats a ranking at which EM stops; 1e-6 unless given.
            samples: particles for each voter, on average, where there are any; 50 unless given.
            start: a mixture at which EM begins, instead of at clusters.
            generator: decides the starts (and particles).
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
        model = FAMILIES[family](LAWS[family], smoothing, penalty)
        settings = MIXTURE_EM.changed(
            components=components,
            restarts=restarts,
            max_iterations=max_iterations,
            tolerance=tolerance,
            samples=samples,
            generator=generator,
            progress=progress,
        )
        if start is not None and len(start.components) != components:
            raise FitError(f"start has {len(start.components)} components, but {components} are fitted")
        begin = None if start is None else (start.weights.double().numpy(), list(start.components))
        ballots = read_ballots(orders, weights, unranked, items)
        shares, laws, report = fit_by_em(model, ballots, settings, begin)
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
