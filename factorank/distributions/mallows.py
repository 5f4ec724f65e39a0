"""The Mallows law: probability falls by a factor φ with each pair of items out of order."""

from collections.abc import Sequence
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor
from torch.distributions import constraints

from factorank.codes import code
from factorank.distances import kendall
from factorank.distributions.factorized import GeometricDistribution, draw_geometric, times_log
from factorank.distributions.fitting.checks import Unranked, check_unused, complete_votes, reference_order
from factorank.distributions.fitting.consensus import disagreement, kemeny, pairwise_counts
from factorank.distributions.fitting.dispersion import fit_mallows_phi
from factorank.distributions.fitting.partial_mallows import PARTIAL_EM, as_partial_orders, fit_partial_mallows
from factorank.distributions.fitting.report import FitError, FitReport
from factorank.distributions.parameters import (
    as_orders,
    as_reals,
    common_batch,
    compact,
    nonnegative_vector,
    permutation,
)
from factorank.distributions.partial_orders import PartialOrders
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
        orders: Tensor | PartialOrders,
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

        Partial orders are fitted by Monte-Carlo EM: each voter's order is completed by weighted draws of AMP
        (Lu and Boutilier, 2014). The options from ``samples`` on belong to this fit.

        Args:
            orders: complete orders ``(*batch, n)``, :class:`PartialOrders`, or orders that end in -1 with
                ``unranked``.
            weights: of the rankings, ``(*batch,)``.
            central: the reference order, if it is not to be fitted.
            place_weights: of the weighted law, ``(n,)``.
            unranked: as of :meth:`PlackettLuce.fit`.
            items: as of :meth:`PlackettLuce.fit`.
            samples: completions for each voter; 50 unless given.
            max_iterations: of EM; 100 unless given.
            tolerance: of the change of φ at which EM stops; 1e-4 unless given.
            generator: of the completions.

        Fligner and Verducci, "Distance based ranking models", 1986.

        >>> law = Mallows.fit(torch.tensor([[0, 1, 2], [0, 1, 2], [1, 0, 2]]))
        >>> law.central, round(float(law.phi), 4), law.report.exact
        (tensor([0, 1, 2]), 0.169, True)
        >>> tops = torch.tensor([[0, 1, -1, -1]] * 6 + [[1, 0, -1, -1]] * 2 + [[0, 2, -1, -1]])
        >>> law = Mallows.fit(tops, unranked="below", generator=torch.Generator().manual_seed(0))
        >>> law.central[:2]
        tensor([0, 1])
        """
        orders = as_partial_orders(orders, unranked, items)
        em = {"max_iterations": max_iterations, "tolerance": tolerance, "samples": samples}
        if isinstance(orders, PartialOrders):
            check_unused("a fit to partial orders", central=central, place_weights=place_weights)
            settings = PARTIAL_EM.changed(generator=generator, **em)
            _, parameters, report = fit_partial_mallows(orders, weights, settings)
            law = Mallows(*parameters[0])
            law.report = report
            return law
        check_unused("a fit to complete orders", **em)
        rows, row_weights = complete_votes(orders, weights)
        n, total = rows.shape[1], float(row_weights.sum())
        places = np.ones(n)
        if place_weights is not None:
            places = place_weights.detach().to("cpu", torch.float64).numpy()
            if places.shape != (n,) or not (np.isfinite(places).all() and (places >= 0).all()):
                raise FitError(
                    f"place_weights are {n} finite numbers of 0 or more, not {place_weights.tolist()}"
                )
        counts = pairwise_counts(rows, row_weights, places)
        order, exact = kemeny(counts) if central is None else (reference_order(central, n), None)
        phi, likelihood = fit_mallows_phi(disagreement(counts, order), n, total, places)
        law = Mallows(
            central=torch.from_numpy(order).to(orders.device),
            phi=torch.tensor(phi, dtype=torch.float64, device=orders.device),
            weights=None if place_weights is None else place_weights.to(orders.device, torch.float64),
        )
        title = "Mallows" if place_weights is None else "weighted Mallows"
        law.report = FitReport(title, total, likelihood, parameters=1, exact=exact)
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
