"""The repeated insertion model by maximum likelihood: the insertion probabilities are shares of the votes."""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from factorank.codes import Insertion
from factorank.distributions.fitting.checks import check_strength, complete_votes, reference_order
from factorank.distributions.fitting.consensus import kemeny, pairwise_counts
from factorank.distributions.fitting.registry import register_fitter
from factorank.distributions.fitting.report import FitReport
from factorank.distributions.rim import RIM
from factorank.permutations import compose, inverse


@register_fitter(RIM)
def fit_rim(
    orders: Tensor,
    reference: Sequence[int] | Tensor | None,
    weights: Tensor | None,
    *,
    smoothing: float,
) -> RIM:
    """See :meth:`factorank.RIM.fit`."""
    rows, row_weights = complete_votes(orders, weights)
    n = rows.shape[1]
    check_strength("smoothing", smoothing)
    if reference is None:
        order = kemeny(pairwise_counts(rows, row_weights))[0]
    else:
        order = reference_order(reference, n)
    probs, likelihood = insertion_shares(rows, row_weights, order, smoothing)
    law = RIM(torch.from_numpy(probs).to(orders.device), torch.from_numpy(order).to(orders.device))
    law.report = FitReport(
        "RIM",
        rankings=float(row_weights.sum()),
        log_likelihood=likelihood,
        parameters=n * (n - 1) // 2,
    )
    return law


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
