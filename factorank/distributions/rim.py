"""The repeated insertion model: a table of insertion probabilities."""

import math
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor
from torch.distributions import constraints

from factorank.codes import Insertion
from factorank.distributions.factorized import FactorizedDistribution
from factorank.distributions.fitting.checks import (
    check_counts,
    check_strength,
    complete_votes,
    reference_order,
)
from factorank.distributions.fitting.references import RESTARTS, Reference, rim_reference
from factorank.distributions.fitting.report import FitReport
from factorank.distributions.parameters import as_orders, as_reals, common_batch, permutation
from factorank.errors import DistributionError
from factorank.permutations import compose, inverse


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

    @classmethod
    def fit(
        cls,
        orders: Tensor,
        reference: Sequence[int] | Tensor | None = None,
        weights: Tensor | None = None,
        *,
        smoothing: float = 0.0,
        restarts: int = RESTARTS,
        generator: torch.Generator | None = None,
    ) -> "RIM":
        """The law of maximum likelihood; ``law.report`` says how the fit went.

        The insertion probabilities are shares of the votes. What an item adds to the likelihood depends on
        the set of items before it in the reference, so that dynamic programming over sets finds the best one.
        Beyond 18 items a local search moves one item at a time; ``law.report.exact`` is then false.

        Args:
            orders: complete orders ``(*batch, n)``.
            reference: the order in which items are inserted, if it is not to be fitted.
            weights: of the rankings, ``(*batch,)``.
            smoothing: added to the count of every slot (1 is Laplace's rule), which keeps slots that no vote
                used possible.
            restarts: local searches for the reference beyond 18 items, of which the best is kept.
            generator: of the starts of these searches.

        >>> law = RIM.fit(torch.tensor([[0, 1], [0, 1], [1, 0]]), reference=[0, 1])
        >>> law.probs
        tensor([[1.0000, 0.0000],
                [0.3333, 0.6667]], dtype=torch.float64)
        """
        rows, row_weights = complete_votes(orders, weights)
        check_strength("smoothing", smoothing)
        check_counts(restarts=restarts)
        n = rows.shape[1]
        if reference is None:
            search = rim_reference(rows, row_weights, smoothing, restarts, generator)
        else:
            search = Reference(reference_order(reference, n), None)
        probs, likelihood = insertion_shares(rows, row_weights, search.order, smoothing)
        law = RIM(torch.from_numpy(probs).to(orders.device), torch.from_numpy(search.order).to(orders.device))
        law.report = FitReport(
            "RIM",
            float(row_weights.sum()),
            likelihood,
            parameters=n * (n - 1) // 2,
            exact=search.exact,
            restarts=search.values,
        )
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


def insertion_shares(
    rows: np.ndarray, weights: np.ndarray, reference: np.ndarray, smoothing: float = 0.0
) -> tuple[np.ndarray, float]:
    """The table ``(n, n)`` of insertion probabilities, and the log-likelihood at it."""
    n = rows.shape[1]
    relative = compose(inverse(torch.from_numpy(reference)), torch.from_numpy(rows), check=False)
    slots = Insertion().encode(relative, check=False).numpy()
    cells = (slots + n * np.arange(n)).reshape(-1)
    counts = np.bincount(cells, np.repeat(weights, n), n * n).reshape(n, n)
    smooth = counts + smoothing * np.tri(n)
    probs = smooth / smooth.sum(1, keepdims=True)
    used = (counts > 0) & (probs > 0)  # a weight next to nothing may round to no share at all
    return probs, float((counts[used] * np.log(probs[used])).sum())
