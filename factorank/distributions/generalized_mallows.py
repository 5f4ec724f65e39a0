"""The generalized Mallows law: a dispersion for each item of the reference."""

from collections.abc import Sequence
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor
from torch.distributions import constraints

from factorank.distributions.factorized import GeometricDistribution, draw_geometric, times_log
from factorank.distributions.fitting.ballots import Votes, read_ballots
from factorank.distributions.fitting.checks import Unranked, check_counts, check_unused, reference_order
from factorank.distributions.fitting.dispersion import best_phis, log_likelihood, phi_errors
from factorank.distributions.fitting.kemeny import pairwise_counts
from factorank.distributions.fitting.mixture import MIXTURE_EM, fit_by_em
from factorank.distributions.fitting.mixture_families import GeneralizedMallowsFamily
from factorank.distributions.fitting.references import RESTARTS, Reference, overtaking_reference
from factorank.distributions.fitting.report import FitReport
from factorank.distributions.parameters import (
    as_orders,
    as_reals,
    common_batch,
    compact,
    permutation,
    unit_vector,
)
from factorank.errors import DistributionError


class GeneralizedMallows(GeometricDistribution):
    r"""The generalized Mallows law in its insertion form.

    The items of ``central`` are inserted one after the other, item ``central[i]`` at slot :math:`V_i` of the
    list of those before it, with

    .. math:: P(V_i = v) \propto \varphi_i^{i - v}, \qquad v = 0, …, i

    so :math:`i - V_i` counts the items before it in ``central`` that it overtakes. It is a RIM, and with all
    φ equal the Mallows law; it is not the weighted Mallows law, whose weights belong to places. (Fligner and
    Verducci count the overtaken from the other side: their law is this one with ``central`` and the orders
    read from last to first.)

    Args:
        central: the order in the middle, ``(*batch, n)``; also the mode.
        phis: ``(*batch, n)``, from 0 to 1; ``phis[i]`` belongs to item ``central[i]``, and the first one has
            no effect.

    Fligner and Verducci, "Distance based ranking models", 1986; Lu and Boutilier, "Effective sampling and
    learning for Mallows models with pairwise-preference data", 2014.

    >>> law = GeneralizedMallows([2, 0, 1], phis=[1.0, 0.5, 0.0])
    >>> law.log_prob(torch.tensor([[2, 0, 1], [0, 2, 1], [2, 1, 0]])).exp()
    tensor([0.6667, 0.3333, 0.0000])
    """

    arg_constraints: ClassVar[dict[str, constraints.Constraint]] = {
        "central": permutation,
        "phis": unit_vector,
    }
    code_name = "insertion"
    central: Tensor
    phis: Tensor

    def __init__(
        self,
        central: Sequence[int] | Tensor,
        phis: Sequence[float] | Tensor,
        *,
        validate_args: bool | None = None,
    ) -> None:
        central = as_orders(central, "GeneralizedMallows", like=phis)
        phis = as_reals(phis, central)
        n = central.shape[-1]
        if phis.shape[-1:] != (n,):
            raise DistributionError(
                f"GeneralizedMallows takes one phi for each of the {n} items, not shape {tuple(phis.shape)}"
            )
        batch = common_batch("GeneralizedMallows", central=central.shape[:-1], phis=phis.shape[:-1])
        self.central = central.expand(*batch, n)
        self.phis = phis.expand(*batch, n)
        super().__init__(batch, n, validate_args)

    @classmethod
    def fit(
        cls,
        orders: Votes,
        weights: Tensor | None = None,
        *,
        central: Sequence[int] | Tensor | None = None,
        unranked: Unranked | None = None,
        items: int | None = None,
        restarts: int = RESTARTS,
        samples: int | None = None,
        max_iterations: int | None = None,
        tolerance: float | None = None,
        generator: torch.Generator | None = None,
    ) -> "GeneralizedMallows":
        r"""The law of maximum likelihood; ``law.report`` says how the fit went.

        Item i of the reference σ is inserted :math:`d_i` places before the end of the items ahead of it, with
        :math:`P(d_i) ∝ φ_i^{d_i}`. The mean of :math:`d_i` over the votes is a sum of pairwise counts, and
        each :math:`φ_i` (at most 1) solves its own moment equation. What an item adds to the likelihood
        depends on the set of items ahead of it, so that dynamic programming over sets finds the best σ.
        Beyond 18 items a local search moves one item at a time; ``law.report.exact`` is then false. Rankings
        with ties or that leave items out are fitted by EM, as by :meth:`Mixture.fit`.

        Args:
            orders: as of :meth:`Mallows.fit`.
            weights: of the rankings, ``(*batch,)``.
            central: the reference order, if it is not to be fitted; for complete orders.
            unranked: as of :meth:`PlackettLuce.fit`.
            items: as of :meth:`PlackettLuce.fit`.
            restarts: local searches for σ beyond 18 items, of which the best is kept.
            samples: of EM, as of :meth:`Mixture.fit`.
            max_iterations: of EM; 500 unless given.
            tolerance: of EM, as of :meth:`Mixture.fit`.
            generator: of the starts of the searches, and of the particles of EM.

        Fligner and Verducci, "Distance based ranking models", 1986.

        >>> law = GeneralizedMallows.fit(torch.tensor([[0, 1, 2], [0, 1, 2], [1, 0, 2]]))
        >>> law.central, law.phis
        (tensor([0, 1, 2]), tensor([1.0000, 0.5000, 0.0000], dtype=torch.float64))
        """
        ballots = read_ballots(orders, weights, unranked, items)
        check_counts(restarts=restarts)
        settings = MIXTURE_EM.changed(
            samples=samples, max_iterations=max_iterations, tolerance=tolerance, generator=generator
        )
        if not ballots.complete:
            check_unused("a generalized Mallows law fitted by EM", central=central)
            _, [law], report = fit_by_em(GeneralizedMallowsFamily(GeneralizedMallows), ballots, settings)
            law.report = report
            return law  # type: ignore[return-value]
        n, total, device = ballots.n, ballots.total, ballots.device
        shares = pairwise_counts(ballots.orders, ballots.weights) / total
        if central is None:
            search = overtaking_reference(shares, restarts, generator)
        else:
            search = Reference(reference_order(central, n), None)
        phis = best_phis(shares, search.order)
        law = GeneralizedMallows(torch.from_numpy(search.order).to(device), torch.from_numpy(phis).to(device))
        report = FitReport(
            "generalized Mallows",
            rankings=total,
            log_likelihood=total * log_likelihood(shares, search.order),
            parameters=n - 1,
            exact=search.exact,
            starts=max(len(search.values), 1),
            restarts=tuple(sorted((total * value for value in search.values), reverse=True)),
        )
        place = np.argsort(search.order)
        values, errors = np.where(np.arange(n) > 0, phis, np.nan), phi_errors(phis, total)
        law.report = report.with_estimates("phi", values[place], errors[place], ballots.items)
        return law

    @property
    def thetas(self) -> Tensor:
        """The dispersions on the other common scale, -log φ."""
        return -self.phis.log()

    @property
    def _ratio(self) -> Tensor:
        return compact(self.phis, 1)

    def _log_prob(self, order: Tensor) -> Tensor:
        overtaken = (self._sizes - 1 - self._encode(order)).to(self.phis.dtype)
        log_probs = times_log(overtaken, self._ratio).sum(-1) - self._log_normaliser
        return log_probs.expand(self._result(order))

    def _sample(self, shape: torch.Size, generator: torch.Generator | None) -> Tensor:
        log_ratio = self._ratio.double().log()
        overtaken = draw_geometric(log_ratio, self._sizes, (*shape, *self.batch_shape, self.n), generator)
        return self._decode(self._sizes - 1 - overtaken)
