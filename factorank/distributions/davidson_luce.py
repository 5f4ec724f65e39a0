"""Davidson and Luce's law of rankings with ties: sets of tied items are chosen one after the other."""

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.distributions import constraints

from factorank.distributions.fitting.ballots import Ballots
from factorank.distributions.fitting.checks import check_independent, item_features
from factorank.distributions.fitting.choices import centred_inverse, explain
from factorank.distributions.fitting.errors import FitError, FitWarning
from factorank.distributions.fitting.graphs import strongly_connected
from factorank.distributions.fitting.report import FitReport
from factorank.distributions.fitting.tied_choices import (
    all_log_ties,
    climb_tied,
    tied_choices,
    tied_log_prob,
)
from factorank.distributions.parameters import as_reals, check_parameter, finite_vector
from factorank.errors import DistributionError, warn
from factorank.permutations import check_integer, signed

WIDEST = 600.0
"""Nats that the logits may lie apart: beyond, worths underflow."""
MOST_SETS = 2**20
"""Sets of items that a sample lists."""


class DavidsonLuce:
    r"""Davidson and Luce's law of rankings with ties: Plackett and Luce's, choosing sets.

    The best items are chosen from all, perhaps several that are tied; then the best of the rest, and so on.
    From the items A that are left the set S is chosen with probability

    .. math:: \frac{f(S)}{\sum_{T \subseteq A, |T| \le D} f(T)}, \qquad
              f(S) = \delta_{|S|} \exp\Bigl( \tfrac{1}{|S|} \sum_{i \in S} s_i \Bigr), \quad \delta_1 = 1.

    Of two items it is :class:`Davidson`'s law with :math:`\nu = \delta_2`. A fit is made by
    ``PlackettLuce.fit(…, ties=True)``.

    Args:
        logits: the scores of the items, ``(n,)``, finite.
        prevalence: :math:`\delta_2, \delta_3, …`, at least 0: how common ties of 2, 3, … items are. Larger
            ties do not occur.

    Rankings are given as ranks ``(*batch, n)``: the place of each item, best 0; tied items share theirs, and
    an item of -1 takes no part.

    Turner, van Etten, Firth and Kosmidis, "Modelling rankings in R: the PlackettLuce package", 2020.

    >>> law = DavidsonLuce([0.0, 0.0, 0.0], prevalence=[1.0])
    >>> law.log_prob(torch.tensor([[0, 1, 2], [0, 0, 1], [0, 1, 1]])).exp()
    tensor([0.0556, 0.1667, 0.0556])
    """

    report: FitReport | None = None
    """The report of the fit; None for a law that was not fitted."""
    coefficients: Tensor | None = None
    """Of the features of the items, where logits were fitted as ``features @ coefficients``."""
    covariance: Tensor | None = None
    """Of a fitted law: of the logits of mean zero (or the coefficients) and the logarithms of the prevalences
    above 0, in this order."""

    def __init__(self, logits: Sequence[float] | Tensor, prevalence: Sequence[float] | Tensor = ()) -> None:
        self.logits = as_reals(logits)
        self.prevalence = as_reals(prevalence, self.logits, self.logits.dtype).to(self.logits.device)
        if self.logits.ndim != 1 or self.prevalence.ndim != 1:
            raise DistributionError(
                "DavidsonLuce takes logits (n,) and prevalence (ties,), not shapes"
                f" {tuple(self.logits.shape)} and {tuple(self.prevalence.shape)}"
            )
        check_parameter("DavidsonLuce", "logits", self.logits, finite_vector)
        check_parameter("DavidsonLuce", "prevalence", self.prevalence, finite_vector)
        check_parameter("DavidsonLuce", "prevalence", self.prevalence, constraints.nonnegative)
        if self.n and float(self.logits.detach().max() - self.logits.detach().min()) > WIDEST:
            raise DistributionError(f"DavidsonLuce takes logits that lie at most {WIDEST:g} nats apart")

    @property
    def n(self) -> int:
        """The number of items."""
        return len(self.logits)

    def log_prob(self, rank: Tensor) -> Tensor:
        """The log-probability ``(*batch,)``, in nats, of rankings with ties: ranks ``(*batch, n)``.

        It has gradients to the parameters. The sum over all rankings of the same items is one.
        """
        check_integer(rank, "DavidsonLuce takes ranks")
        rank = signed(rank, "DavidsonLuce takes ranks of")
        if rank.shape[-1:] != (self.n,):
            raise DistributionError(f"DavidsonLuce takes ranks (*batch, {self.n}), not {tuple(rank.shape)}")
        if rank.numel() and int(rank.min()) < -1:
            raise DistributionError("ranks are 0 or more, or -1 for an item that takes no part")
        rows = rank.reshape(-1, self.n).cpu().numpy().astype(np.int64)
        choices = tied_choices(rows, np.ones(len(rows)))
        log_ties = torch.cat([self.prevalence.new_zeros(1), self.prevalence.log()]).double()
        log = tied_log_prob(choices, self.logits.cpu().double(), log_ties.cpu())
        return log.reshape(rank.shape[:-1]).to(self.logits)

    def sample(self, sample_shape: Sequence[int] = (), *, generator: torch.Generator | None = None) -> Tensor:
        """Draw rankings of all items, as ranks ``(*sample_shape, n)``."""
        n, most = self.n, min(1 + len(self.prevalence), self.n)
        sets = [chosen for k in range(1, most + 1) for chosen in _sets(n, k)]
        if len(sets) > MOST_SETS:
            raise DistributionError(
                f"a sample lists all sets of at most {most} of {n} items, more than {MOST_SETS:,}"
            )
        rows = int(np.prod(sample_shape))
        with torch.no_grad():
            member = torch.zeros((len(sets), n), dtype=torch.float64)
            for row, chosen in enumerate(sets):
                member[row, list(chosen)] = 1
            sizes = member.sum(1)
            log_ties = torch.cat([self.prevalence.new_zeros(1), self.prevalence.log()]).double().cpu()
            weight = member @ self.logits.cpu().double() / sizes + log_ties[sizes.long() - 1]
            weight = (weight - weight.max()).exp()
            rank = torch.zeros((rows, n), dtype=torch.int64)
            free = torch.ones((rows, n), dtype=torch.float64)
            place = 0
            while bool((left := free.any(1)).any()):
                # A set can be chosen if it holds none of the items that are gone.
                allowed = (1 - free[left]) @ member.T == 0
                drawn = torch.multinomial(allowed * weight, 1, generator=generator)[:, 0]
                taken = member[drawn]
                rank[left] = torch.where(taken > 0, place, rank[left])
                free[left] -= taken
                place += 1
        return rank.reshape(*sample_shape, n).to(self.logits.device)

    def standard_errors(self) -> Tensor:
        """The standard errors of the fitted logits of mean zero, ``(n,)``, or of the coefficients."""
        if self.covariance is None:
            raise DistributionError("this DavidsonLuce was not fitted: it has no standard errors")
        own = self.n if self.coefficients is None else len(self.coefficients)
        return self.covariance.diagonal()[:own].clamp(min=0).sqrt()

    def __repr__(self) -> str:
        return f"DavidsonLuce({self.n} items, ties of up to {1 + len(self.prevalence)})"


def fit_davidson_luce(
    ballots: Ballots,
    *,
    below: bool,
    features: Any,
    penalty: float,
    max_iterations: int,
    tolerance: float,
) -> DavidsonLuce:
    """The law of maximum likelihood; ``below``: items left out come after those that are listed."""
    if ballots.above is not None:
        raise FitError("ties=True takes rankings of levels, not partial orders", parameter="ties")
    ballots, n = ballots.distinct(), ballots.n
    table = None if features is None else item_features(features, n)
    choices = tied_choices(ballots.ranks, ballots.weights, below=below)
    if choices.tie_sizes and choices.always_tied():
        raise FitError("every choice is a tie: how much more common ties are is not determined")
    if table is None and not penalty and n > 1:
        edges = choices.beats(n)
        if not strongly_connected(edges):
            reasons, _, _ = explain(edges, ballots.items or None)
            raise FitError("; ".join(reasons) + "; a penalty above 0 settles it", parameter="penalty")
    if table is not None and not penalty:
        check_independent(table)
    end, information = climb_tied(choices, n, penalty, max_iterations, tolerance, table)
    own = n if table is None else table.shape[1]
    parameters = torch.from_numpy(end.parameters)
    logits = parameters[:own] if table is None else torch.from_numpy(table) @ parameters[:own]
    prevalence = all_log_ties(choices.tie_sizes, parameters[own:]).exp()[1:]
    law = DavidsonLuce((logits - logits.mean()).to(ballots.device), prevalence.to(ballots.device))
    law.coefficients = None if table is None else parameters[:own]
    law.covariance = torch.from_numpy(
        np.linalg.inv(information) if table is not None else centred_inverse(information, n)
    )
    doubts = () if end.converged else (end.doubt,)
    for text in doubts:
        warn(text, FitWarning)
    report = FitReport(
        "Davidson-Luce",
        rankings=float(ballots.weights.sum()),
        log_likelihood=end.log_likelihood,
        parameters=len(end.parameters) - (table is None),
        iterations=end.iterations,
        converged=end.converged,
        warnings=doubts,
    )
    name, values = ("logit", law.logits) if table is None else ("coefficient", parameters[:own])
    law.report = report.with_estimates(
        name, values.tolist(), law.standard_errors().tolist(), ballots.items if table is None else ()
    )
    return law


def _sets(n: int, k: int) -> list[tuple[int, ...]]:
    return list(itertools.combinations(range(n), k))
