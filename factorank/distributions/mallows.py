"""The Mallows law: probability falls by a factor φ with each pair of items out of order."""

from collections.abc import Sequence
from typing import ClassVar

import torch
from torch import Tensor
from torch.distributions import constraints

from factorank.codes import code
from factorank.distances import kendall
from factorank.distributions.factorized import GeometricDistribution, draw_geometric, times_log
from factorank.distributions.fitting.ballots import Votes, read_ballots
from factorank.distributions.fitting.checks import Unranked, reference_order
from factorank.distributions.fitting.errors import FitError
from factorank.distributions.fitting.partial_mallows import PARTIAL_EM, fit_partial_mallows
from factorank.distributions.fitting.weak_mallows import fit_mallows
from factorank.distributions.parameters import (
    as_orders,
    as_reals,
    common_batch,
    compact,
    nonnegative_vector,
    permutation,
)
from factorank.errors import DistributionError


class Mallows(GeometricDistribution):
    r"""Mallows' law with Kendall's distance, or its weighted form.

    .. math:: P(X) = \varphi^{d(X, central)} / Z, \qquad
              Z = \prod_{j=0}^{n-1} \frac{1 - \varphi^{n-j}}{1 - \varphi}

    With ``weights`` on the places the exponent is :math:`\sum_j w_j L_j`, where L is the right-Lehmer code of
    the order with items named by their place in ``central``: at place j, each item left behind that stands
    before the chosen one in ``central`` costs :math:`w_j`. Weights of one give the plain law.

    Args:
        central: the order in the middle, ``(*batch, n)``; also the mode.
        phi: the dispersion, ``(*batch,)``, from 0 (only ``central``) to 1 (uniform). ``theta`` is -log φ.
        weights: of the places, ``(*batch, n)``, 0 or more; the last one has no effect.

    Mallows, "Non-null ranking models", 1957; the weighted law is the one-step Lehmer model.

    >>> law = Mallows(central=torch.arange(4), phi=0.5)
    >>> law
    Mallows(central=[0, 1, 2, 3], phi=0.5)
    >>> law.log_prob(torch.tensor([[0, 1, 2, 3], [0, 1, 3, 2]])).exp()
    tensor([0.2032, 0.1016])
    >>> law.mean_ranks()
    tensor([0.7333, 1.2381, 1.7619, 2.2667])
    """

    arg_constraints: ClassVar[dict[str, constraints.Constraint]] = {
        "central": permutation,
        "phi": constraints.unit_interval,
        "weights": nonnegative_vector,
    }
    code_name = "lehmer"
    central: Tensor
    phi: Tensor
    weights: Tensor | None

    def __init__(
        self,
        central: Sequence[int] | Tensor,
        phi: float | Tensor,
        weights: Sequence[float] | Tensor | None = None,
        *,
        validate_args: bool | None = None,
    ) -> None:
        central = as_orders(central, "Mallows", like=phi)
        phi = as_reals(phi, central)
        n = central.shape[-1]
        shapes = {"central": central.shape[:-1], "phi": phi.shape}
        if weights is not None:
            weights = as_reals(weights, central)
            if weights.shape[-1:] != (n,):
                raise DistributionError(
                    f"Mallows takes one weight for each of the {n} places, not shape {tuple(weights.shape)}"
                )
            shapes["weights"] = weights.shape[:-1]
        batch = common_batch("Mallows", **shapes)
        self.weights = None if weights is None else weights.expand(*batch, n)
        self.central = central.expand(*batch, n)
        self.phi = phi.expand(batch)
        super().__init__(batch, n, validate_args)

    @classmethod
    def fit(
        cls,
        orders: Votes,
        weights: Tensor | None = None,
        *,
        central: Sequence[int] | Tensor | None = None,
        place_weights: Tensor | None = None,
        unranked: Unranked | None = None,
        items: int | None = None,
        samples: int | None = None,
        max_iterations: int | None = None,
        tolerance: float | None = None,
        generator: torch.Generator | None = None,
    ) -> "Mallows":
        r"""The law of maximum likelihood; ``law.report`` says how the fit went.

        The log-likelihood :math:`-θ \sum_v w_v d(σ, x_v) - N \log Z(θ)` is largest, whatever θ = -log φ, at
        the consensus σ (:func:`factorank.consensus`), and then where the expected distance equals the mean
        distance. All votes equal give φ = 0, votes without any order φ = 1. With ``place_weights`` a pair
        counts with the weight of the higher place, so the best σ is again a consensus, of weighted counts.

        Ties and top lists keep this form: the probability of all orders that agree with levels of tied items
        has a closed form, so the fit is as exact. For other rankings that leave items out a Gibbs sampler
        completes the voters' orders. The maximum is then made exact by sums where these are feasible;
        elsewhere the report has the error of the sampler. The options from ``samples`` on belong to this fit.

        Args:
            orders: complete orders ``(*batch, n)``, orders that end in -1 with ``unranked``, what
                :func:`factorank.read_rankings` returns (with its counts, ties and names), or
                :class:`PartialOrders`.
            weights: of the rankings, ``(*batch,)``.
            central: the reference order, if it is not to be fitted.
            place_weights: of the weighted law, ``(n,)``; for complete orders.
            unranked: as of :meth:`PlackettLuce.fit`.
            items: as of :meth:`PlackettLuce.fit`.
            samples: sweeps of the sampler over all voters, in its last rounds; by default 10 to 50, the fewer
                the more voters there are.
            max_iterations: rounds of the sampler; 30 unless given.
            tolerance: of the change of φ at which they stop, beyond the sampler's noise; 1e-4 unless given.
            generator: of the sampler.

        Fligner and Verducci, "Distance based ranking models", 1986.

        >>> law = Mallows.fit(torch.tensor([[0, 1, 2], [0, 1, 2], [1, 0, 2]]))
        >>> law.central, round(float(law.phi), 4), law.report.exact
        (tensor([0, 1, 2]), 0.169, True)
        >>> tops = torch.tensor([[0, 1, -1, -1]] * 6 + [[1, 0, -1, -1]] * 2 + [[0, 2, -1, -1]])
        >>> law = Mallows.fit(tops, unranked="below")
        >>> law.central[:2], law.report.standard_error is None
        (tensor([0, 1]), True)
        """
        ballots = read_ballots(orders, weights, unranked, items)
        n, device = ballots.n, ballots.device
        settings = PARTIAL_EM.changed(
            generator=generator, max_iterations=max_iterations, tolerance=tolerance, samples=samples
        )
        chosen = None if central is None else reference_order(central, n)
        if place_weights is not None and not ballots.complete:
            raise FitError("place_weights are for complete rankings without ties", parameter="place_weights")
        if not ballots.weak:
            order, phi, report = fit_partial_mallows(ballots, settings, chosen)
        else:
            order, phi, report = fit_mallows(ballots, chosen, place_weights)
        law = Mallows(
            central=torch.from_numpy(order).to(device),
            phi=torch.tensor(phi, dtype=torch.float64, device=device),
            weights=None if place_weights is None else place_weights.to(device, torch.float64),
        )
        law.report = report
        return law

    @property
    def theta(self) -> Tensor:
        """The dispersion on the other common scale, -log φ: 0 is uniform, infinity a point mass."""
        return -self.phi.log()

    @property
    def _ratio(self) -> Tensor:
        """The factor for each unit of each digit of the Lehmer code: ``(*batch or ones, n)``."""
        phi = compact(self.phi, 0)[..., None]
        if self.weights is None:
            return phi.expand(*phi.shape[:-1], self.n)
        return phi ** compact(self.weights, 1)

    @property
    def code_names(self) -> tuple[str, ...]:
        return ("lehmer",) if self.weights is not None else ("lehmer", "insertion")

    def _log_prob(self, order: Tensor) -> Tensor:
        phi = self.phi
        if self.weights is None:
            distance = kendall(order, compact(self.central, 1), check=False).to(phi.dtype)
        else:
            digits = code("lehmer").encode(self._relative(order), check=False)
            distance = (digits * self.weights).sum(-1)
        return times_log(distance, phi) - self._log_normaliser

    def _sample(self, shape: torch.Size, generator: torch.Generator | None) -> Tensor:
        # Without weights a column of size 1 serves all places; φ^0 = 1 also for φ = 0.
        log_ratio = compact(self.phi, 0).double().log()[..., None]
        if self.weights is not None:
            log_ratio = torch.where(self.weights == 0, 0.0, self.weights.double() * log_ratio)
        digits = draw_geometric(log_ratio, self._sizes, (*shape, *self.batch_shape, self.n), generator)
        return self._absolute(code("lehmer").decode(digits, check=False))
