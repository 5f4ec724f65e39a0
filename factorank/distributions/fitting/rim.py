"""The repeated insertion model from counts."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from factorank.codes import Insertion
from factorank.distributions.fitting.checks import complete_orders, row_weights
from factorank.distributions.fitting.consensus import kemeny, pairwise_counts
from factorank.distributions.fitting.mallows import fixed_order
from factorank.distributions.fitting.report import FitError, FitReport
from factorank.permutations import compose, inverse

if TYPE_CHECKING:
    from factorank.distributions.rim import RIM


def fit_rim(
    orders: Tensor,
    reference: Sequence[int] | Tensor | None = None,
    weights: Tensor | None = None,
    *,
    smoothing: float = 0.0,
) -> "RIM":
    r"""The maximum-likelihood RIM of orders ``(*batch, n)``: insertion probabilities are shares of the votes.

    Given the ``reference`` order this is the maximum of the likelihood. Without one the Kemeny consensus is
    taken, a good reference but not one that a search over all orders has chosen. ``smoothing`` is added to
    the count of every slot (1 is Laplace's rule), which keeps slots that no vote used possible.

    Doignon, Pekeč and Regenwetter, "The repeated insertion model for rankings", 2004.

    >>> law = fit_rim(torch.tensor([[0, 1], [0, 1], [1, 0]]), reference=torch.tensor([0, 1]))
    >>> law.probs
    tensor([[1.0000, 0.0000],
            [0.3333, 0.6667]], dtype=torch.float64)
    """
    from factorank.distributions.rim import RIM

    rows = complete_orders(orders)
    n = rows.shape[1]
    counted = row_weights(weights, tuple(orders.shape[:-1]))
    if not (np.isfinite(smoothing) and smoothing >= 0):
        raise FitError(f"smoothing is finite and at least 0, not {smoothing}")
    order = kemeny(pairwise_counts(rows, counted))[0] if reference is None else fixed_order(reference, n)
    probs, likelihood = insertion_shares(rows, counted, order, smoothing)
    law = RIM(torch.from_numpy(probs).to(orders.device), torch.from_numpy(order).to(orders.device))
    law.report = FitReport(
        "RIM",
        rankings=float(counted.sum()),
        log_likelihood=likelihood,
        parameters=n * (n - 1) // 2,
    )
    return law


def insertion_shares(
    rows: np.ndarray, weights: np.ndarray, reference: np.ndarray, smoothing: float = 0.0
) -> tuple[np.ndarray, float]:
    """The table ``(n, n)`` of insertion probabilities, and the log-likelihood at it."""
    n = rows.shape[1]
    named = compose(inverse(torch.from_numpy(reference)), torch.from_numpy(rows), check=False)
    slots = Insertion().encode(named, check=False).numpy()
    cells = (slots + n * np.arange(n)).reshape(-1)
    counts = np.bincount(cells, np.repeat(weights, n), n * n).reshape(n, n)
    smooth = counts + smoothing * np.tri(n)
    probs = smooth / smooth.sum(1, keepdims=True)
    met = (counts > 0) & (probs > 0)  # a weight next to nothing may round to no share at all
    return probs, float((counts[met] * np.log(probs[met])).sum())
