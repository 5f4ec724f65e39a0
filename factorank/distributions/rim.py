"""The repeated insertion model: a table of insertion probabilities."""

import math
from collections.abc import Sequence
from typing import Any, ClassVar, Self

import torch
from torch import Tensor
from torch.distributions import constraints

from factorank.distributions.derived import taken
from factorank.distributions.factorized import FactorizedDistribution
from factorank.distributions.fitting.ballots import Votes, read_ballots
from factorank.distributions.fitting.checks import (
    Unranked,
    check_counts,
    check_strength,
    check_unused,
    reference_order,
)
from factorank.distributions.fitting.mixture import MIXTURE_EM, fit_by_em
from factorank.distributions.fitting.mixture_families import RIMFamily
from factorank.distributions.fitting.references import (
    RESTARTS,
    Reference,
    insertion_shares,
    mean_overtakes,
    rim_reference,
)
from factorank.distributions.fitting.report import FitReport
from factorank.distributions.parameters import as_orders, as_reals, common_batch, permutation
from factorank.errors import DistributionError


class RIM(FactorizedDistribution):
    r"""The repeated insertion model.

    The items of ``reference`` are inserted one after the other: item ``reference[i]`` goes to slot
    :math:`V_i` (0 in front, i at the end) of the list of those before it, with probability ``probs[i, v]``.
    Then :math:`P(X) = \prod_i probs[i, V_i]`, where V is the insertion code of X relative to the reference.

    Args:
        probs: ``(*batch, n, n)``; row i holds the probabilities of slots 0..i, which sum to one, and zeros.
        reference: the order in which items are inserted, ``(*batch, n)``; 0..n-1 unless given.
        logits: unnormalised log-probabilities instead of ``probs``; what is above the diagonal is ignored.

    Both ``probs`` and ``logits`` (normalised) can be read.

    Doignon, Pekeč and Regenwetter, "The repeated insertion model for rankings", 2004.

    >>> law = RIM(torch.tensor([[1.0, 0.0, 0.0], [0.4, 0.6, 0.0], [0.1, 0.2, 0.7]]))
    >>> law.log_prob(torch.tensor([[0, 1, 2], [2, 1, 0]])).exp()
    tensor([0.4200, 0.0400])
    >>> law.mode
    tensor([0, 1, 2])
    """

    arg_constraints: ClassVar[dict[str, constraints.Constraint]] = {
        "reference": permutation,
        "probs": constraints.dependent(is_discrete=False, event_dim=2),
        "logits": constraints.dependent(is_discrete=False, event_dim=2),
    }
    code_name = "insertion"
    reference: Tensor

    def __init__(
        self,
        probs: Sequence[Any] | Tensor | None = None,
        reference: Sequence[int] | Tensor | None = None,
        *,
        logits: Sequence[Any] | Tensor | None = None,
        validate_args: bool | None = None,
    ) -> None:
        if (probs is None) == (logits is None):
            raise DistributionError("RIM takes either probs or logits")
        self._parameter = "probs" if logits is None else "logits"
        table = as_reals(logits if probs is None else probs)  # type: ignore[arg-type]
        if table.ndim < 2 or table.shape[-1] != table.shape[-2]:
            raise DistributionError(f"RIM takes {self._parameter} (*batch, n, n), not {tuple(table.shape)}")
        n = table.shape[-1]
        if reference is None:
            reference = torch.arange(n, device=table.device)
        reference = as_orders(reference, "RIM", like=table)
        if reference.shape[-1] != n:
            raise DistributionError(
                f"RIM has {n} rows of {self._parameter} but a reference of {reference.shape[-1]} items"
            )
        batch = common_batch("RIM", reference=reference.shape[:-1], **{self._parameter: table.shape[:-2]})
        self.reference = reference.expand(*batch, n)
        super().__init__(batch, n, validate_args)
        if self._validate_args:
            _check_table(table, self._parameter)
        if self._parameter == "probs":
            normal = table / table.sum(-1, keepdim=True)
            # The inner `where` keeps the zeros' gradients at zero instead of not-a-number.
            self._logits = torch.where(normal > 0, torch.where(normal > 0, normal, 1.0).log(), -math.inf)
        else:
            above = torch.ones(n, n, dtype=torch.bool, device=table.device).triu(1)
            self._logits = table.masked_fill(above, -math.inf).log_softmax(-1)

    def _taken(self, rows: Tensor) -> Self:
        new = super()._taken(rows)
        new._logits = taken(self._logits.expand(*self.batch_shape, self.n, self.n), self.batch_shape, rows)
        return new

    @classmethod
    def fit(
        cls,
        orders: Votes,
        reference: Sequence[int] | Tensor | None = None,
        weights: Tensor | None = None,
        *,
        smoothing: float = 0.0,
        unranked: Unranked | None = None,
        items: int | None = None,
        restarts: int = RESTARTS,
        samples: int | None = None,
        max_iterations: int | None = None,
        tolerance: float | None = None,
        generator: torch.Generator | None = None,
    ) -> "RIM":
        """The law of maximum likelihood; ``law.report`` says how the fit went.

        The insertion probabilities are shares of the votes. What an item adds to the likelihood depends on
        the set of items before it in the reference, so that dynamic programming over sets finds the best one.
        Beyond 18 items a local search moves one item at a time; ``law.report.exact`` is then false. Rankings
        with ties or that leave items out are fitted by EM, as by :meth:`Mixture.fit`.

        Args:
            orders: as of :meth:`Mallows.fit`.
            reference: the order in which items are inserted, if it is not to be fitted; for complete orders.
            weights: of the rankings, ``(*batch,)``.
            smoothing: added to the count of every slot (1 is Laplace's rule), which keeps slots that no vote
                used possible.
            unranked: as of :meth:`PlackettLuce.fit`.
            items: as of :meth:`PlackettLuce.fit`.
            restarts: local searches for the reference beyond 18 items, of which the best is kept.
            samples: of EM, as of :meth:`Mixture.fit`.
            max_iterations: of EM; 500 unless given.
            tolerance: of EM, as of :meth:`Mixture.fit`.
            generator: of the starts of the searches, and of the particles of EM.

        >>> law = RIM.fit(torch.tensor([[0, 1], [0, 1], [1, 0]]), reference=[0, 1])
        >>> law.probs
        tensor([[1.0000, 0.0000],
                [0.3333, 0.6667]], dtype=torch.float64)
        """
        ballots = read_ballots(orders, weights, unranked, items)
        check_strength("smoothing", smoothing)
        smoothing = float(smoothing)  # compiled loops take no tensor
        check_counts(restarts=restarts)
        settings = MIXTURE_EM.changed(
            samples=samples, max_iterations=max_iterations, tolerance=tolerance, generator=generator
        )
        if not ballots.complete:
            check_unused("a RIM fitted by EM", reference=reference)
            _, [law], report = fit_by_em(RIMFamily(RIM, smoothing), ballots, settings)
            law.report = report
            return law  # type: ignore[return-value]
        rows, n, device = ballots.orders, ballots.n, ballots.device
        if reference is None:
            search = rim_reference(rows, ballots.weights, smoothing, restarts, generator)
        else:
            search = Reference(reference_order(reference, n), None)
        probs, likelihood = insertion_shares(rows, ballots.weights, search.order, smoothing)
        law = RIM(torch.from_numpy(probs).to(device), torch.from_numpy(search.order).to(device))
        report = FitReport(
            "RIM",
            ballots.total,
            likelihood,
            parameters=n * (n - 1) // 2,
            exact=search.exact,
            starts=max(len(search.values), 1),
            restarts=tuple(sorted(search.values, reverse=True)),
        )
        overtakes, errors = mean_overtakes(probs, search.order, ballots.total)
        law.report = report.with_estimates("overtakes", overtakes, errors, ballots.items)
        return law

    @property
    def probs(self) -> Tensor:
        """The insertion probabilities, ``(*batch, n, n)``."""
        return self.logits.exp()

    @property
    def logits(self) -> Tensor:
        """The logarithms of the insertion probabilities, ``(*batch, n, n)``; -inf above the diagonal."""
        return self._logits.expand(*self.batch_shape, self.n, self.n)

    @property
    def _reference(self) -> Tensor:
        return self.reference

    def _parameters(self) -> dict[str, Any]:
        return {self._parameter: getattr(self, self._parameter), "reference": self.reference}

    def _digits(self, code_name: str, log: bool = True) -> Tensor:
        return self._logits if log else self._logits.exp()


def _check_table(table: Tensor, name: str) -> None:
    n = table.shape[-1]
    inside = torch.ones(n, n, dtype=torch.bool, device=table.device).tril()
    if name == "logits":
        faults = {"logits below infinity": (table.isnan() | (table == math.inf)) & inside}
        unlike = ~((table > -math.inf) & inside).any(-1)
        what = "some finite logit in each row"
    else:
        zero = "zero probabilities above the diagonal (row i has slots 0..i)"
        faults = {"probabilities of 0 or more": ~(table >= 0), zero: (table != 0) & ~inside}
        tolerance = 1e-4 if table.dtype.itemsize < 8 else 1e-6
        unlike = (table.sum(-1) - 1).abs() > tolerance * max(n, 1) ** 0.5
        what = "probabilities that sum to one in each row"
    for allowed, bad in faults.items():
        for place in bad.nonzero()[:1].tolist():
            raise DistributionError(
                f"RIM takes {allowed}, but at {place} there is {table[tuple(place)].item():.6g}"
            )
    for place in unlike.nonzero()[:1].tolist():
        raise DistributionError(
            f"RIM takes {what}, but row {place} sums to {table[tuple(place)].sum().item():.6g}"
        )
